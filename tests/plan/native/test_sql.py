"""Expressions as Spark SQL on a real Spark: on every row the values and failures that the model gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kasen.cql.bind.expr.coerce import castable
from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal, Value, conjuncts, walk
from kasen.cql.functions import EXTRACT_FIELDS, SCALARS, TRUNC_UNITS
from kasen.plan.native.sql import NotNative, condition_failures, failures, sql
from kasen.spark.session import session
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    Kind,
    Type,
    decimal,
    to_arrow,
)
from tests.engine.expr.scalar.model import Count, evaluate
from tests.engine.expr.scalar.support import Row, column, every_row, shown
from tests.engine.expr.scalar.test_cast import SPELLINGS
from tests.random_apps.expressions import COLUMNS, Grower

pytestmark = pytest.mark.spark

TYPES = (BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP, decimal(5, 2), decimal(18, 9), decimal(18, 0))
#: What stays in the kernels, and therefore crosses to Python as plain columns.
KERNEL_ONLY = {"upper", "lower", "concat", "replace"}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session("local[2]")


def calls() -> Iterator[Expr]:
    """Every operation of the closed list on every type it takes."""
    for op, signature in SCALARS.items():
        if op in ("extract", "date_trunc"):
            units = EXTRACT_FIELDS if op == "extract" else TRUNC_UNITS
            result = BIGINT if op == "extract" else TIMESTAMP
            for unit in units:
                yield Call(result, op, (Literal(VARCHAR, unit), column(0, TIMESTAMP)))
        elif op == "ts_add":
            for micros in (0, 1, -86_400_000_000, 2**62, 2**63 - 1):
                yield Call(TIMESTAMP, op, (column(0, TIMESTAMP), Literal(INTERVAL, micros)))
        elif op == "like":
            for pattern in ("", "%", "a%", "%b_", "a\\%b", "日%", "%\n%", "a.b", "_", "/#%'", None):
                yield Call(BOOLEAN, op, (column(0, VARCHAR), Literal(VARCHAR, pattern)))
        elif op == "substring":
            for start in (None, 0, 1, 2, 5, -1, 2**62, -(2**62), 2**63 - 1, -(2**63)):
                args: tuple[Expr, ...] = (column(0, VARCHAR), Literal(BIGINT, start))
                yield Call(VARCHAR, op, args)
                yield Call(VARCHAR, op, (*args, column(1, BIGINT)))
        elif op == "round":
            for type_ in (BIGINT, DOUBLE, decimal(5, 2), decimal(18, 9)):
                yield Call(type_, op, (column(0, type_),))
                for digits in (None, 0, 1, 2, 12, -1, -2, -18, -30):
                    yield Call(type_, op, (column(0, type_), Literal(BIGINT, digits)))
        else:
            yield from _typed(op, signature.least)


def _typed(op: str, count: int) -> Iterator[Expr]:
    counts = {count, 2} if SCALARS[op].most is None else {count}
    for number in sorted(counts):
        for type_ in TYPES:
            typing = SCALARS[op].rule([type_] * number)
            if typing is not None and typing[0] == (type_,) * number:
                yield Call(typing[1], op, tuple(column(index, type_) for index in range(number)))
    if op in ("+", "-", "*"):
        left, right = decimal(5, 2), decimal(9, 7)
        typing = SCALARS[op].rule([left, right])
        assert typing is not None
        yield Call(typing[1], op, (column(0, left), column(1, right)))


def casts() -> Iterator[Expr]:
    for have in TYPES:
        for want in (*TYPES, decimal(18, 18), decimal(2, 2)):
            if have != want and castable(have, want):
                yield Cast(want, column(0, have))


def shapes() -> Iterator[Expr]:
    """What decides which results are needed: only those count as failures."""
    left, right = column(0, BIGINT), column(1, BIGINT)
    quotient = Call(BIGINT, "/", (left, right))
    large = Call(BOOLEAN, ">", (quotient, Literal(BIGINT, 1)))
    nonzero = Call(BOOLEAN, "<>", (right, Literal(BIGINT, 0)))
    yield Call(BOOLEAN, "and", (nonzero, large))
    yield Call(BOOLEAN, "and", (large, nonzero, large))
    yield Call(BOOLEAN, "or", (large, Call(BOOLEAN, "not", (large,)), nonzero))
    yield Call(BIGINT, "coalesce", (left, quotient, Call(BIGINT, "*", (right, right))))
    yield Case(BIGINT, ((nonzero, quotient), (large, left)), Call(BIGINT, "abs", (left,)))


def types_of(expr: Expr) -> tuple[Type, ...]:
    found = {part.index: part.type for part in walk(expr) if isinstance(part, Column)}
    return tuple(found[index] for index in sorted(found))


def rows_for(expr: Expr) -> list[Row]:
    types = types_of(expr)
    rows = every_row(types)
    if isinstance(expr, Cast) and types == (VARCHAR,):
        kind = Kind.INTEGER if expr.type == BIGINT else expr.type.kind
        rows += [(spelling,) for spelling in SPELLINGS.get(kind, [])]
    return rows


def frame(rows: Sequence[Row], types: Sequence[Type]) -> pa.Table:
    """The rows as Spark gets them; NTZ timestamps are plain µs."""
    arrays = [
        pa.array([row[index] for row in rows], pa.int64() if type_ == TIMESTAMP else to_arrow(type_))
        for index, type_ in enumerate(types)
    ]
    arrays = [
        array.cast(pa.timestamp("us")) if type_ == TIMESTAMP else array
        for array, type_ in zip(arrays, types, strict=True)
    ]
    return pa.table(arrays, names=[f"c{index}" for index in range(len(types))])


def names(types: Sequence[Type]) -> list[str]:
    return [f"`c{index}`" for index in range(len(types))]


def on_spark(
    spark: SparkSession, exprs: Sequence[Expr], rows: Sequence[Row], types: Sequence[Type]
) -> list[tuple[list[Value], list[int], list[int]]]:
    """For each expression its values, its failures, and its failures as a filter (if it is a condition)."""
    columns = names(types)
    chosen: list[str] = []
    for number, expr in enumerate(exprs):
        chosen.append(f"{sql(expr, columns)} AS v{number}")
        chosen.append(f"{failures(expr, columns) or '0'} AS f{number}")
        as_filter = condition_failures(expr, columns) if expr.type == BOOLEAN else None
        chosen.append(f"{as_filter or '0'} AS w{number}")
    found = spark.createDataFrame(frame(rows, types)).selectExpr(*chosen).toArrow()
    result = []
    for number, expr in enumerate(exprs):
        values = found.column(f"v{number}")
        if expr.type == TIMESTAMP:
            values = values.cast(pa.timestamp("us")).cast(pa.int64())
        counts = (found.column(f"{letter}{number}").to_pylist() for letter in "fw")
        result.append((values.to_pylist(), *counts))
    return result


def check(spark: SparkSession, exprs: Sequence[Expr], rows: Sequence[Row], types: Sequence[Type]) -> None:
    faults: list[str] = []
    for expr, (values, counts, as_filter) in zip(exprs, on_spark(spark, exprs, rows, types), strict=True):
        wrong = []
        for row, value, count, filtered in zip(rows, values, counts, as_filter, strict=True):
            failed, chain = Count(), Count()
            wanted = evaluate(expr, row, failed)
            if expr.type == BOOLEAN:
                for part in conjuncts(expr):
                    if evaluate(part, row, chain) is not True:
                        break
            if (shown(value), count, filtered) != (shown(wanted), failed.failures, chain.failures):
                expected = f"{wanted!r} {failed.failures} {chain.failures}"
                wrong.append(f"  {row}: {value!r} {count} {filtered}, not {expected}")
        if wrong:
            faults += [str(expr), sql(expr, names(types)), *wrong[:8]]
    assert not faults, "\n".join(faults)


def is_native(expr: Expr) -> bool:
    columns = [f"`c{index}`" for index in range(20)]
    try:
        sql(expr, columns)
        failures(expr, columns)
        if expr.type == BOOLEAN:
            condition_failures(expr, columns)
    except NotNative:
        return False
    return True


@pytest.mark.parametrize("source", [calls, casts, shapes], ids=lambda source: source.__name__)
def test_every_operation_is_exact_on_the_edges_of_its_types(spark: SparkSession, source: object) -> None:
    by_types: dict[tuple[Type, ...], list[Expr]] = {}
    for expr in source():  # type: ignore[operator]
        if is_native(expr):
            by_types.setdefault(types_of(expr), []).append(expr)
    for types, exprs in by_types.items():
        spelled = [expr for expr in exprs if len(rows_for(expr)) != len(every_row(types))]
        plain = [expr for expr in exprs if expr not in spelled]
        if plain:
            check(spark, plain, every_row(types), types)
        for expr in spelled:
            check(spark, [expr], rows_for(expr), types)


def test_only_what_cannot_be_exact_is_left_to_the_kernels() -> None:
    left = {expr.op for expr in calls() if isinstance(expr, Call) and not is_native(expr)}
    assert left == KERNEL_ONLY | {"round"}  # round: only to fewer digits than a BIGINT has
    pairs = {
        (expr.arg.type.kind, expr.type.kind)
        for expr in casts()
        if isinstance(expr, Cast) and not is_native(expr)
    }
    assert pairs == {(Kind.VARCHAR, Kind.DECIMAL), (Kind.TIMESTAMP, Kind.VARCHAR)}


def test_constants_of_every_type(spark: SparkSession) -> None:
    values: list[tuple[Type, Value]] = [
        (VARCHAR, 'it\'s \\n "q" `b`\nline'),
        (BIGINT, -(2**63)),
        (BIGINT, 2**63 - 1),
        (INTEGER, -(2**31)),
        (DOUBLE, 5e-324),
        (DOUBLE, 1e308),
        (DOUBLE, float("nan")),
        (DOUBLE, float("-inf")),
        (decimal(18, 9), Decimal("-123456789.987654321")),
        (TIMESTAMP, -1),
        (TIMESTAMP, 253_402_300_799_999_999),
        (BOOLEAN, False),
        *((type_, None) for type_ in TYPES),
    ]
    check(spark, [Literal(type_, value) for type_, value in values], [(1,)], (BIGINT,))


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(spark: SparkSession, seed: int) -> None:
    grower = Grower(seed + 1000)
    rows = grower.rows(60)
    native = [expr for expr in (grower.expression(3) for _ in range(80)) if is_native(expr)]
    assert len(native) > 30
    check(spark, native, rows, COLUMNS)
