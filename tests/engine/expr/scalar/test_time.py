"""EXTRACT and DATE_TRUNC: engine, model and DuckDB agree, also before 1970."""

from __future__ import annotations

import random

import pytest

from kasen.cql.expr import Call, Literal, Value
from kasen.cql.functions import EXTRACT_FIELDS, TRUNC_UNITS
from kasen.types import BIGINT, TIMESTAMP, VARCHAR
from tests.engine.expr.scalar.support import INT_MAX, INT_MIN, Engine, Row, check, column, every_row

# Up to the years 290000 before and after: DuckDB's own limits.
FAR = 9_100_000_000_000_000_000


def moments() -> list[Row]:
    pick = random.Random(7)
    spread = [pick.randint(-(10**power), 10**power) for power in range(6, 19) for _ in range(60)]
    return [*every_row((TIMESTAMP,)), *((moment,) for moment in spread), (FAR,), (-FAR,)]


@pytest.mark.parametrize("field", EXTRACT_FIELDS)
def test_parts_of_timestamps(field: str) -> None:
    call = Call(BIGINT, "extract", (Literal(VARCHAR, field), column(0, TIMESTAMP)))
    check(call, (TIMESTAMP,), moments())
    check(call, (TIMESTAMP,), [(INT_MAX,), (INT_MIN,)], by_duck=False)


@pytest.mark.parametrize("unit", TRUNC_UNITS)
def test_beginnings_of_units(unit: str) -> None:
    call = Call(TIMESTAMP, "date_trunc", (Literal(VARCHAR, unit), column(0, TIMESTAMP)))
    check(call, (TIMESTAMP,), moments())
    rows: list[Row] = [(INT_MAX,), (INT_MIN,), (INT_MIN + 10**6,), (INT_MIN + 10**13,), (INT_MIN + 10**14,)]
    check(call, (TIMESTAMP,), rows, by_duck=False)


@pytest.mark.parametrize(
    ("field", "micros", "expected"),
    [
        ("year", -1, 1969),
        ("year", -62_167_219_200_000_001, -1),
        ("month", 951_782_400_000_000, 2),
        ("day", 951_782_400_000_000, 29),
        ("hour", -1, 23),
        ("second", -1, 59),
        ("microsecond", -1, 999_999),
        ("dow", 0, 4),
        ("dow", -5 * 86_400_000_000, 6),
        ("epoch", -1, -1),
    ],
)
def test_the_calendar_counts_forward_before_1970(field: str, micros: Value, expected: int) -> None:
    engine = Engine()
    call = Call(BIGINT, "extract", (Literal(VARCHAR, field), column(0, TIMESTAMP)))
    assert engine.run(call, engine.batch([(micros,)], (TIMESTAMP,))) == [expected]
