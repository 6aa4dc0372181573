"""What a cell means: the rule that all ways of reading follow."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest

from kasen.connect.layout import Layout
from kasen.connect.values import RefusedRow, from_cell, from_text, read_row
from kasen.engine.batch import double_bits
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Field,
    Schema,
    Type,
    decimal,
)

GOOD: list[tuple[Type, str, object]] = [
    (INTEGER, "5", 5),
    (INTEGER, "+5", 5),
    (INTEGER, "-0", 0),
    (INTEGER, "  5 ", 5),
    (INTEGER, "0000000000000000000000005", 5),
    (INTEGER, "2147483647", 2**31 - 1),
    (INTEGER, "-2147483648", -(2**31)),
    (BIGINT, "9223372036854775807", 2**63 - 1),
    (BIGINT, "-9223372036854775808", -(2**63)),
    (DOUBLE, "1e3", 1000.0),
    (DOUBLE, ".5", 0.5),
    (DOUBLE, "5.", 5.0),
    (DOUBLE, "+1.5E-3", 0.0015),
    (DOUBLE, "-0", 0.0),
    (DOUBLE, "1e400", math.inf),
    (DOUBLE, "nan", math.nan),
    (DOUBLE, "-Infinity", -math.inf),
    (DOUBLE, "0.1000000000000000055511151231257827", 0.1),
    (decimal(5, 2), "2.5", 250),
    (decimal(5, 2), "-.255", -26),
    (decimal(5, 2), "0.254999", 25),
    (decimal(5, 2), "999.99", 99999),
    (decimal(3, 0), ".5", 1),
    (decimal(3, 0), "7.", 7),
    (BOOLEAN, "TRUE", 1),
    (BOOLEAN, "f", 0),
    (BOOLEAN, " 1 ", 1),
    (TIMESTAMP, "1970-01-02", 86_400_000_000),
    (TIMESTAMP, "1970-01-01 00:00:01", 1_000_000),
    (TIMESTAMP, "1970-01-01T00:00:00.5", 500_000),
    (TIMESTAMP, "1969-12-31 23:59:59.999999", -1),
    (TIMESTAMP, "2024-02-29 00:00:00", 1_709_164_800_000_000),
    (VARCHAR, "", ""),
    (VARCHAR, " a ", " a "),
]

BAD: list[tuple[Type, str]] = [
    (INTEGER, ""),
    (INTEGER, " "),
    (INTEGER, "1e3"),
    (INTEGER, "1.0"),
    (INTEGER, "1_000"),
    (INTEGER, "0x10"),
    (INTEGER, "\t5"),
    (INTEGER, "\u0665"),  # a digit, but not one of ours
    (INTEGER, "2147483648"),
    (INTEGER, "- 5"),
    (BIGINT, "9223372036854775808"),
    (BIGINT, "9" * 5000),
    (DOUBLE, "1_0.0"),
    (DOUBLE, "."),
    (DOUBLE, "1e"),
    (DOUBLE, "nan(x)"),
    (DOUBLE, "0x1p3"),
    (decimal(5, 2), "1000"),
    (decimal(5, 2), "999.995"),
    (decimal(5, 2), "1e1"),
    (decimal(5, 2), "."),
    (BOOLEAN, "yes"),
    (BOOLEAN, "01"),
    (TIMESTAMP, "2026-01-01 12:30"),
    (TIMESTAMP, "2026-01-01 12:30:00Z"),
    (TIMESTAMP, "2026-01-01 12:30:00+00:00"),
    (TIMESTAMP, "2026-01-01 12:30:00."),
    (TIMESTAMP, "2026-01-01 12:30:00.1234567"),
    (TIMESTAMP, "2026-02-29"),
    (TIMESTAMP, "0000-01-01"),
    (TIMESTAMP, "2026-01-01 24:00:00"),
    (TIMESTAMP, "2026-01-01 23:59:60"),
    (TIMESTAMP, "2026-1-1"),
    (TIMESTAMP, "5"),
    (VARCHAR, "\ud800"),  # half a character
]


def bits(value: object) -> object:
    return struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else value


@pytest.mark.parametrize(("type_", "text", "value"), GOOD)
def test_a_text_stands_for_a_value(type_: Type, text: str, value: object) -> None:
    assert from_text(text, type_) == bits(value)


@pytest.mark.parametrize(("type_", "text"), BAD)
def test_a_text_that_stands_for_no_value_of_the_type_is_an_error(type_: Type, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        from_text(text, type_)


@pytest.mark.parametrize(
    ("type_", "cell", "value"),
    [
        (INTEGER, None, None),
        (INTEGER, 5, 5),
        (INTEGER, 5.0, 5),
        (INTEGER, Decimal("5.00"), 5),
        (INTEGER, np.int16(5), 5),
        (INTEGER, "5", 5),
        (DOUBLE, 5, 5.0),
        (DOUBLE, Decimal("1e400"), math.inf),
        (DOUBLE, 10**400, math.inf),
        (decimal(5, 2), 2.5, 250),
        (decimal(5, 2), Decimal("2.005"), 201),
        (BOOLEAN, True, 1),
        (TIMESTAMP, 7, 7),
        (TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (TIMESTAMP, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (TIMESTAMP, date(1970, 1, 2), 86_400_000_000),
        (TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000_000),
    ],
)
def test_python_values_are_values_too(type_: Type, cell: object, value: object) -> None:
    assert from_cell(cell, type_) == bits(value)


@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        (INTEGER, 5.5),
        (INTEGER, True),
        (INTEGER, 2**31),
        (INTEGER, math.nan),
        (BIGINT, Decimal("1e999999999")),
        (decimal(5, 2), Decimal("1e999999999")),
        (decimal(5, 2), 1000),
        (BOOLEAN, 1),
        (VARCHAR, 5),
        (VARCHAR, True),
        (TIMESTAMP, 1.5),
        (TIMESTAMP, 2**63),
        (DOUBLE, True),
        (INTEGER, [1]),
        (INTEGER, {"a": 1}),
        (INTEGER, date(2026, 1, 1)),
    ],
)
def test_a_value_of_another_type_is_an_error(type_: Type, cell: object) -> None:
    with pytest.raises(ValueError, match=r".*"):
        from_cell(cell, type_)


def test_doubles_have_the_bits_that_batches_use() -> None:
    texts = ["nan", "-nan", "-0.0", "1.5", "-inf"]
    numbers = np.array([math.nan, math.nan, -0.0, 1.5, -math.inf])
    assert [from_text(text, DOUBLE) for text in texts] == double_bits(numbers).tolist()


LAYOUT = Layout("s", Schema((Field("a", INTEGER), Field("ts", BIGINT))), timestamp=1, diff="op")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"a": "x", "ts": "1"}, "bad value: column a is not an INTEGER: x"),
        ({"a": "1", "ts": "x"}, "bad timestamp: column ts is not a BIGINT: x"),
        ({"a": "1", "ts": None}, "bad timestamp: column ts is NULL"),
        ({"a": "1"}, "bad timestamp: column ts is NULL"),
        ({"a": "1", "ts": "1", "op": "2"}, "bad diff: column op is neither 1 nor -1: 2"),
        ({"a": "1", "ts": "1", "op": None}, "bad diff: column op is neither 1 nor -1: NULL"),
        ({"a": True, "ts": "x"}, "bad value: column a is not an INTEGER: true"),
        ({"a": "y" * 200, "ts": "1"}, f"bad value: column a is not an INTEGER: {'y' * 100}..."),
    ],
)
def test_the_reason_names_the_column_and_the_value(cells: dict[str, object], reason: str) -> None:
    with pytest.raises(RefusedRow) as refused:
        read_row(LAYOUT, cells)
    assert str(refused.value) == reason


def test_a_row_without_its_diff_column_enters() -> None:
    assert read_row(LAYOUT, {"a": None, "ts": "3"}) == ([None, 3], 1)
    assert read_row(LAYOUT, {"a": "1", "ts": "3", "op": "-1"}) == ([1, 3], -1)
