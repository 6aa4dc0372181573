"""Binding: which types come out of expressions, what is cast, and what constants mean."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kasen.cql.expr import (
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    conjuncts,
    walk,
)
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, decimal
from tests.cql.bind.binding import block, refused, types


def item(expression: str) -> Expr:
    """An expression over the columns of s."""
    return block(f"SELECT {expression} FROM s").items[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", "INTEGER"),
        ("a + a", "BIGINT"),
        ("a - b", "BIGINT"),
        ("a * 2", "BIGINT"),
        ("a / 2", "BIGINT"),
        ("a % 2", "BIGINT"),
        ("-a", "BIGINT"),
        ("a + d", "DOUBLE"),
        ("a / d", "DOUBLE"),
        ("e + e", "DECIMAL(11, 2)"),
        ("e + a", "DECIMAL(13, 2)"),
        ("e + b", "DECIMAL(18, 2)"),
        ("e * e", "DECIMAL(18, 4)"),
        ("e * 1.5", "DECIMAL(12, 3)"),
        ("e / 2", "DOUBLE"),
        ("e % 2", "DOUBLE"),
        ("e + d", "DOUBLE"),
        ("-e", "DECIMAL(10, 2)"),
        ("1", "INTEGER"),
        ("2147483647", "INTEGER"),
        ("2147483648", "BIGINT"),
        ("-2147483648", "INTEGER"),
        ("-2147483649", "BIGINT"),
        ("1.50", "DECIMAL(3, 2)"),
        ("0.001", "DECIMAL(3, 3)"),
        ("1.", "DECIMAL(1, 0)"),
        ("1e0", "DOUBLE"),
        ("'x'", "VARCHAR"),
        ("TRUE", "BOOLEAN"),
        ("NULL", "VARCHAR"),
        ("a < d", "BOOLEAN"),
        ("c LIKE 'x'", "BOOLEAN"),
        ("NOT f", "BOOLEAN"),
        ("u - ts", "BIGINT"),
        ("u + INTERVAL '1' DAY", "TIMESTAMP"),
        ("CAST(a AS DECIMAL(5, 1))", "DECIMAL(5, 1)"),
        ("CAST(a AS DECIMAL)", "DECIMAL(18, 3)"),
        ("CAST(a AS DECIMAL(5))", "DECIMAL(5, 0)"),
        ("CASE WHEN f THEN a ELSE b END", "BIGINT"),
        ("CASE WHEN f THEN a ELSE e END", "DECIMAL(12, 2)"),
        ("CASE WHEN f THEN NULL ELSE a END", "INTEGER"),
        ("COALESCE(a, 1.5)", "DECIMAL(11, 1)"),
        ("COALESCE(NULL, a)", "INTEGER"),
        ("GREATEST(a, b, d)", "DOUBLE"),
        ("NULLIF(a, b)", "INTEGER"),
        ("ABS(a)", "BIGINT"),
        ("ABS(e)", "DECIMAL(10, 2)"),
        ("SIGN(a)", "DOUBLE"),
        ("FLOOR(d)", "DOUBLE"),
        ("FLOOR(e)", "DECIMAL(11, 0)"),
        ("ROUND(e, 1)", "DECIMAL(10, 2)"),
        ("ROUND(a)", "BIGINT"),
        ("SQRT(a)", "DOUBLE"),
        ("LENGTH(c)", "BIGINT"),
        ("SUBSTRING(c, a)", "VARCHAR"),
        ("SUBSTRING('123', 1)", "VARCHAR"),
        ("CONTAINS(c, 'x')", "BOOLEAN"),
        ("EXTRACT(YEAR FROM u)", "BIGINT"),
        ("DATE_TRUNC('DAY', u)", "TIMESTAMP"),
        ("COUNT(*)", "BIGINT"),
        ("SUM(a)", "BIGINT"),
        ("SUM(d)", "DOUBLE"),
        ("SUM(e)", "DECIMAL(18, 2)"),
        ("AVG(a)", "DOUBLE"),
        ("MIN(c)", "VARCHAR"),
        ("MAX(u)", "TIMESTAMP"),
        ("STDDEV(e)", "DOUBLE"),
        ("MEDIAN(a)", "DOUBLE"),
        ("PERCENTILE_DISC(a, 0.5)", "INTEGER"),
        ("SUM(a) / COUNT(*)", "BIGINT"),
        ("(SELECT AVG(x) FROM t)", "DOUBLE"),
        ("MIN(NULL)", "VARCHAR"),
        ("SUM(NULL)", "BIGINT"),
        ("COUNT(NULL)", "BIGINT"),
    ],
)
def test_types_of_expressions(expression: str, expected: str) -> None:
    assert types(f"SELECT {expression} FROM s") == [expected]


def test_every_coercion_is_a_cast() -> None:
    a, d = Column(INTEGER, 0, 0, "a"), Column(DOUBLE, 0, 3, "d")
    assert item("a + d") == Call(DOUBLE, "+", (Cast(DOUBLE, a), d))
    assert item("a < d") == Call(BOOLEAN, "<", (Cast(DOUBLE, a), d))
    assert item("COALESCE(a, d)") == Call(DOUBLE, "coalesce", (Cast(DOUBLE, a), d))
    assert item("a + 1") == Call(BIGINT, "+", (Cast(BIGINT, a), Literal(BIGINT, 1)))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT NULL = NULL, NULL IS NULL, NULL IN (NULL), NULL IS DISTINCT FROM NULL FROM s",
        "SELECT COALESCE(NULL, NULL), CASE WHEN NULL THEN NULL END, -NULL, NULL + NULL, NOT NULL FROM s",
        "SELECT COUNT(NULL), MIN(NULL), SUM(NULL), AVG(NULL), MEDIAN(NULL) FROM s GROUP BY NULL",
        "SELECT NULL || NULL, LENGTH(NULL), ABS(NULL), a FROM s WHERE NULL AND a IN (SELECT NULL FROM t)",
    ],
)
def test_no_argument_has_the_type_null(query: str) -> None:
    bound = block(query)
    roots = [*bound.items, *conjuncts(bound.where), *(arg for one in bound.aggregates for arg in one.args)]
    for root in roots:
        assert not any(part.type == NULL for part in walk(root)), root
    assert NULL not in bound.schema.types


@pytest.mark.parametrize(
    ("condition", "constant"),
    [
        ("a = '5'", Literal(INTEGER, 5)),
        ("b < ' 9223372036854775807 '", Literal(BIGINT, 2**63 - 1)),
        ("e = '1.10'", Literal(decimal(3, 2), Decimal("1.10"))),
        ("d = '1e3'", Literal(DOUBLE, 1000.0)),
        ("d > 'inf'", Literal(DOUBLE, float("inf"))),
        ("f = 'True'", Literal(BOOLEAN, True)),
        ("u > '1970-01-01T00:00:01'", Literal(TIMESTAMP, 1_000_000)),
        ("u > '1970-01-02'", Literal(TIMESTAMP, 86_400_000_000)),
        ("u IN ('1970-01-02', '1970-01-01 00:00:00.000001')", Literal(TIMESTAMP, 1)),
        ("c = '5'", Literal(VARCHAR, "5")),
    ],
)
def test_a_quoted_constant_takes_the_type_of_what_stands_beside_it(condition: str, constant: Literal) -> None:
    where = block(f"SELECT a FROM s WHERE {condition}").where
    assert where is not None
    assert constant in list(walk(where))


@pytest.mark.parametrize("text", ["1_000", "\uff11", "0x10", "1.5", "", "nan"])
def test_a_quoted_constant_beside_an_integer_is_digits(text: str) -> None:
    assert refused(f"SELECT a FROM s WHERE a = '{text}'").fault == f"'{text}' is not a BIGINT"


@pytest.mark.parametrize("text", ["2026-01-01 10:00", "2026-1-1", "2026-02-30", "01/02/2026", "2026-01-01Z"])
def test_a_quoted_timestamp_is_iso_with_seconds(text: str) -> None:
    assert refused(f"SELECT a FROM s WHERE u = '{text}'").fault == f"'{text}' is not a TIMESTAMP"


def test_numbers_keep_their_value_to_the_limits() -> None:
    assert item("-9223372036854775808") == Literal(BIGINT, -(2**63))
    assert item("9223372036854775807") == Literal(BIGINT, 2**63 - 1)
    assert item("- -2147483648") == Call(BIGINT, "neg", (Literal(BIGINT, -(2**31)),))
    assert item("0.123456789012345678") == Literal(decimal(18, 18), Decimal("0.123456789012345678"))
    assert item("-123456789012345678.") == Literal(decimal(18, 0), Decimal(-123456789012345678))
    assert item("00000000000000000000007") == Literal(INTEGER, 7)
    assert item("1e308") == Literal(DOUBLE, 1e308)
    assert item("-1e-400") == Literal(DOUBLE, -0.0)


@pytest.mark.parametrize(
    "number",
    ["9223372036854775808", "-9223372036854775809", "1" * 5000, "0.1234567890123456789", "1e309", "-1e309"],
)
def test_numbers_beyond_the_limits_are_refused(number: str) -> None:
    assert "the number" in refused(f"SELECT {number} FROM s").fault
