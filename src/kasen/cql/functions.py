"""The closed list of scalar operations and aggregates, with their typing rules.

Closed, because every entry must give the same answer in compiled kernels, in Spark and in DuckDB;
the tests compare them. That is also why EXP, LN and POWER are missing (engines round them
differently in the last bit) and why casting DOUBLE to VARCHAR is refused (engines print differently).

A rule takes the argument types and returns (types to cast the arguments to, result type), or None if
the types do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTERVAL,
    MAX_DECIMAL_DIGITS,
    TIMESTAMP,
    VARCHAR,
    Kind,
    Type,
    as_decimal,
    common_type,
    decimal,
)

Typing = tuple[tuple[Type, ...], Type] | None
Rule = Callable[[Sequence[Type]], Typing]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar operation: how many arguments it takes (most None: any number), and its typing rule."""

    least: int
    most: int | None
    rule: Rule
    usage: str


# ---------------------------------------------------------------- typing rules


def _fixed(result: Type, *params: Type) -> Rule:
    """Every argument must be of (or NULL, or implicitly widen to) the given type."""

    def rule(types: Sequence[Type]) -> Typing:
        wanted = params[: len(types)]
        if all(_widens(have, want) for have, want in zip(types, wanted, strict=True)):
            return wanted, result
        return None

    return rule


def _widens(have: Type, want: Type) -> bool:
    return common_type(have, want) == want


def _common(types: Sequence[Type]) -> Type | None:
    common: Type | None = types[0]
    for type_ in types[1:]:
        if common is None:
            return None
        common = common_type(common, type_)
    return common


def _compare(types: Sequence[Type]) -> Typing:
    common = _common(types)
    if common is None or common.kind is Kind.INTERVAL:
        return None
    return (_known(common),) * len(types), BOOLEAN


def _known(type_: Type) -> Type:
    """No argument has the type NULL: a bare NULL is as good as a VARCHAR."""
    return VARCHAR if type_.is_null else type_


def _same(types: Sequence[Type]) -> Typing:
    common = _common(types)
    if common is None or common.kind is Kind.INTERVAL:
        return None
    return (common,) * len(types), common


def _any(types: Sequence[Type]) -> Typing:
    return None if types[0].kind is Kind.INTERVAL else ((_known(types[0]),), BOOLEAN)


def _booleans(types: Sequence[Type]) -> Typing:
    if all(_widens(type_, BOOLEAN) for type_ in types):
        return (BOOLEAN,) * len(types), BOOLEAN
    return None


def _arithmetic(op: str) -> Rule:
    def rule(types: Sequence[Type]) -> Typing:
        if all(type_.is_null for type_ in types):
            return (BIGINT,) * len(types), BIGINT
        common = _common(types)
        if common is None or not common.is_numeric:
            return None
        if common.is_integer:
            return (BIGINT,) * len(types), BIGINT
        if common.kind is Kind.DOUBLE or op in ("/", "%"):
            return (DOUBLE,) * len(types), DOUBLE
        return _decimal_arithmetic(op, [as_decimal(type_) if type_.is_numeric else common for type_ in types])

    return rule


def _decimal_arithmetic(op: str, types: list[Type]) -> Typing:
    if op == "neg":
        return tuple(types), types[0]
    left, right = types
    if op == "*":
        scale = left.scale + right.scale
        if scale > MAX_DECIMAL_DIGITS:
            return None
        return (left, right), decimal(min(MAX_DECIMAL_DIGITS, left.precision + right.precision), scale)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale) + 1
    return (left, right), decimal(min(MAX_DECIMAL_DIGITS, whole + scale), scale)


def _numeric_unary(types: Sequence[Type]) -> Typing:
    """abs: integers give BIGINT, as negating the least INTEGER would overflow."""
    first = BIGINT if types[0].is_null or types[0].is_integer else types[0]
    return ((first,), first) if first.is_numeric else None


def _whole(types: Sequence[Type]) -> Typing:
    """floor, ceil: integers stay integers; DECIMALs lose their scale."""
    typing = _numeric_unary(types)
    if typing is not None and typing[1].kind is Kind.DECIMAL:
        wide = min(MAX_DECIMAL_DIGITS, typing[1].precision + 1)
        return typing[0], decimal(wide, 0)
    return typing


def _round(types: Sequence[Type]) -> Typing:
    """round(x) and round(x, n): DECIMALs keep their type, the second argument is a constant integer."""
    typing = _numeric_unary(types)
    if typing is None or (len(types) == 2 and not types[1].is_integer):
        return None
    return (*typing[0], *([BIGINT] if len(types) == 2 else [])), typing[1]


_TEXT1 = _fixed(VARCHAR, VARCHAR)

SCALARS: dict[str, Scalar] = {
    "+": Scalar(2, 2, _arithmetic("+"), "a + b"),
    "-": Scalar(2, 2, _arithmetic("-"), "a - b"),
    "*": Scalar(2, 2, _arithmetic("*"), "a * b"),
    "/": Scalar(2, 2, _arithmetic("/"), "a / b"),
    "%": Scalar(2, 2, _arithmetic("%"), "a % b"),
    "neg": Scalar(1, 1, _arithmetic("neg"), "-a"),
    "ts_add": Scalar(2, 2, _fixed(TIMESTAMP, TIMESTAMP, INTERVAL), "timestamp + INTERVAL '1' MINUTE"),
    "ts_diff": Scalar(2, 2, _fixed(BIGINT, TIMESTAMP, TIMESTAMP), "timestamp - timestamp"),
    "=": Scalar(2, 2, _compare, "a = b"),
    "<>": Scalar(2, 2, _compare, "a <> b"),
    "<": Scalar(2, 2, _compare, "a < b"),
    "<=": Scalar(2, 2, _compare, "a <= b"),
    ">": Scalar(2, 2, _compare, "a > b"),
    ">=": Scalar(2, 2, _compare, "a >= b"),
    "is_distinct": Scalar(2, 2, _compare, "a IS DISTINCT FROM b"),
    "is_null": Scalar(1, 1, _any, "a IS NULL"),
    "in": Scalar(2, None, _compare, "a IN (b, c)"),
    "and": Scalar(2, None, _booleans, "a AND b"),
    "or": Scalar(2, None, _booleans, "a OR b"),
    "not": Scalar(1, 1, _booleans, "NOT a"),
    "like": Scalar(2, 2, _fixed(BOOLEAN, VARCHAR, VARCHAR), "a LIKE 'x%'"),
    "coalesce": Scalar(1, None, _same, "COALESCE(a, b, ...)"),
    "greatest": Scalar(1, None, _same, "GREATEST(a, b, ...)"),
    "least": Scalar(1, None, _same, "LEAST(a, b, ...)"),
    "abs": Scalar(1, 1, _numeric_unary, "ABS(a)"),
    "sign": Scalar(1, 1, _fixed(DOUBLE, DOUBLE), "SIGN(a)"),
    "floor": Scalar(1, 1, _whole, "FLOOR(a)"),
    "ceil": Scalar(1, 1, _whole, "CEIL(a)"),
    "round": Scalar(1, 2, _round, "ROUND(a [, digits])"),
    "sqrt": Scalar(1, 1, _fixed(DOUBLE, DOUBLE), "SQRT(a)"),
    "length": Scalar(1, 1, _fixed(BIGINT, VARCHAR), "LENGTH(s)"),
    "upper": Scalar(1, 1, _TEXT1, "UPPER(s)"),
    "lower": Scalar(1, 1, _TEXT1, "LOWER(s)"),
    "trim": Scalar(1, 1, _TEXT1, "TRIM(s)"),
    "ltrim": Scalar(1, 1, _TEXT1, "LTRIM(s)"),
    "rtrim": Scalar(1, 1, _TEXT1, "RTRIM(s)"),
    "substring": Scalar(2, 3, _fixed(VARCHAR, VARCHAR, BIGINT, BIGINT), "SUBSTRING(s, start [, length])"),
    "concat": Scalar(
        1, None, lambda types: _fixed(VARCHAR, *[VARCHAR] * len(types))(types), "CONCAT(s, t, ...)"
    ),
    "replace": Scalar(3, 3, _fixed(VARCHAR, VARCHAR, VARCHAR, VARCHAR), "REPLACE(s, from, to)"),
    "starts_with": Scalar(2, 2, _fixed(BOOLEAN, VARCHAR, VARCHAR), "STARTS_WITH(s, t)"),
    "contains": Scalar(2, 2, _fixed(BOOLEAN, VARCHAR, VARCHAR), "CONTAINS(s, t)"),
    "strpos": Scalar(2, 2, _fixed(BIGINT, VARCHAR, VARCHAR), "STRPOS(s, t)"),
    "extract": Scalar(2, 2, _fixed(BIGINT, VARCHAR, TIMESTAMP), "EXTRACT(HOUR FROM t)"),
    "date_trunc": Scalar(2, 2, _fixed(TIMESTAMP, VARCHAR, TIMESTAMP), "DATE_TRUNC('hour', t)"),
}

# Names that only the binder uses inside; they are not callable as functions.
OPERATORS = frozenset(
    {"+", "-", "*", "/", "%", "neg", "ts_add", "ts_diff", "=", "<>", "<", "<=", ">", ">=", "in"}
    | {"is_distinct", "is_null", "and", "or", "not", "like", "extract"}
)

EXTRACT_FIELDS = ("year", "month", "day", "hour", "minute", "second", "microsecond", "dow", "epoch")
TRUNC_UNITS = ("year", "month", "day", "hour", "minute", "second")


# ---------------------------------------------------------------- aggregates


def _count(types: Sequence[Type]) -> Typing:
    return None if types[0].kind is Kind.INTERVAL else ((_known(types[0]),), BIGINT)


def _sum(types: Sequence[Type]) -> Typing:
    type_ = types[0]
    if type_.is_integer or type_.is_null:
        return (BIGINT,), BIGINT
    if type_.kind is Kind.DECIMAL:
        return (type_,), decimal(MAX_DECIMAL_DIGITS, type_.scale)
    return ((DOUBLE,), DOUBLE) if type_.kind is Kind.DOUBLE else None


def _mean(types: Sequence[Type]) -> Typing:
    """avg and the like keep exact arguments exact (integers, DECIMALs) and round once, to DOUBLE."""
    if types[0].is_numeric:
        return (types[0],), DOUBLE
    return ((DOUBLE,), DOUBLE) if types[0].is_null else None


def _extreme(types: Sequence[Type]) -> Typing:
    type_ = _known(types[0])
    return None if type_.kind is Kind.INTERVAL else ((type_,), type_)


AGGREGATES: dict[str, Rule] = {
    "count": _count,
    "sum": _sum,
    "avg": _mean,
    "min": _extreme,
    "max": _extreme,
    "stddev_samp": _mean,
    "stddev_pop": _mean,
    "var_samp": _mean,
    "var_pop": _mean,
    "percentile_cont": _fixed(DOUBLE, DOUBLE),
    "percentile_disc": _extreme,
}
