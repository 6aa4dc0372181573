"""Binding of scalar expressions: names to columns, operators to the closed list, every coercion explicit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlglot import exp

from kasen.cql.bind.expr.call import bind_function, call
from kasen.cql.bind.expr.coerce import cast, castable
from kasen.cql.bind.expr.scope import Scope
from kasen.cql.bound import Query
from kasen.cql.check.extent import MAX_EXPRESSION, MAX_PARTS
from kasen.cql.expr import Aggregate, Call, Case, Column, Expr, Literal, ScalarQuery
from kasen.cql.functions import EXTRACT_FIELDS
from kasen.cql.parse import literals
from kasen.cql.parse.cursor import TOO_DEEP
from kasen.cql.text import Text
from kasen.errors import QueryError
from kasen.types import BOOLEAN, NULL, TIMESTAMP, VARCHAR, Kind, Type, common_type

# The expressions that the SELECT list gives names to; None for a name that it gives twice.
Aliases = dict[str, exp.Expr | None]

BINARY: dict[type[exp.Expr], str] = {
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
    exp.NullSafeNEQ: "is_distinct",
}

_IN_WHERE = "put it into WHERE, joined by AND; for OR, write a UNION of two queries"

_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Star: ("* cannot stand here", "name the columns"),
    exp.Tuple: ("a list in parentheses can only stand before IN (query)", "leave the parentheses out"),
    exp.Distinct: ("DISTINCT can only stand in an aggregate", "write SELECT DISTINCT, or COUNT(DISTINCT a)"),
    exp.Exists: ("EXISTS can only stand in WHERE, joined by AND or under NOT", _IN_WHERE),
}


@dataclass(slots=True)
class ExprBinder:
    """Binds expressions in one query block.

    Where aggregates may stand, `aggregates` collects them. `subquery` binds a query used as a value; it
    is None where none is allowed. `allow_outer` lets columns of the block around in. `columns` notes
    where each column was met first.
    """

    scope: Scope
    aggregates: dict[Aggregate, int] | None = None
    subquery: Callable[[exp.Expr, Scope], Query] | None = None
    aliases: Aliases = field(default_factory=dict)
    place: str = "here"
    allow_outer: bool = False
    columns: dict[Column, exp.Expr] = field(default_factory=dict)
    bound_aliases: dict[str, Expr] = field(default_factory=dict)

    def error(self, fault: str, node: exp.Expr, remedy: str = "") -> QueryError:
        return self.scope.text.error(fault, node, remedy)

    def bind(self, node: exp.Expr) -> Expr:
        """The expression with its type."""
        op = BINARY.get(type(node))
        method = _METHODS.get(type(node))
        if op is not None:
            bound = self._binary(op, node)
        elif method is not None:
            bound = method(self, node)
        else:
            fault, remedy = _REFUSED[type(node)]
            raise self.error(fault, node, remedy)
        # Here already, as binding goes on to walk through what it has bound.
        if bound.levels > MAX_EXPRESSION or bound.parts > MAX_PARTS:
            raise too_large(bound.parts > MAX_PARTS, node, self.scope.text)
        return bound

    def condition(self, node: exp.Expr) -> Expr:
        """An expression that must be BOOLEAN, such as WHERE's."""
        bound = self.bind(node)
        if bound.type.is_null:
            return cast(bound, BOOLEAN)
        if bound.type != BOOLEAN:
            remedy = "compare it with something, such as a > 0"
            raise self.error(f"a condition must be BOOLEAN, this is {bound.type}", node, remedy)
        return bound

    # ------------------------------------------------------------ leaves

    def _column(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            fault, remedy = _REFUSED[exp.Star]
            raise self.error(fault, node, remedy)
        name = node.name.lower()
        if not node.table and name in self.aliases and "spot" not in node.meta:
            return self._alias(name, node)
        column = self.scope.column(node)
        if column.outer and not self.allow_outer:
            fault = f"{node.sql()!r} is a column of the query around, which only WHERE may use"
            raise self.error(fault, node, "put the condition into WHERE, or join in FROM instead")
        self.columns.setdefault(column, node)
        return column

    def _alias(self, name: str, node: exp.Expr) -> Expr:
        target = self.aliases[name]
        if target is None:
            remedy = "give each column of the SELECT list a name of its own"
            raise self.error(f"the name {node.name!r} is ambiguous", node, remedy)
        if name not in self.bound_aliases:
            self.bound_aliases[name] = replace(self, aliases={}).bind(target)
        return self.bound_aliases[name]

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
        if isinstance(node.expression, exp.All | exp.Any):
            fault = "a comparison with ALL or ANY can only stand in WHERE, joined by AND"
            raise self.error(fault, node, _IN_WHERE)
        left, right = self.bind(node.this), self.bind(node.expression)
        if op in ("+", "-") and TIMESTAMP in (left.type, right.type):
            return self._time_arithmetic(op, left, right, node)
        return call(self, op, (left, right), node)

    def _connective(self, node: exp.Expr) -> Expr:
        """AND and OR with all their arguments in one flat call, however long the chain."""
        op = "and" if type(node) is exp.And else "or"
        args: list[Expr] = []
        for part, _ in chain(node):
            bound = self.condition(part)
            args.extend(bound.args if isinstance(bound, Call) and bound.op == op else (bound,))
        return Call(BOOLEAN, op, tuple(args))

    def _concatenation(self, node: exp.Expr) -> Expr:
        """|| with all its arguments in one flat call; each is checked beside what comes before it."""
        args: list[Expr] = []
        before: Expr | None = None
        for part, whole in chain(node):
            bound = self.bind(part)
            if before is not None:
                call(self, "concat", (before, bound), whole)
            before = bound if before is None else Literal(VARCHAR, "")
            args.extend(bound.args if isinstance(bound, Call) and bound.op == "concat" else (bound,))
        return call(self, "concat", tuple(args), node)

    def _time_arithmetic(self, op: str, left: Expr, right: Expr, node: exp.Expr) -> Expr:
        if left.type == right.type == TIMESTAMP and op == "-":
            return call(self, "ts_diff", (left, right), node)
        if right.type == TIMESTAMP and op == "+":
            left, right = right, left
        if left.type == TIMESTAMP and isinstance(right, Literal) and right.type.kind is Kind.INTERVAL:
            assert isinstance(right.value, int)
            amount = right if op == "+" else Literal(right.type, -right.value)
            return call(self, "ts_add", (left, amount), node)
        raise self.error(
            f"cannot compute {left.type} {op} {right.type}",
            node,
            "TIMESTAMP + INTERVAL '5' MINUTE and TIMESTAMP - TIMESTAMP (in microseconds) are possible",
        )

    def _not(self, node: exp.Expr) -> Expr:
        return Call(BOOLEAN, "not", (self.condition(node.this),))

    def _neg(self, node: exp.Expr) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return literals.number(inner, self.scope.text, negative=True)
        arg = self.bind(inner)
        if isinstance(arg, Literal) and isinstance(arg.value, int) and arg.type.kind is Kind.INTERVAL:
            return Literal(arg.type, -arg.value)
        if isinstance(arg, Literal) and isinstance(arg.value, float | Decimal):
            return Literal(arg.type, -arg.value)
        return call(self, "neg", (arg,), node)

    def _is(self, node: exp.Expr) -> Expr:
        arg = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return call(self, "is_null", (arg,), node)
        if common_type(arg.type, BOOLEAN) != BOOLEAN:
            word = str(node.expression.this).upper()
            raise self.error(f"IS {word} needs a BOOLEAN, this is {arg.type}", node, "compare values with =")
        wanted = Literal(BOOLEAN, bool(node.expression.this))
        return Call(BOOLEAN, "not", (call(self, "is_distinct", (arg, wanted), node),))

    def _same(self, node: exp.Expr) -> Expr:
        args = (self.bind(node.this), self.bind(node.expression))
        return Call(BOOLEAN, "not", (call(self, "is_distinct", args, node),))

    def _between(self, node: exp.Expr) -> Expr:
        value = self.bind(node.this)
        low = call(self, ">=", (value, self.bind(node.args["low"])), node)
        high = call(self, "<=", (value, self.bind(node.args["high"])), node)
        return Call(BOOLEAN, "and", (low, high))

    def _in(self, node: exp.Expr) -> Expr:
        if node.args.get("query") is not None:
            fault = "IN (query) can only stand in WHERE, joined by AND or under NOT"
            raise self.error(fault, node, _IN_WHERE)
        args = (self.bind(node.this), *(self.bind(value) for value in node.expressions))
        return call(self, "in", args, node)

    # ------------------------------------------------------------ CASE and CAST

    def _case(self, node: exp.Expr) -> Expr:
        subject = node.args.get("this")
        compared = self.bind(subject) if subject is not None else None
        conditions: list[Expr] = []
        values: list[Expr] = []
        for branch in node.args["ifs"]:
            if compared is not None:
                pair = (compared, self.bind(branch.this))
                conditions.append(call(self, "=", pair, branch))
            else:
                conditions.append(self.condition(branch.this))
            values.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        values.append(self.bind(default) if default is not None else Literal(NULL, None))
        return self.case_of(conditions, values, node)

    def case_of(self, conditions: list[Expr], values: list[Expr], node: exp.Expr) -> Expr:
        """CASE with its values cast to one type; the last value is ELSE's."""
        common: Type | None = NULL
        for value in values:
            common = common_type(common, value.type) if common is not None else None
        if common is None or common.kind is Kind.INTERVAL:
            kinds = ", ".join(str(value.type) for value in values if not value.type.is_null)
            raise self.error(f"values have no common type: {kinds}", node, "CAST them to one type")
        if common.is_null:
            return Literal(NULL, None)
        cases = [cast(value, common) for value in values]
        return Case(common, tuple(zip(conditions, cases[:-1], strict=True)), cases[-1])

    def _cast(self, node: exp.Expr) -> Expr:
        wanted = literals.cql_type(node.args["to"], self.scope.text)
        arg = self.bind(node.this)
        is_text = isinstance(arg, Literal) and isinstance(arg.value, str)
        if is_text and wanted == TIMESTAMP and type(node) is exp.Cast:
            # A constant that cannot be right is better refused than taken for NULL.
            return literals.convert_text(arg, wanted, node.this, self.scope.text)
        if not castable(arg.type, wanted):
            raise self.error(f"cannot cast {arg.type} to {wanted}", node, _cast_remedy(arg.type, wanted))
        return cast(arg, wanted)

    # ------------------------------------------------------------ functions and queries

    def _extract(self, node: exp.Expr) -> Expr:
        name = node.name.lower()
        if name not in EXTRACT_FIELDS:
            fields = ", ".join(EXTRACT_FIELDS).upper()
            raise self.error(f"cannot extract {name.upper()}", node, f"fields are {fields}")
        return call(self, "extract", (Literal(VARCHAR, name), self.bind(node.expression)), node)

    def _function(self, node: exp.Expr) -> Expr:
        return bind_function(self, node)

    def _scalar_query(self, node: exp.Expr) -> Expr:
        if self.subquery is None:
            raise self.error(f"a query cannot stand {self.place}", node, "join with it in FROM instead")
        query = self.subquery(node.this, self.scope)
        if len(query.schema) != 1:
            fault = f"a query used as a value must have one column, this has {len(query.schema)}"
            raise self.error(fault, node, "select one aggregate")
        return ScalarQuery(query.schema[0].type, query)


def chain(node: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """The operands of a chain of one operator from left to right, each with what it ends.

    Without recursion, as chains can be long.
    """
    kind = type(node)
    found: list[tuple[exp.Expr, exp.Expr]] = []
    while type(node) is kind:
        found.append((node.expression, node))
        node = node.this
    found.append((node, found[-1][1]))
    return found[::-1]


def too_large(many_parts: bool, node: exp.Expr, text: Text) -> QueryError:
    """The error for what is too deep, or has too many parts, once the queries within it are put in place."""
    fault = TOO_DEEP
    if many_parts:
        fault = f"this has more than {MAX_PARTS:,} parts once everything it reads is put in its place"
    return text.error(fault, node, "give parts of it names with REGISTER QUERY: those are planned once")


def _cast_remedy(have: Type, want: Type) -> str:
    if want == VARCHAR:
        return "engines print DOUBLE differently; round it first: CAST(CAST(a AS DECIMAL(18, 6)) AS VARCHAR)"
    if have == TIMESTAMP and want.is_numeric:
        return "write EXTRACT(EPOCH FROM a), or subtract another TIMESTAMP for microseconds"
    if want == TIMESTAMP:
        return "declare the input's column as TIMESTAMP, or CAST a VARCHAR such as '2026-01-31 23:59:59'"
    if BOOLEAN in (have, want):
        return "BOOLEAN casts to and from INTEGER, BIGINT and VARCHAR"
    return ""


_METHODS: dict[type[exp.Expr], Callable[[ExprBinder, exp.Expr], Expr]] = {
    exp.Column: ExprBinder._column,
    exp.Literal: ExprBinder._literal,
    exp.Boolean: ExprBinder._boolean,
    exp.Null: ExprBinder._null,
    exp.Interval: ExprBinder._interval,
    exp.Paren: ExprBinder._paren,
    exp.DPipe: ExprBinder._concatenation,
    exp.And: ExprBinder._connective,
    exp.Or: ExprBinder._connective,
    exp.Not: ExprBinder._not,
    exp.Neg: ExprBinder._neg,
    exp.Is: ExprBinder._is,
    exp.NullSafeEQ: ExprBinder._same,
    exp.Between: ExprBinder._between,
    exp.In: ExprBinder._in,
    exp.Case: ExprBinder._case,
    exp.Cast: ExprBinder._cast,
    exp.TryCast: ExprBinder._cast,
    exp.Extract: ExprBinder._extract,
    exp.Anonymous: ExprBinder._function,
    exp.WithinGroup: ExprBinder._function,
    exp.Subquery: ExprBinder._scalar_query,
}
