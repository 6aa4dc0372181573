"""All casts on the edges of their types: engine, model and DuckDB agree."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from kasen.cql.bind.expr.coerce import castable
from kasen.cql.expr import Cast, Literal, Value
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, Kind, Type, decimal
from tests.engine.expr.scalar.support import Engine, Row, check, column, every_row

DECIMALS = [
    decimal(5, 2),
    decimal(18, 0),
    decimal(18, 18),
    decimal(18, 9),
    decimal(2, 2),
    decimal(1, 0),
    decimal(9, 3),
]
TYPES = [BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP, *DECIMALS]
CASTS = [(have, want) for have in TYPES for want in TYPES if castable(have, want)]

# fmt: off
SPELLINGS: dict[Kind, list[str]] = {
    Kind.INTEGER: [
        "0", "-0", "+7", " 12 ", "12 3", "\t1", "1\n", "2147483647", "2147483648", "-2147483648",
        "-2147483649", "1.0", "1e3", "", " ", "+", "-", "--1", "0x1", "1_0", "\u0663", "null", "0" * 40 + "7",
        "9" * 5000, "9223372036854775807", "9223372036854775808", "-9223372036854775808",
        "-9223372036854775809",
    ],
    Kind.DECIMAL: [
        "0", "-0.00", ".5", "5.", ".", "-.5", "+1.25", " 1.25 ", "1.255", "-1.255", "1.2549999999999999999",
        "999.99", "999.994", "999.995", "-999.995", "0.994", "0.995", "1e2", "1,5", "nan", "inf", "", "1 2",
        "00000000001.5", "999999999999999999", "1000000000000000000", "0.123456789012345678",
        "0.1234567890123456785", "1." + "9" * 900, "123456789012345.678", "0.000000000000000000499",
        "0.0000000000000000005", "\u0663.\u0665",
    ],
    Kind.DOUBLE: [
        "0", "-0", "1.5", " 1.5 ", "1e3", "1E-3", ".5e1", "5.", "1_0", "nan", "-NaN", "inf", "-Infinity",
        "+inf", "infinit", "1e999", "-1e999", "1e-999", "5e-324", "0.1", "2.2250738585072011e-308",
        "9007199254740993", "0x1p3", "e5", "", "1e", "1 e3", "\uff11",
    ],
    Kind.BOOLEAN: ["true", "FALSE", "t", "F", "1", "0", " True ", "yes", "no", "", "tr", "2", "01"],
    Kind.TIMESTAMP: [
        "2026-01-01 00:00:00", "2026-01-01T23:59:59.5", "2026-01-01 00:00:00.123456",
        "2026-01-01 00:00:00.1234567", "2026-01-01", " 2026-01-01 ", "2026-01-01 00:00", "2026-02-29",
        "2024-02-29", "1969-12-31 23:59:59.999999", "0001-01-01", "0000-01-01", "9999-12-31 23:59:59.999999",
        "10000-01-01", "2026-13-01", "2026-01-01 24:00:00", "2026-01-01 00:60:00", "2026-01-01 00:00:60",
        "2026-1-1", "2026-01-01  00:00:00", "2026-01-01 00:00:00.", "2026-01-01 00:00:00Z", "", "now",
        "\u0662026-01-01",
    ],
}
# fmt: on


@pytest.mark.parametrize(("have", "want"), CASTS, ids=str)
def test_every_cast(have: Type, want: Type) -> None:
    rows = every_row((have,))
    kind = Kind.INTEGER if want == BIGINT else want.kind
    if have == VARCHAR:
        rows += [(spelling,) for spelling in SPELLINGS.get(kind, [])]
    if have == TIMESTAMP:
        rows += [(-62_135_596_800_000_001,), (253_402_300_800_000_000,), (2**63 - 1,), (-(2**63),)]
    check(Cast(want, column(0, have)), (have,), rows)


@pytest.mark.parametrize("want", TYPES, ids=str)
def test_null_casts_to_anything(want: Type) -> None:
    check(Cast(want, Literal(NULL, None)), (BIGINT,), every_row((BIGINT,)))


@pytest.mark.parametrize("scale", [0, 1, 6, 17, 18])
def test_a_decimal_becomes_the_nearest_double(scale: int) -> None:
    """Also where a division of two doubles would round twice."""
    pick = random.Random(scale)
    type_ = decimal(18, scale)
    numbers = [pick.randint(2**53, 10**18 - 1) for _ in range(3000)]
    numbers += [pick.getrandbits(pick.randint(1, 59)) for _ in range(1000)]
    # Halves: numbers whose quotient lies exactly between two doubles.
    numbers += [
        ((2**53 + odd) * 10**scale) // 2 for odd in (1, 3, 5) if (2**53 + odd) * 10**scale < 2 * 10**18
    ]
    rows: list[Row] = [(Decimal(sign * number).scaleb(-scale),) for number in numbers for sign in (1, -1)]
    check(Cast(DOUBLE, column(0, type_)), (type_,), rows)


@pytest.mark.parametrize("want", DECIMALS, ids=str)
def test_doubles_round_half_away_from_zero(want: Type) -> None:
    pick = random.Random(str(want))
    numbers = [pick.uniform(-1, 1) * 10.0 ** pick.randint(-20, 18) for _ in range(2000)]
    numbers += [(pick.randint(-(10**4), 10**4) + 0.5) / 10.0**want.scale for _ in range(500)]
    rows: list[Row] = [(number,) for number in numbers]
    check(Cast(want, column(0, DOUBLE)), (DOUBLE,), rows)


@pytest.mark.parametrize(
    ("value", "have", "want", "expected"),
    [
        (-2.9, DOUBLE, BIGINT, "-2"),
        (Decimal("-0.05"), decimal(5, 2), VARCHAR, "'-0.05'"),
        (Decimal("1.25"), decimal(5, 2), decimal(4, 1), "Decimal('1.3')"),
        (-1, TIMESTAMP, VARCHAR, "'1969-12-31 23:59:59.999999'"),
        (True, BOOLEAN, VARCHAR, "'true'"),
        (-7, BIGINT, BOOLEAN, "True"),
        (10**18, BIGINT, decimal(18, 0), "None"),
    ],
)
def test_the_definition(value: Value, have: Type, want: Type, expected: str) -> None:
    engine = Engine()
    found = engine.run(Cast(want, column(0, have)), engine.batch([(value,)], (have,)))
    assert repr(found[0]) == expected
    assert engine.failures.count == (expected == "None")
