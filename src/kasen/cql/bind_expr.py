"""Binding of scalar expressions: names to columns, operators to the closed list, every coercion explicit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from kasen.cql import literals
from kasen.cql.aggregates import AGGREGATE_NAMES, bind_aggregate
from kasen.cql.bound import Query, Slide
from kasen.cql.expr import (
    Aggregate,
    AggregateValue,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    GroupKey,
    Literal,
    ScalarQuery,
    WindowBound,
    children,
)
from kasen.cql.functions import EXTRACT_FIELDS, OPERATORS, SCALARS, TRUNC_UNITS
from kasen.cql.scope import Scope, suggest
from kasen.errors import QueryError
from kasen.types import BIGINT, BOOLEAN, DOUBLE, NULL, TIMESTAMP, VARCHAR, Kind, Type, common_type

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Like: "like",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "concat",
    exp.NullSafeNEQ: "is_distinct",
}

# Other spellings of functions in the closed list.
_ALIASES = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "ucase": "upper",
    "lcase": "lower",
    "startswith": "starts_with",
    "instr": "strpos",
    "ifnull": "coalesce",
    "nvl": "coalesce",
}

_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Window: ("OVER is not CQL", "use a window in FROM and GROUP BY instead"),
    exp.Placeholder: ("there are no parameters", "write the value"),
    exp.Subquery: ("a query cannot stand here", ""),
    exp.ILike: ("ILIKE is not CQL", "write LOWER(a) LIKE 'x%'"),
    exp.Star: ("* cannot stand here", "name the columns"),
    exp.Tuple: ("a list of values can only stand before IN", ""),
    exp.Distinct: (
        "DISTINCT cannot stand here",
        "write SELECT DISTINCT, or an aggregate such as COUNT(DISTINCT a)",
    ),
}


@dataclass(slots=True)
class ExprBinder:
    """Binds expressions in one query block.

    While a grouped block's SELECT list and HAVING are bound, `groups` holds its GROUP BY expressions and
    `aggregates` collects the aggregates met. `subquery` binds a query in an expression; it is None where
    none is allowed.
    """

    scope: Scope
    groups: tuple[Expr, ...] | None = None
    aggregates: list[Aggregate] | None = None
    subquery: Callable[[exp.Expr], Query] | None = None
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    place: str = "here"

    def error(self, fault: str, node: exp.Expr, remedy: str = "") -> QueryError:
        return self.scope.text.error(fault, node, remedy)

    def bind(self, node: exp.Expr) -> Expr:
        """The expression with its type."""
        key = self._group_key(node)
        return key if key is not None else self._bind(node)

    def _group_key(self, node: exp.Expr) -> Expr | None:
        """The GROUP BY expression that this is, if it is one: GROUP BY a % 2 makes a % 2 known, not a."""
        if not self.groups:
            return None
        try:
            plain = ExprBinder(self.scope).bind(node)
        except QueryError:
            return None
        return GroupKey(plain.type, self.groups.index(plain)) if plain in self.groups else None

    def condition(self, node: exp.Expr) -> Expr:
        """An expression that must be BOOLEAN, such as WHERE's."""
        bound = self.bind(node)
        if bound.type.is_null:
            return cast(bound, BOOLEAN)
        if bound.type != BOOLEAN:
            raise self.error(f"a condition must be BOOLEAN, this is {bound.type}", node)
        return bound

    def _bind(self, node: exp.Expr) -> Expr:
        if (op := _BINARY.get(type(node))) is not None:
            return self._binary(op, node)
        method = _METHODS.get(type(node))
        if method is not None:
            return method(self, node)
        if type(node) in _REFUSED:
            fault, remedy = _REFUSED[type(node)]
            raise self.error(fault, node, remedy)
        shown = node.sql()
        raise self.error(
            f"{shown[:60]!r} is not an expression of CQL", node, "see docs/semantics.md for the list"
        )

    # ------------------------------------------------------------ leaves

    def _column(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            raise self.error("* cannot stand here", node, "name the columns")
        if not node.table and node.name.lower() in self.aliases:
            return self._bind(self.aliases[node.name.lower()])
        column = self.scope.column(node)
        if self.groups is None or column.outer:
            return column
        end = self._as_window_end(column)
        if end is None:
            raise self.error(
                f"column {node.sql()!r} must be in GROUP BY or inside an aggregate",
                node,
                f"write GROUP BY {node.sql()}, or an aggregate such as MAX({node.sql()})",
            )
        return end

    def _as_window_end(self, column: Column) -> Expr | None:
        """The time column beside aggregates over a SLIDE window means the window's end."""
        item = self.scope.items[column.source]
        if isinstance(item.source.window, Slide) and column.index == item.timestamp:
            return WindowBound(column.type, column.source, end=True)
        return None

    def _literal(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Literal)
        if node.is_string:
            return Literal(VARCHAR, str(node.this))
        return literals.number(node, self.scope.text)

    def _boolean(self, node: exp.Expr) -> Expr:
        return Literal(BOOLEAN, bool(node.this))

    def _null(self, _: exp.Expr) -> Expr:
        return Literal(NULL, None)

    def _interval(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Interval)
        return literals.interval(node, self.scope.text)

    # ------------------------------------------------------------ operators

    def _paren(self, node: exp.Expr) -> Expr:
        return self.bind(node.this)

    def _binary(self, op: str, node: exp.Expr) -> Expr:
        if isinstance(node, exp.And | exp.Or):
            return self._connective(op, node)
        if isinstance(node.expression, exp.All | exp.Any):
            fault = "a comparison with ALL or ANY can only stand in WHERE, joined by AND"
            raise self.error(fault, node)
        left, right = self.bind(node.this), self.bind(node.expression)
        if node.args.get("negate"):
            # sqlglot keeps the NOT of NOT LIKE inside the node.
            return Call(BOOLEAN, "not", (self.call(op, (left, right), node),))
        if op in ("+", "-") and TIMESTAMP in (left.type, right.type):
            return self._time_arithmetic(op, left, right, node)
        return self.call(op, (left, right), node)

    def _connective(self, op: str, node: exp.Expr) -> Expr:
        """AND and OR with all their arguments in one flat call, however long the chain."""
        kind = type(node)
        parts: list[exp.Expr] = []
        while isinstance(node, kind):
            parts.append(node.expression)
            node = node.this
        args: list[Expr] = []
        for part in (node, *reversed(parts)):
            bound = self.condition(part)
            flat = isinstance(bound, Call) and bound.op == op
            args.extend(bound.args if flat and isinstance(bound, Call) else (bound,))
        return Call(BOOLEAN, op, tuple(args))

    def _time_arithmetic(self, op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
        if left.type == right.type == TIMESTAMP and op == "-":
            return self.call("ts_diff", (left, right), node)
        if right.type == TIMESTAMP and op == "+":
            left, right = right, left
        if left.type == TIMESTAMP and isinstance(right, Literal) and right.type.kind is Kind.INTERVAL:
            assert isinstance(right.value, int)
            amount = right if op == "+" else Literal(right.type, -right.value)
            return self.call("ts_add", (left, amount), node)
        raise self.error(
            f"cannot compute {left.type} {op} {right.type}",
            node,
            "TIMESTAMP + INTERVAL '5' MINUTE and TIMESTAMP - TIMESTAMP (in microseconds) are possible",
        )

    def _not(self, node: exp.Expr) -> Expr:
        return Call(BOOLEAN, "not", (self.condition(node.this),))

    def _neg(self, node: exp.Expr) -> Expr:
        arg = self.bind(node.this)
        if isinstance(arg, Literal) and isinstance(arg.value, int | float | Decimal) and arg.type.is_numeric:
            return Literal(arg.type, -arg.value)
        return self.call("neg", (arg,), node)

    def _is(self, node: exp.Expr) -> Expr:
        arg = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return Call(BOOLEAN, "is_null", (arg,))
        if isinstance(node.expression, exp.Boolean) and common_type(arg.type, BOOLEAN) == BOOLEAN:
            wanted = Literal(BOOLEAN, bool(node.expression.this))
            return Call(BOOLEAN, "not", (self.call("is_distinct", (arg, wanted), node),))
        raise self.error("IS must be followed by [NOT] NULL, TRUE, FALSE or DISTINCT FROM", node)

    def _same(self, node: exp.Expr) -> Expr:
        args = (self.bind(node.this), self.bind(node.expression))
        return Call(BOOLEAN, "not", (self.call("is_distinct", args, node),))

    def _between(self, node: exp.Expr) -> Expr:
        value = self.bind(node.this)
        low = self.call(">=", (value, self.bind(node.args["low"])), node)
        high = self.call("<=", (value, self.bind(node.args["high"])), node)
        return Call(BOOLEAN, "and", (low, high))

    def _in(self, node: exp.Expr) -> Expr:
        if node.args.get("query") is not None:
            raise self.error("IN (query) can only stand in WHERE, joined by AND or under NOT", node)
        if isinstance(node.this, exp.Tuple) or not node.expressions:
            raise self.error("IN needs one value and a list of values, or a query", node)
        args = (self.bind(node.this), *(self.bind(value) for value in node.expressions))
        return self.call("in", args, node)

    def _exists(self, node: exp.Expr) -> Expr:
        raise self.error("EXISTS can only stand in WHERE, joined by AND or under NOT", node)

    def _case(self, node: exp.Expr) -> Expr:
        subject = node.args.get("this")
        conditions: list[Expr] = []
        values: list[Expr] = []
        for branch in node.args["ifs"]:
            if subject is not None:
                pair = (self.bind(subject), self.bind(branch.this))
                conditions.append(self.call("=", pair, branch))
            else:
                conditions.append(self.condition(branch.this))
            values.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        values.append(self.bind(default) if default is not None else Literal(NULL, None))
        return self._case_of(conditions, values, node)

    def _case_of(self, conditions: list[Expr], values: list[Expr], node: exp.Expr) -> Expr:
        common: Type | None = NULL
        for value in values:
            common = common_type(common, value.type) if common is not None else None
        if common is None:
            kinds = ", ".join(str(value.type) for value in values)
            raise self.error(
                f"the values of CASE have no common type: {kinds}", node, "CAST them to one type"
            )
        cases = [cast(value, common) for value in values]
        return Case(common, tuple(zip(conditions, cases[:-1], strict=True)), cases[-1])

    def _cast(self, node: exp.Expr) -> Expr:
        wanted = literals.cql_type(node.args["to"], self.scope.text)
        arg = self.bind(node.this)
        if isinstance(arg, Literal) and isinstance(arg.value, str) and wanted == TIMESTAMP:
            return self._adapt(arg, wanted, node)
        if not castable(arg.type, wanted):
            remedy = "round it first: CAST(CAST(x AS DECIMAL(18, 6)) AS VARCHAR)" if wanted == VARCHAR else ""
            raise self.error(f"cannot cast {arg.type} to {wanted}", node, remedy)
        return cast(arg, wanted)

    # ------------------------------------------------------------ functions

    def _extract(self, node: exp.Expr) -> Expr:
        name = node.name.lower()
        if name not in EXTRACT_FIELDS:
            fields = ", ".join(EXTRACT_FIELDS).upper()
            raise self.error(f"cannot extract {name.upper()}", node, f"fields are {fields}")
        return self.call("extract", (Literal(VARCHAR, name), self.bind(node.expression)), node)

    def _substring(self, node: exp.Expr) -> Expr:
        parts = (node.this, node.args.get("start"), node.args.get("length"))
        return self.call("substring", tuple(self.bind(part) for part in parts if part is not None), node)

    def _strpos(self, node: exp.Expr) -> Expr:
        return self.call("strpos", (self.bind(node.this), self.bind(node.args["substr"])), node)

    def _within_group(self, node: exp.Expr) -> Expr:
        function = node.this
        order = node.expression
        if not isinstance(function, exp.Anonymous) or not isinstance(order, exp.Order):
            raise self.error(
                "cannot read WITHIN GROUP", node, "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a)"
            )
        value = order.expressions[0]
        value = value.this if isinstance(value, exp.Ordered) else value
        return self._aggregate(function.name.lower(), [value, *function.expressions], node)

    def _function(self, node: exp.Expr) -> Expr:
        name = node.name.lower()
        args = list(node.expressions)
        if name in AGGREGATE_NAMES:
            return self._aggregate(name, args, node)
        if name in ("window_start", "window_end"):
            return self._window_bound(name, args, node)
        if name == "nullif" and len(args) == 2:
            left, right = self.bind(args[0]), self.bind(args[1])
            return self._case_of([self.call("=", (left, right), node)], [Literal(NULL, None), left], node)
        if name in ("if", "iff") and len(args) == 3:
            return self._case_of([self.condition(args[0])], [self.bind(args[1]), self.bind(args[2])], node)
        op = _ALIASES.get(name, name)
        if op not in SCALARS or op in OPERATORS:
            known = [each for each in SCALARS if each not in OPERATORS] + sorted(AGGREGATE_NAMES)
            names = [each.upper() for each in (*known, "nullif", "if", "window_start", "window_end")]
            raise self.error(f"unknown function {name.upper()}", node, suggest(name, names, "functions are"))
        bound = [self.bind(arg) for arg in args]
        if op == "date_trunc":
            self._check_trunc_unit(bound, node)
        if op == "round" and len(bound) == 2 and not isinstance(bound[1], Literal):
            raise self.error("the digits of ROUND must be a constant", node)
        return self.call(op, tuple(bound), node)

    def _check_trunc_unit(self, args: list[Expr], node: exp.Expr) -> None:
        if not args or not isinstance(args[0], Literal) or args[0].value not in TRUNC_UNITS:
            units = ", ".join(f"'{unit}'" for unit in TRUNC_UNITS)
            raise self.error("DATE_TRUNC needs a constant unit first", node, f"units are {units}")

    def _window_bound(self, name: str, args: list[exp.Expr], node: exp.Expr) -> Expr:
        position = self.scope.slide_item()
        if position is None or args:
            fault = f"{name.upper()}() needs exactly one [RANGE ... SLIDE ...] window in FROM"
            raise self.error(fault, node)
        return WindowBound(self.scope.time, position, end=name == "window_end")

    def _aggregate(self, name: str, args: list[exp.Expr], node: exp.Expr) -> Expr:
        if self.aggregates is None:
            fault = f"an aggregate cannot stand {self.place}"
            remedy = "use HAVING, or a sub-query in FROM" if self.place == "in WHERE" else ""
            raise self.error(fault, node, remedy)
        inner = ExprBinder(self.scope, place="inside another aggregate")
        bound = bind_aggregate(name, args, node, inner)
        if bound not in self.aggregates:
            self.aggregates.append(bound)
        return AggregateValue(bound.type, self.aggregates.index(bound))

    def _scalar_query(self, node: exp.Expr) -> Expr:
        if self.subquery is None:
            raise self.error("a query cannot stand here", node, "join with it in FROM instead")
        query = self.subquery(node.this)
        if len(query.schema) != 1:
            raise self.error("a query used as a value must have one column", node)
        return ScalarQuery(query.schema[0].type, query)

    # ------------------------------------------------------------ typing

    def call(self, op: str, args: tuple[Expr, ...], node: exp.Expr) -> Expr:
        """An operation of the closed list, its arguments cast as its typing rule says."""
        signature = SCALARS[op]
        if not signature.least <= len(args) <= (signature.most or len(args)):
            raise self.error(f"wrong number of arguments: {len(args)}", node, f"write {signature.usage}")
        args = self._adapt_texts(args, node)
        typing = signature.rule([arg.type for arg in args])
        if typing is None:
            kinds = ", ".join(str(arg.type) for arg in args)
            fault = f"{signature.usage} does not take {kinds}"
            raise self.error(fault, node, "CAST the arguments to types that fit")
        types, result = typing
        return Call(result, op, tuple(cast(arg, type_) for arg, type_ in zip(args, types, strict=True)))

    def _adapt_texts(self, args: tuple[Expr, ...], node: exp.Expr) -> tuple[Expr, ...]:
        """A quoted constant beside a number or timestamp means that number or timestamp."""
        others = [arg.type for arg in args if not _is_text(arg) and not arg.type.is_null]
        wanted = next((type_ for type_ in others if type_.kind is not Kind.VARCHAR), None)
        if wanted is None or VARCHAR in others or wanted.kind is Kind.INTERVAL:
            return args
        wanted = BIGINT if wanted.is_integer else DOUBLE if wanted.is_numeric else wanted
        return tuple(self._adapt(arg, wanted, node) if _is_text(arg) else arg for arg in args)

    def _adapt(self, arg: Expr, wanted: Type, node: exp.Expr) -> Expr:
        assert isinstance(arg, Literal)
        try:
            return Literal(wanted, literals.convert_text(str(arg.value), wanted))
        except ValueError:
            if isinstance(node, exp.Extract | exp.Anonymous):
                return arg
            raise self.error(f"{arg.value!r} is not a {wanted}", node) from None


def _is_text(arg: Expr) -> bool:
    return isinstance(arg, Literal) and arg.type == VARCHAR


def cast(arg: Expr, wanted: Type) -> Expr:
    """The argument as `wanted`; constants that fit exactly are converted now."""
    if arg.type == wanted:
        return arg
    if isinstance(arg, Literal):
        if arg.value is None:
            return Literal(wanted, None)
        if arg.type.is_integer and wanted == BIGINT:
            return Literal(wanted, arg.value)
        if arg.type.is_numeric and wanted == DOUBLE and not isinstance(arg.value, str):
            return Literal(wanted, float(arg.value))
    return Cast(wanted, arg)


def castable(have: Type, want: Type) -> bool:
    """Whether CAST is defined; a value that does not fit becomes NULL."""
    if have == want or have.is_null:
        return True
    if Kind.INTERVAL in (have.kind, want.kind):
        return False
    if want == VARCHAR:
        return have != DOUBLE
    if have == VARCHAR or (have.is_numeric and want.is_numeric):
        return True
    return {have.kind, want.kind} <= {Kind.BOOLEAN, Kind.INTEGER, Kind.BIGINT}


def outer_columns(expr: Expr) -> bool:
    """Whether an expression uses a column of the block around."""
    if isinstance(expr, Column) and expr.outer:
        return True
    return any(outer_columns(child) for child in children(expr))


_METHODS: dict[type[exp.Expr], Callable[[ExprBinder, exp.Expr], Expr]] = {
    exp.Column: ExprBinder._column,
    exp.Literal: ExprBinder._literal,
    exp.Boolean: ExprBinder._boolean,
    exp.Null: ExprBinder._null,
    exp.Interval: ExprBinder._interval,
    exp.Paren: ExprBinder._paren,
    exp.Not: ExprBinder._not,
    exp.Neg: ExprBinder._neg,
    exp.Is: ExprBinder._is,
    exp.NullSafeEQ: ExprBinder._same,
    exp.Between: ExprBinder._between,
    exp.In: ExprBinder._in,
    exp.Exists: ExprBinder._exists,
    exp.Case: ExprBinder._case,
    exp.Cast: ExprBinder._cast,
    exp.TryCast: ExprBinder._cast,
    exp.Extract: ExprBinder._extract,
    exp.Substring: ExprBinder._substring,
    exp.StrPosition: ExprBinder._strpos,
    exp.WithinGroup: ExprBinder._within_group,
    exp.Anonymous: ExprBinder._function,
    exp.Subquery: ExprBinder._scalar_query,
}
