"""Bound expressions as DuckDB expressions.

Every coercion is an explicit Cast in the bound expression, so an operation knows its types. What
DuckDB does differently is bridged here (by other SQL) or in bridges.py (by Python):

- integer arithmetic runs in HUGEINT, and TRY_CAST gives NULL on overflow; DECIMAL likewise in 38 digits;
- DuckDB raises an error for x / 0 on integers, and gives inf on DOUBLE: NULLIF(divisor, 0) gives NULL;
- DuckDB rounds when it casts to an integer: trunc() first;
- DuckDB casts DECIMAL to DOUBLE by dividing, which rounds twice: through text it is the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Protocol

from kasen.cql.bound import Query
from kasen.cql.expr import (
    AggregateValue,
    Call,
    Case,
    Cast,
    Column,
    Exists,
    Expr,
    GroupKey,
    InQuery,
    Literal,
    ScalarQuery,
    Value,
    WindowBound,
)
from kasen.types import Kind, Type

_NAMES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "INTEGER",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.VARCHAR: "VARCHAR",
    Kind.TIMESTAMP: "BIGINT",
    Kind.INTERVAL: "BIGINT",
    Kind.NULL: "INTEGER",
}


class Scope(Protocol):
    """How the expressions of a block name what they use."""

    def column(self, column: Column) -> str: ...

    def group_key(self, index: int) -> str: ...

    def aggregate(self, index: int) -> str: ...

    def window_bound(self, bound: WindowBound) -> str: ...

    def subquery(self, query: Query) -> tuple[str, bool]:
        """The SQL of a sub-query, and whether it is correlated."""


def duck_type(type_: Type) -> str:
    if type_.kind is Kind.DECIMAL:
        return f"DECIMAL({type_.precision}, {type_.scale})"
    return _NAMES[type_.kind]


def expression(expr: Expr, scope: Scope) -> str:
    match expr:
        case Column():
            return scope.column(expr)
        case Literal(type=type_, value=value):
            return literal(value, type_)
        case GroupKey(index=index):
            return scope.group_key(index)
        case AggregateValue(index=index):
            return scope.aggregate(index)
        case WindowBound():
            return scope.window_bound(expr)
        case Cast(type=type_, arg=arg):
            return cast(expression(arg, scope), arg.type, type_)
        case Case(branches=branches, otherwise=otherwise):
            parts = [
                f"WHEN {expression(condition, scope)} THEN {expression(value, scope)}"
                for condition, value in branches
            ]
            return f"(CASE {' '.join(parts)} ELSE {expression(otherwise, scope)} END)"
        case Exists(query=query):
            return f"EXISTS ({scope.subquery(query)[0]})"
        case ScalarQuery(query=query):
            return f"({scope.subquery(query)[0]})"
        case InQuery(args=args, query=query):
            return in_query([expression(arg, scope) for arg in args], *scope.subquery(query))
        case Call():
            return call(expr, [expression(arg, scope) for arg in expr.args])
    raise NotImplementedError(type(expr).__name__)


def literal(value: Value, type_: Type) -> str:
    if value is None:
        return f"CAST(NULL AS {duck_type(type_)})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    text = f"{value:f}" if isinstance(value, Decimal) else repr(value)
    return f"CAST('{text}' AS {duck_type(type_)})"


def in_query(args: Sequence[str], query: str, correlated: bool) -> str:
    if len(args) == 1:
        return f"({args[0]} IN ({query}))"
    if not correlated:
        return f"(({', '.join(args)}) IN ({query}))"
    # DuckDB has no correlated IN over several columns; this is IN's definition.
    columns = [f"y{index}" for index in range(len(args))]
    table = f"({query}) AS candidates({', '.join(columns)})"
    equal = " AND ".join(f"{arg} = candidates.{column}" for arg, column in zip(args, columns, strict=True))
    found = f"EXISTS (SELECT 1 FROM {table} WHERE {equal})"
    unsure = f"EXISTS (SELECT 1 FROM {table} WHERE ({equal}) IS NULL)"
    return f"(CASE WHEN {found} THEN TRUE WHEN {unsure} THEN NULL ELSE FALSE END)"


# ---------------------------------------------------------------- casts


def cast(sql: str, have: Type, want: Type) -> str:
    """CAST: a value that does not fit gives NULL."""
    if have == want:
        return sql
    if have.is_null:
        return f"CAST(NULL AS {duck_type(want)})"
    if have.kind is Kind.VARCHAR:
        return _cast_text(sql, want)
    if want.kind is Kind.VARCHAR:
        return _cast_to_text(sql, have)
    match have.kind, want.kind:
        case ((Kind.DOUBLE | Kind.DECIMAL), (Kind.INTEGER | Kind.BIGINT)):
            return f"TRY_CAST(trunc({sql}) AS {duck_type(want)})"
        case Kind.DECIMAL, Kind.DOUBLE:
            return f"CAST(CAST({sql} AS VARCHAR) AS DOUBLE)"
        case Kind.DOUBLE, Kind.DECIMAL:
            return f"CAST(double_to_decimal({sql}, {want.precision}, {want.scale}) AS {duck_type(want)})"
        case ((Kind.INTEGER | Kind.BIGINT), Kind.BOOLEAN):
            return f"({sql} <> 0)"
    return f"TRY_CAST({sql} AS {duck_type(want)})"


def _cast_text(sql: str, want: Type) -> str:
    if want.kind is Kind.DECIMAL:
        return f"CAST(text_to_decimal({sql}, {want.precision}, {want.scale}) AS {duck_type(want)})"
    return f"CAST(text_to_{want.kind.value.lower()}({sql}) AS {duck_type(want)})"


def _cast_to_text(sql: str, have: Type) -> str:
    if have.kind is Kind.TIMESTAMP:
        return f"timestamp_to_text({sql})"
    if have.kind is Kind.DECIMAL:
        # DuckDB prints DECIMAL(2, 2) as '.50', but DECIMAL(38, 2) as '0.50'.
        return f"CAST(CAST({sql} AS DECIMAL(38, {have.scale})) AS VARCHAR)"
    return f"CAST({sql} AS VARCHAR)"


# ---------------------------------------------------------------- operations


def call(expr: Call, args: list[str]) -> str:
    if expr.op in _INFIX:
        sql = "(" + f" {_INFIX[expr.op]} ".join(args) + ")"
    elif expr.op in _SAME_NAME:
        sql = f"{expr.op}({', '.join(args)})"
    else:
        sql = _OPERATIONS[expr.op](expr, args)
    return f"bounded_text({sql})" if expr.op in _LENGTHENING else sql


#: Their results may be longer than max_text_bytes, and are NULL then.
_LENGTHENING = frozenset({"concat", "replace", "upper", "lower"})


_INFIX = {op: op for op in ("=", "<>", "<", "<=", ">", ">=")} | {
    "and": "AND",
    "or": "OR",
    "like": "LIKE",
    "concat": "||",
    "is_distinct": "IS DISTINCT FROM",
}
_SAME_NAME = frozenset(
    {"coalesce", "greatest", "least", "length", "upper", "lower", "replace", "strpos", "contains"}
    | {"starts_with"}
)


def _integers(op: str, left: str, right: str) -> str:
    return f"TRY_CAST(CAST({left} AS HUGEINT) {op} CAST({right} AS HUGEINT) AS BIGINT)"


def _arithmetic(expr: Call, args: list[str]) -> str:
    left, right = args
    if expr.type.kind is Kind.BIGINT:
        return _integers(expr.op, left, right)
    if expr.type.kind is Kind.DOUBLE:
        return f"({left} {expr.op} {right})"
    # A product adds the scales; a sum needs both sides at the greater one.
    scales = [arg.type.scale if expr.op == "*" else expr.type.scale for arg in expr.args]
    wide = [f"CAST({arg} AS DECIMAL(38, {scale}))" for arg, scale in zip(args, scales, strict=True)]
    return f"TRY_CAST({wide[0]} {expr.op} {wide[1]} AS {duck_type(expr.type)})"


def _divide(expr: Call, args: list[str]) -> str:
    """Integer division truncates toward zero; % has the sign of the dividend; x / 0 and x % 0 are NULL."""
    left, right = args[0], f"NULLIF({args[1]}, 0)"
    if expr.type.kind is Kind.BIGINT:
        return _integers("//" if expr.op == "/" else "%", left, right)
    return f"({left} {expr.op} {right})"


def _negate(expr: Call, args: list[str]) -> str:
    return _integers("-", "0", args[0]) if expr.type.kind is Kind.BIGINT else f"(-{args[0]})"


def _in(_: Call, args: list[str]) -> str:
    return f"({args[0]} IN ({', '.join(args[1:])}))"


def _abs(expr: Call, args: list[str]) -> str:
    if expr.type.kind is Kind.BIGINT:
        return f"TRY_CAST(abs(CAST({args[0]} AS HUGEINT)) AS BIGINT)"
    return f"abs({args[0]})"


def _sign(_: Call, args: list[str]) -> str:
    """NaN stays NaN (DuckDB says 0)."""
    return f"(CASE WHEN isnan({args[0]}) THEN {args[0]} ELSE CAST(sign({args[0]}) AS DOUBLE) END)"


def _whole(expr: Call, args: list[str]) -> str:
    if expr.type.kind is Kind.BIGINT:
        return args[0]
    return f"TRY_CAST({expr.op}({args[0]}) AS {duck_type(expr.type)})"


def _round(expr: Call, args: list[str]) -> str:
    """Half away from zero; on DOUBLE with digits: sign(x) * floor(abs(x) * 10^n + 0.5) / 10^n."""
    digits = constant(expr.args[1]) if len(args) == 2 else 0
    if digits is None:
        return literal(None, expr.type)
    if expr.type.kind is not Kind.DOUBLE:
        return f"TRY_CAST(round_exact(CAST({args[0]} AS VARCHAR), {digits}) AS {duck_type(expr.type)})"
    if len(args) == 1:
        return f"round({args[0]})"
    power = f"CAST('{10.0**digits!r}' AS DOUBLE)"
    scaled = f"floor(abs({args[0]}) * {power} + CAST('0.5' AS DOUBLE))"
    return f"(CAST(sign({args[0]}) AS DOUBLE) * {scaled} / {power})"


def constant(expr: Expr) -> int | None:
    """The value of a constant integer, which may carry a sign or a cast."""
    match expr:
        case Literal(value=int(value)):
            return value
        case Literal(value=None):
            return None
        case Cast(arg=arg):
            return constant(arg)
        case Call(op="neg", args=(arg,)):
            positive = constant(arg)
            return None if positive is None else -positive
    raise NotImplementedError(f"not a constant: {expr}")


def _sqrt(_: Call, args: list[str]) -> str:
    return f"(CASE WHEN {args[0]} < 0 THEN NULL ELSE sqrt({args[0]}) END)"


def _trim(expr: Call, args: list[str]) -> str:
    """Blanks (U+0020) only; DuckDB's one-argument trim takes off other spaces too."""
    return f"{expr.op}({args[0]}, ' ')"


def _substring(_: Call, args: list[str]) -> str:
    """DuckDB counts a negative start from the end of the string."""
    return f"sql_substring{'_from' if len(args) == 2 else ''}({', '.join(args)})"


def _extract(expr: Call, args: list[str]) -> str:
    field = _word(expr.args[0])
    whole, micros = f"CAST({args[1]} AS HUGEINT)", f"((({args[1]}) % 1000000 + 1000000) % 1000000)"
    if field == "microsecond":
        return micros
    if field == "epoch":
        return f"CAST(({whole} - {micros}) // 1000000 AS BIGINT)"
    return f"CAST(date_part('{field}', TRY(make_timestamp({args[1]}))) AS BIGINT)"


def _date_trunc(expr: Call, args: list[str]) -> str:
    return f"epoch_us(TRY(date_trunc('{_word(expr.args[0])}', make_timestamp({args[1]}))))"


def _word(expr: Expr) -> str:
    assert isinstance(expr, Literal)
    assert isinstance(expr.value, str)
    return expr.value.lower()


_OPERATIONS: dict[str, Callable[[Call, list[str]], str]] = {
    "+": _arithmetic,
    "-": _arithmetic,
    "*": _arithmetic,
    "/": _divide,
    "%": _divide,
    "neg": _negate,
    "ts_add": lambda _, args: _integers("+", *args),
    "ts_diff": lambda _, args: _integers("-", *args),
    "is_null": lambda _, args: f"({args[0]} IS NULL)",
    "in": _in,
    "not": lambda _, args: f"(NOT {args[0]})",
    "abs": _abs,
    "sign": _sign,
    "floor": _whole,
    "ceil": _whole,
    "round": _round,
    "sqrt": _sqrt,
    "trim": _trim,
    "ltrim": _trim,
    "rtrim": _trim,
    "substring": _substring,
    "extract": _extract,
    "date_trunc": _date_trunc,
}
