"""Binding of calls: the closed list of functions, and the types that each operation takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.bind.expr.aggregates import AGGREGATE_NAMES, bind_aggregate
from kasen.cql.bind.expr.coerce import cast
from kasen.cql.bind.expr.scope import suggest
from kasen.cql.bind.expr.user_aggregates import bind_user
from kasen.cql.expr import AggregateValue, Call, Expr, Literal, WindowBound
from kasen.cql.functions import OPERATORS, SCALARS, TRUNC_UNITS
from kasen.cql.parse import literals
from kasen.types import MAX_COLUMNS, MAX_DECIMAL_DIGITS, NULL, VARCHAR, Kind, Type

if TYPE_CHECKING:
    from kasen.cql.bind.expr.expression import ExprBinder

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
    "iff": "if",
}
_CASES = {"nullif": "NULLIF(a, b)", "if": "IF(condition, a, b)"}
_BOUNDS = ("window_start", "window_end")

# Beside a value of another type, a quoted constant in these means a value of that type.
_ADAPTING = frozenset(
    {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "in", "is_distinct"}
    | {"coalesce", "greatest", "least"}
)


def bind_function(binder: ExprBinder, node: exp.Expr) -> Expr:
    """A call by name, or an aggregate WITHIN GROUP."""
    called = node.this if isinstance(node, exp.WithinGroup) else node
    name = _ALIASES.get(called.name.lower(), called.name.lower())
    args = list(called.expressions)
    if isinstance(node, exp.WithinGroup):
        args = [node.expression.expressions[0], *args]
    if name in AGGREGATE_NAMES or name in binder.scope.user:
        return _aggregate(binder, name, args, node)
    if isinstance(node, exp.WithinGroup):
        remedy = "write PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a)"
        raise binder.error(f"WITHIN GROUP does not go with {name.upper()}", node, remedy)
    if name in _BOUNDS:
        return _window_bound(binder, name, args, node)
    if name in _CASES:
        return _as_case(binder, name, args, node)
    if name not in SCALARS or name in OPERATORS:
        raise _unknown(binder, name, node)
    bound = [binder.bind(arg) for arg in args]
    if name == "date_trunc":
        bound[:1] = [_trunc_unit(binder, bound, node)]
    if name == "round" and len(bound) == 2 and not isinstance(bound[1], Literal):
        raise binder.error("the digits of ROUND must be a constant", args[1], "such as ROUND(a, 2)")
    return call(binder, name, tuple(bound), node)


def _unknown(binder: ExprBinder, name: str, node: exp.Expr) -> Exception:
    upper = name.upper()
    if upper in ("ISTREAM", "DSTREAM", "RSTREAM"):
        remedy = f"write SELECT {upper}(a, b) FROM ..., or {upper}(SELECT ...)"
        return binder.error(f"{upper} must hold the whole SELECT list", node, remedy)
    if upper in ("NOW", "CURRENT_TIMESTAMP", "GETDATE", "SYSDATE"):
        remedy = "queries know the time of tuples only: name the TIMESTAMP BY column"
        return binder.error(f"unknown function {upper}", node, remedy)
    known = [each for each in SCALARS if each not in OPERATORS] + sorted(AGGREGATE_NAMES)
    known += binder.scope.user
    names = [each.upper() for each in (*known, *_CASES, *_BOUNDS)]
    remedy = suggest(upper, names, "see docs/language.md for the list; some are", most=8)
    return binder.error(f"unknown function {upper[:40]}", node, remedy)


def _as_case(binder: ExprBinder, name: str, args: list[exp.Expr], node: exp.Expr) -> Expr:
    """NULLIF and IF are short for CASE."""
    if len(args) != (2 if name == "nullif" else 3):
        raise binder.error(f"{name.upper()} has {_many(len(args))}", node, f"write {_CASES[name]}")
    if name == "if":
        test, value, other = binder.condition(args[0]), binder.bind(args[1]), binder.bind(args[2])
        return binder.case_of([test], [value, other], node)
    left, right = binder.bind(args[0]), binder.bind(args[1])
    return binder.case_of([call(binder, "=", (left, right), node)], [Literal(NULL, None), left], node)


def _trunc_unit(binder: ExprBinder, args: list[Expr], node: exp.Expr) -> Literal:
    unit = args[0].value if args and isinstance(args[0], Literal) else None
    if not isinstance(unit, str) or unit.lower() not in TRUNC_UNITS:
        units = ", ".join(f"'{unit}'" for unit in TRUNC_UNITS)
        raise binder.error("DATE_TRUNC needs a constant unit first", node, f"units are {units}")
    return Literal(VARCHAR, unit.lower())


def _window_bound(binder: ExprBinder, name: str, args: list[exp.Expr], node: exp.Expr) -> Expr:
    position = binder.scope.slide_item()
    if args:
        raise binder.error(f"{name.upper()} takes no arguments", node, f"write {name.upper()}()")
    if position is None:
        fault = f"{name.upper()}() needs exactly one [RANGE ... SLIDE ...] window in FROM"
        raise binder.error(fault, node, "such as FROM s [RANGE 5 MINUTES SLIDE 1 MINUTE]")
    if binder.place == "in ON":
        raise binder.error(f"{name.upper()}() cannot stand in ON", node, "put the condition into WHERE")
    return WindowBound(binder.scope.time, position, end=name == "window_end")


def _aggregate(binder: ExprBinder, name: str, args: list[exp.Expr], node: exp.Expr) -> Expr:
    if binder.aggregates is None:
        fault = f"an aggregate cannot stand {binder.place}"
        in_where = binder.place in ("in WHERE", "in ON")
        remedy = (
            "use HAVING, or a sub-query in FROM" if in_where else "aggregate in a sub-query in FROM first"
        )
        raise binder.error(fault, node, remedy)
    user = binder.scope.user.get(name)
    if user is not None:
        bound = bind_user(user, args, node, binder.scope)
    else:
        bound = bind_aggregate(name, args, node, binder.scope)
    index = binder.aggregates.setdefault(bound, len(binder.aggregates))
    if index == MAX_COLUMNS:
        fault = f"the SELECT list and HAVING have more than {MAX_COLUMNS} different aggregates"
        raise binder.error(fault, node, "split it into several queries")
    return AggregateValue(bound.type, index)


# ---------------------------------------------------------------- typing


def call(binder: ExprBinder, op: str, args: tuple[Expr, ...], node: exp.Expr) -> Expr:
    """An operation of the closed list, its arguments cast as its typing rule says."""
    signature = SCALARS[op]
    if not signature.least <= len(args) <= (signature.most or len(args)):
        raise binder.error(f"{op.upper()} has {_many(len(args))}", node, f"write {signature.usage}")
    if op in _ADAPTING:
        args = _adapt_texts(binder, args, node)
    typing = signature.rule([arg.type for arg in args])
    if typing is None:
        kinds = " and ".join(str(arg.type) for arg in args)
        fault = f"{signature.usage} does not take {kinds}"
        raise binder.error(fault, node, _type_remedy(op, args))
    types, result = typing
    if result.is_null:
        return Literal(NULL, None)
    return Call(result, op, tuple(cast(arg, type_) for arg, type_ in zip(args, types, strict=True)))


def _many(count: int) -> str:
    return f"the wrong number of arguments, {count}"


def _adapt_texts(binder: ExprBinder, args: tuple[Expr, ...], node: exp.Expr) -> tuple[Expr, ...]:
    """A quoted constant beside a number or timestamp means that number or timestamp."""
    others = [arg.type for arg in args if not _is_text(arg) and not arg.type.is_null]
    wanted = next((type_ for type_ in others if type_.kind is not Kind.VARCHAR), None)
    if wanted is None or VARCHAR in others or wanted.kind is Kind.INTERVAL:
        return args
    return tuple(
        literals.convert_text(arg, wanted, node, binder.scope.text) if _is_text(arg) else arg for arg in args
    )


def _is_text(arg: Expr) -> bool:
    return isinstance(arg, Literal) and isinstance(arg.value, str)


def _type_remedy(op: str, args: tuple[Expr, ...]) -> str:
    interval = next((a for a in args if isinstance(a, Literal) and a.type.kind is Kind.INTERVAL), None)
    if interval is not None and not any(arg.type.is_integer for arg in args):
        return "an INTERVAL can only be added to a TIMESTAMP, or subtracted from it"
    if interval is not None:
        return f"TIMESTAMP - TIMESTAMP counts microseconds: write {interval.value} instead of the INTERVAL"
    if op == "concat":
        return "CAST numbers to VARCHAR first"
    if op == "*" and _scales(args) > MAX_DECIMAL_DIGITS:
        return f"the scales add up to {_scales(args)}, but a DECIMAL has at most 18 digits: CAST to fewer"
    return "CAST the arguments to types that fit"


def _scales(args: tuple[Expr, ...]) -> int:
    return sum(_scale(arg.type) for arg in args)


def _scale(type_: Type) -> int:
    return type_.scale if type_.kind is Kind.DECIMAL else 0
