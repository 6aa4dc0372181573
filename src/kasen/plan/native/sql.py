"""Bound expressions as Spark SQL text, exactly equal to what Kasen's kernels compute.

Spark's own functions differ from CQL's in corners (division by zero raises, SUBSTRING counts from the end,
LIKE has an escape character), so each operation is written with the `try_` functions and a guard where one
is needed. Timestamps are TIMESTAMP_NTZ columns in a session whose zone is UTC. What cannot be made equal
raises NotNative with the reason, and is left to the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal, conjuncts
from kasen.plan.lower.expr.calls import FALLIBLE
from kasen.plan.native.sql_cast import always_fits, cast
from kasen.plan.native.sql_text import (
    NotNative,
    double,
    micros,
    minus,
    null,
    round_half_away,
    spark_name,
    text,
    timestamp,
    whole_double,
)
from kasen.types import Kind

__all__ = ["NotNative", "condition_failures", "failures", "sql"]

#: Guards repeat their arguments, so deep expressions become long texts; the JVM does not compile those.
_LONGEST = 3000
_EXACT_ROUND = 18  # 10^18 is the greatest power of ten that a BIGINT holds


def sql(expr: Expr, columns: Sequence[str]) -> str:
    """The expression over columns that are called so, by index."""
    return _short(_text(expr, columns))


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        raise NotNative("the expression is long: Spark would compile it slowly, and not well")
    return text


def _text(expr: Expr, columns: Sequence[str]) -> str:
    match expr:
        case Column(index=index):
            return columns[index]
        case Literal():
            return _literal(expr)
        case Cast(type=type_, arg=arg):
            return cast(sql(arg, columns), arg.type, type_)
        case Case(branches=branches, otherwise=otherwise):
            parts = " ".join(
                f"WHEN {sql(test, columns)} THEN {sql(value, columns)}" for test, value in branches
            )
            return f"(CASE {parts} ELSE {sql(otherwise, columns)} END)"
        case Call(op=op):
            if op in _SPECIAL:
                return _SPECIAL[op](expr, columns)
            return _call(expr, [sql(arg, columns) for arg in expr.args])
    raise NotNative(f"{type(expr).__name__} has no Spark form")


# ---------------------------------------------------------------- failures


def failures(expr: Expr, columns: Sequence[str]) -> str | None:
    """How many operations of the expression fail for a row, as SQL; None if none ever does.

    Mirrors operators.failures: an operation counts only if its result is needed.
    """
    match expr:
        case Cast(arg=arg) if always_fits(arg.type, expr.type):
            return failures(arg, columns)
        case Cast(arg=arg):
            return _sum(failures(arg, columns), _fails(sql(expr, columns), [sql(arg, columns)]))
        case Case(branches=branches, otherwise=otherwise):
            found = failures(otherwise, columns)
            for test, value in reversed(branches):
                chosen = failures(value, columns)
                if chosen is not None or found is not None:
                    found = f"IF({sql(test, columns)}, {chosen or '0'}, {found or '0'})"
                found = _sum(failures(test, columns), found)
            return found
        case Call(op="and" | "or" | "coalesce" as op, args=args):
            return _lazy_failures(_STILL_OPEN[op], op, args, columns)
        case Call(args=args):
            own = None
            if expr.op in FALLIBLE:
                own = _fails(sql(expr, columns), [sql(arg, columns) for arg in _operands(expr)])
            return _sum(*(failures(arg, columns) for arg in args), own)
    return None


def condition_failures(condition: Expr, columns: Sequence[str]) -> str | None:
    """As `failures`, for a filter: a top-level AND is a chain of filters."""
    parts = conjuncts(condition)
    found: str | None = None
    for part in reversed(parts):
        if found is not None:
            found = f"IF({sql(part, columns)}, {found}, 0)"
        found = _sum(failures(part, columns), found)
    return found


def _operands(call: Call) -> tuple[Expr, ...]:
    return call.args[1:] if call.op == "date_trunc" else call.args


def _fails(result: str, args: Sequence[str]) -> str:
    there = " AND ".join(f"{arg} IS NOT NULL" for arg in args)
    return f"IF({result} IS NULL AND {there}, 1, 0)"


def _sum(*counts: str | None) -> str | None:
    there = [count for count in counts if count is not None]
    if not there:
        return None
    return _short(there[0] if len(there) == 1 else f"({' + '.join(there)})")


#: For which value so far the next argument still matters.
_STILL_OPEN: dict[str, Callable[[str], str]] = {
    "and": lambda so_far: f"coalesce({so_far}, TRUE)",
    "or": lambda so_far: f"NOT coalesce({so_far}, FALSE)",
    "coalesce": lambda so_far: f"{so_far} IS NULL",
}


def _lazy_failures(
    still_open: Callable[[str], str], op: str, args: tuple[Expr, ...], columns: Sequence[str]
) -> str | None:
    found: str | None = None
    for count in range(len(args) - 1, -1, -1):
        if found is not None:
            so_far = [sql(arg, columns) for arg in args[: count + 1]]
            joined = f"coalesce({', '.join(so_far)})" if op == "coalesce" else f"({f' {op} '.join(so_far)})"
            found = f"IF({still_open(joined)}, {found}, 0)"
        found = _sum(failures(args[count], columns), found)
    return found


# ---------------------------------------------------------------- constants


def _literal(expr: Literal) -> str:
    value, type_ = expr.value, expr.type
    if value is None:
        return null(type_)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Decimal):
        return f"CAST({text(format(value, 'f'))} AS {spark_name(type_)})"
    if isinstance(value, float):
        return double(value)
    if type_.kind is Kind.TIMESTAMP:
        return timestamp(_bigint(value))
    return f"CAST({value} AS INT)" if type_.kind is Kind.INTEGER else _bigint(value)


def _bigint(value: int) -> str:
    # The least BIGINT has no literal: its digits alone are too great a number.
    return f"{value}L" if value > -(2**63) else f"({value + 1}L - 1L)"


# ---------------------------------------------------------------- operations


def _call(call: Call, args: list[str]) -> str:
    kind = call.type.kind
    match call.op:
        case "+" | "-" | "*":
            return _arithmetic(call, *args)
        case "/":
            return _divide(kind, *args)
        case "%":
            return f"({args[0]} % nullif({args[1]}, {'0D' if kind is Kind.DOUBLE else '0L'}))"
        case "neg":
            return minus(args[0], call.type)
        case "abs":
            return f"IF({args[0]} < 0, {minus(args[0], call.type)}, {args[0]})"
        case "sign":
            return f"signum({args[0]})"
        case "sqrt":
            return f"IF({args[0]} < 0D, NULL, sqrt({args[0]}))"
        case "floor" | "ceil":
            return _whole(call, args[0])
        case "ts_add":
            return timestamp(f"try_add({micros(args[0])}, {args[1]})")
        case "ts_diff":
            return f"try_subtract({micros(args[0])}, {micros(args[1])})"
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return f"({args[0]} {call.op} {args[1]})"
        case "is_distinct":
            return f"(NOT ({args[0]} <=> {args[1]}))"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "and" | "or":
            return f"({f' {call.op.upper()} '.join(args)})"
        case "not":
            return f"(NOT {args[0]})"
        case "coalesce":
            return f"coalesce({', '.join(args)})"
        case "greatest" | "least":
            return args[0] if len(args) == 1 else f"{call.op}({', '.join(args)})"
        case "length":
            return f"CAST(char_length({args[0]}) AS BIGINT)"
        case "strpos":
            return f"CAST(instr({args[0]}, {args[1]}) AS BIGINT)"
        case "starts_with":
            return f"startswith({args[0]}, {args[1]})"
        case "trim" | "ltrim" | "rtrim" | "contains":
            return f"{call.op}({', '.join(args)})"
        case "concat" | "replace":
            raise NotNative(f"{call.op.upper()}: Spark has no limit to the length of a text")
    raise NotNative(f"{call.op} has no Spark form that is exactly equal")


def _arithmetic(call: Call, left: str, right: str) -> str:
    if call.type.kind is Kind.DOUBLE:
        return f"({left} {call.op} {right})"
    if call.type.kind is Kind.DECIMAL:
        # Spark's result has digits enough for any of ours; only then is it cut to the type.
        return f"try_cast(({left} {call.op} {right}) AS {spark_name(call.type)})"
    name = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}[call.op]
    return f"{name}({left}, {right})"


def _divide(kind: Kind, left: str, right: str) -> str:
    if kind is Kind.DOUBLE:
        return f"({left} / nullif({right}, 0D))"
    # The least BIGINT has no opposite.
    return f"IF({right} = -1L, try_subtract(0L, {left}), {left} div nullif({right}, 0L))"


def _whole(call: Call, arg: str) -> str:
    if call.type.is_integer:
        return arg
    if call.type.kind is Kind.DOUBLE:
        return whole_double(call.op, arg)
    return f"try_cast({call.op}({arg}) AS {spark_name(call.type)})"


def _round(call: Call, columns: Sequence[str]) -> str:
    arg, digits, type_ = sql(call.args[0], columns), 0, call.type
    if len(call.args) == 2:
        given = call.args[1]
        if not isinstance(given, Literal):
            raise NotNative("ROUND to a computed number of digits")
        if given.value is None:
            return null(type_)
        assert isinstance(given.value, int)
        digits = given.value
    if type_.kind is Kind.DOUBLE:
        if len(call.args) == 1:
            return round_half_away(arg)
        power = double(10.0**digits)
        return f"(signum({arg}) * {whole_double('floor', f'(abs({arg}) * {power} + 0.5D)')} / {power})"
    if digits >= type_.scale:
        return arg
    if digits < -_EXACT_ROUND:
        raise NotNative("ROUND beyond the digits of a BIGINT")
    if type_.kind is Kind.DECIMAL:
        return f"try_cast(round({arg}, {digits}) AS {spark_name(type_)})"
    unit = f"{10**-digits}L"
    up = f"IF(abs({arg} % {unit}) >= {10**-digits // 2}L, CAST(signum({arg}) AS BIGINT), 0L)"
    return f"try_multiply({arg} div {unit} + {up}, {unit})"


def _substring(call: Call, columns: Sequence[str]) -> str:
    """SQL's: positions before the first character count, but hold none."""
    subject, start, *rest = (sql(arg, columns) for arg in call.args)
    first = f"CAST(least(greatest({start}, 1L), {2**31 - 1}L) AS INT)"
    # NULLs are told apart first: least and greatest would look past them.
    if not rest:
        return f"IF({start} IS NULL, NULL, substring({subject}, {first}))"
    # Written so that no sum overflows: a length of at least 1 meets a start of at most 0.
    length = f"IF({start} < 1L, IF({rest[0]} < 1L, 0L, {rest[0]} - 1L + {start}), {rest[0]})"
    length = f"CAST(least(greatest({length}, 0L), {2**31 - 1}L) AS INT)"
    return f"IF({start} IS NULL OR {rest[0]} IS NULL, NULL, substring({subject}, {first}, {length}))"


def _like(call: Call, columns: Sequence[str]) -> str:
    pattern = call.args[1]
    if not isinstance(pattern, Literal):
        raise NotNative("LIKE with a computed pattern: Spark's has an escape character")
    if pattern.value is None:
        return null(call.type)
    assert isinstance(pattern.value, str)
    # An escape character that does not occur escapes nothing.
    escape = next(char for char in "\\/#~^!" + "".join(map(chr, range(1, 32))) if char not in pattern.value)
    return f"({sql(call.args[0], columns)} LIKE {text(pattern.value)} ESCAPE {text(escape)})"


_MICROS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}


def _word(expr: Expr) -> str:
    assert isinstance(expr, Literal)
    assert isinstance(expr.value, str)
    return expr.value.lower()


def _extract(call: Call, columns: Sequence[str]) -> str:
    field, moment = _word(call.args[0]), sql(call.args[1], columns)
    match field:
        case "microsecond":
            return f"pmod({micros(moment)}, 1000000L)"
        case "epoch":
            return f"unix_seconds(CAST({moment} AS TIMESTAMP))"
        case "dow":
            return f"CAST(dayofweek({moment}) - 1 AS BIGINT)"
    return f"CAST({field}({moment}) AS BIGINT)"


def _date_trunc(call: Call, columns: Sequence[str]) -> str:
    unit, moment = _word(call.args[0]), sql(call.args[1], columns)
    if unit in _MICROS:
        held = micros(moment)
        return timestamp(f"try_subtract({held}, pmod({held}, {_MICROS[unit]}L))")
    return f"CAST(date_trunc({text(unit)}, CAST({moment} AS TIMESTAMP)) AS TIMESTAMP_NTZ)"


_SPECIAL: dict[str, Callable[[Call, Sequence[str]], str]] = {
    "round": _round,
    "substring": _substring,
    "like": _like,
    "extract": _extract,
    "date_trunc": _date_trunc,
}
