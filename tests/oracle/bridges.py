"""Bridges: what DuckDB means differently from CQL, as Python functions that DuckDB calls.

Comparisons, joins, grouping, sets, CASE, IN and EXISTS are DuckDB's own. What is here is what DuckDB
rounds, reads or prints in another way. Every function answers with text (or None for NULL), which the
SQL casts to the wanted type: DuckDB takes a NaN that a Python function returns for NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import wraps

import duckdb
from duckdb.func import FunctionNullHandling

from kasen.cql.expr import Aggregate, Value
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, Kind, Type, decimal
from tests.oracle import values

Number = float | str
Numbers = Sequence[Number | None]


# ---------------------------------------------------------------- exact aggregates
#
# The arguments come as one list a group: DOUBLEs as they are, integers and DECIMALs as text, so that
# a Fraction holds every one of them exactly. Each result is rounded once.


def exact_sum(numbers: Numbers) -> float | None:
    """SUM(DOUBLE): the exact sum rounded once; any NaN or inf decides as in IEEE addition."""
    present = _present(numbers)
    if not present:
        return None
    return _special_sum(present) if _special(present) else _rounded(sum(map(Fraction, present), Fraction()))


def exact_avg(numbers: Numbers) -> float | None:
    """AVG: the exact mean rounded once; NaN and inf as SUM has them."""
    present = _present(numbers)
    if not present:
        return None
    if _special(present):
        return _special_sum(present)
    return _rounded(sum(map(Fraction, present), Fraction()) / len(present))


def variance(numbers: Numbers, lost: int) -> float | None:
    """The exact variance rounded once; `lost` degrees of freedom (1 = sample, 0 = population)."""
    present = _present(numbers)
    if len(present) <= lost:
        return None
    if _special(present):
        return math.nan
    exact = [Fraction(number) for number in present]
    mean = sum(exact, Fraction()) / len(exact)
    return _rounded(sum(((x - mean) ** 2 for x in exact), Fraction()) / (len(exact) - lost))


def var_samp(numbers: Numbers) -> float | None:
    return variance(numbers, 1)


def var_pop(numbers: Numbers) -> float | None:
    return variance(numbers, 0)


def stddev_samp(numbers: Numbers) -> float | None:
    """The root of the rounded variance."""
    return _root(variance(numbers, 1))


def stddev_pop(numbers: Numbers) -> float | None:
    return _root(variance(numbers, 0))


def percentile_cont(in_order: Sequence[float], p: float) -> float | None:
    """lo + (hi - lo) * fraction, at rank p * (n - 1) of the values in ascending order."""
    if not in_order:
        return None
    rank = p * (len(in_order) - 1)
    below = math.floor(rank)
    low, high = in_order[below], in_order[math.ceil(rank)]
    # Between equal values nothing is interpolated (inf - inf would be NaN).
    return low if low == high or rank == below else low + (high - low) * (rank - below)


def percentile_disc_rank(count: int, p: float) -> int | None:
    """The least 1-based rank k with k / n >= p; p = 0 asks for the minimum."""
    return next((rank for rank in range(1, count + 1) if rank / count >= p), None)


def _present(numbers: Numbers) -> list[Number]:
    return [number for number in numbers if number is not None]


def _special(numbers: Sequence[Number]) -> bool:
    return any(isinstance(number, float) and not math.isfinite(number) for number in numbers)


def _special_sum(numbers: Sequence[Number]) -> float:
    """inf + 1 = inf, inf + -inf = NaN, NaN + 1 = NaN."""
    return sum(number for number in numbers if isinstance(number, float) and not math.isfinite(number))


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _root(number: float | None) -> float | None:
    return None if number is None else math.sqrt(number)


# ---------------------------------------------------------------- casts


def from_text(type_: Type) -> Callable[[str], Value]:
    """CAST(VARCHAR AS type): the csv rules; a text that does not fit gives NULL."""

    def cast(text: str) -> Value:
        try:
            return values.parse(text, type_)
        except ValueError:
            return None

    return cast


def text_to_decimal(text: str, precision: int, scale: int) -> Value:
    """CAST(VARCHAR AS DECIMAL): plain digits, rounded half away from zero, NULL beyond p digits."""
    return from_text(decimal(precision, scale))(text)


def double_to_decimal(number: float, precision: int, scale: int) -> Decimal | None:
    """CAST(DOUBLE AS DECIMAL(p, s)): x * 10^s in double arithmetic, then half away from zero."""
    scaled = number * 10.0**scale
    if not math.isfinite(scaled):
        return None
    unscaled = values.half_away(scaled)
    return Decimal(unscaled).scaleb(-scale, values.EXACT) if abs(unscaled) < 10**precision else None


def timestamp_to_text(micros: int) -> str | None:
    """CAST(TIMESTAMP AS VARCHAR): as csv has it."""
    try:
        return values.timestamp_text(micros)
    except OverflowError:
        return None


# ---------------------------------------------------------------- functions


def substring(string: str, start: int, length: int) -> str:
    """SQL's substring: characters start .. start+length-1, of which only 1 .. n exist."""
    end = start + max(length, 0)
    return string[max(start, 1) - 1 : max(end, 1) - 1]


def substring_from(string: str, start: int) -> str:
    return string[max(start, 1) - 1 :]


def round_exact(number: str, digits: int) -> Decimal:
    """round(x, n) of an integer or a DECIMAL: halves away from zero."""
    return Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, values.EXACT)


# ---------------------------------------------------------------- the length of texts

#: Of the app that is running.
_most_bytes = values.DEFAULT_MAX_TEXT_BYTES


def limit_texts(most_bytes: int) -> None:
    global _most_bytes
    _most_bytes = most_bytes


def bounded_text(text: str) -> str | None:
    """A longer text is NULL."""
    return text if len(text.encode()) <= _most_bytes else None


# ---------------------------------------------------------------- users' aggregates

_users: dict[str, Aggregate] = {}


def know_user(one: Aggregate) -> str:
    """Notes an aggregate that a statement will call, and gives it a name that is its own."""
    name = f"{one.function} {id(one.user)}"
    _users[name] = one
    return name


def user_aggregate(name: str, columns: list[list[str | None]]) -> object:
    """All rows without NULLs added, one after the other; NULL if anything goes wrong."""
    one = _users[name]
    assert one.user is not None
    code = one.user.implementation()
    try:
        state = code.init()
        for row in zip(*columns, strict=True):
            if None not in row:
                given = [user_value(str(text), arg.type) for text, arg in zip(row, one.args, strict=True)]
                state = code.add(state, *given)
        answer = code.result(state)
    except Exception:
        return None
    if isinstance(answer, str):
        answer = bounded_text(answer)
    return answer if answer is None or isinstance(answer, _PYTHON[one.type.kind]) else None


_PYTHON: dict[Kind, type | tuple[type, ...]] = {
    Kind.BIGINT: int,
    Kind.INTEGER: int,
    Kind.DOUBLE: (int, float),
    Kind.DECIMAL: (int, Decimal),
    Kind.VARCHAR: str,
}


def user_value(text: str, type_: Type) -> object:
    match type_.kind:
        case Kind.DOUBLE:
            return float(text)
        case Kind.DECIMAL:
            return Decimal(text)
        case Kind.VARCHAR:
            return text
    return int(text)


# ---------------------------------------------------------------- registration

_AGGREGATES: dict[str, Callable[[Numbers], float | None]] = {
    "exact_sum": exact_sum,
    "exact_avg": exact_avg,
    "exact_var_samp": var_samp,
    "exact_var_pop": var_pop,
    "exact_stddev_samp": stddev_samp,
    "exact_stddev_pop": stddev_pop,
}

_FUNCTIONS: dict[str, tuple[Callable[..., object], list[str]]] = {
    "user_aggregate": (user_aggregate, ["VARCHAR", "VARCHAR[][]"]),
    "bounded_text": (bounded_text, ["VARCHAR"]),
    "percentile_cont_of": (percentile_cont, ["DOUBLE[]", "DOUBLE"]),
    "percentile_disc_rank": (percentile_disc_rank, ["BIGINT", "DOUBLE"]),
    "text_to_integer": (from_text(INTEGER), ["VARCHAR"]),
    "text_to_bigint": (from_text(BIGINT), ["VARCHAR"]),
    "text_to_double": (from_text(DOUBLE), ["VARCHAR"]),
    "text_to_boolean": (from_text(BOOLEAN), ["VARCHAR"]),
    "text_to_timestamp": (from_text(TIMESTAMP), ["VARCHAR"]),
    "text_to_decimal": (text_to_decimal, ["VARCHAR", "BIGINT", "BIGINT"]),
    "double_to_decimal": (double_to_decimal, ["DOUBLE", "BIGINT", "BIGINT"]),
    "timestamp_to_text": (timestamp_to_text, ["BIGINT"]),
    "sql_substring": (substring, ["VARCHAR", "BIGINT", "BIGINT"]),
    "sql_substring_from": (substring_from, ["VARCHAR", "BIGINT"]),
    "round_exact": (round_exact, ["VARCHAR", "BIGINT"]),
}


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB that knows the bridges. One thread: the tables are tiny."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, aggregate in _AGGREGATES.items():
        _register(connection, f"{name}_double", aggregate, ["DOUBLE[]"])
        _register(connection, f"{name}_text", aggregate, ["VARCHAR[]"])
    for name, (function, params) in _FUNCTIONS.items():
        _register(connection, name, function, params)
    return connection


def _register(
    connection: duckdb.DuckDBPyConnection, name: str, function: Callable[..., object], params: list[str]
) -> None:
    @wraps(function)  # DuckDB counts the parameters
    def as_text(*args: object) -> str | None:
        """NULL in any argument gives NULL; every answer travels as text."""
        if any(arg is None for arg in args):
            return None
        answer = function(*args)
        if answer is None:
            return None
        return f"{answer:f}" if isinstance(answer, Decimal) else str(answer)

    connection.create_function(
        name, as_text, [*params], "VARCHAR", null_handling=FunctionNullHandling.SPECIAL
    )
