"""Each bridge between DuckDB's SQL and CQL's, on values where the two part."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.expr import Value
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Type, decimal
from tests.oracle import bridges, run_app
from tests.oracle.values import canonical

COLUMNS = "ts BIGINT, i INTEGER, b BIGINT, d DOUBLE, n DECIMAL(5, 2), v VARCHAR, t TIMESTAMP, f BOOLEAN"
NAN, INF = math.nan, math.inf


def evaluate(items: str, rows: list[dict[str, object]], rest: str = "") -> list[tuple[Value, ...]]:
    """`SELECT items FROM s rest`, over one instant that holds the rows."""
    cql = f"""REGISTER STREAM s ({COLUMNS}) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY q AS SELECT {items} FROM s {rest}"""
    return [
        row[4:]
        for row in run_app(bind_text(cql), given={"s": [{"ts": 1} | row for row in rows]}).queries["q"]
    ]


def value(expression: str, **columns: object) -> Value:
    return evaluate(f"{expression} AS x", [columns])[0][0]


def same(found: Value, expected: Value) -> bool:
    """Equal in type and value; NaN equals itself."""
    return type(found) is type(expected) and repr(canonical(found)) == repr(canonical(expected))


@pytest.mark.parametrize(
    ("expression", "columns", "expected"),
    [
        # Integers give BIGINT; overflow gives NULL; division truncates; x / 0 is NULL.
        ("b + 1", {"b": 2**63 - 1}, None),
        ("b - 1", {"b": -(2**63)}, None),
        ("b * b", {"b": 2**32}, None),
        ("-b", {"b": -(2**63)}, None),
        ("abs(b)", {"b": -(2**63)}, None),
        ("i + i", {"i": 2**31 - 1}, 2**32 - 2),
        ("b / 2", {"b": 5}, 2),
        ("b / 2", {"b": -5}, -2),
        ("b / -1", {"b": -(2**63)}, None),
        ("b % 3", {"b": -5}, -2),
        ("b % -3", {"b": 5}, 2),
        ("b / 0", {"b": 5}, None),
        ("b % 0", {"b": 5}, None),
        # DOUBLE is IEEE, but x / 0 and x % 0 are NULL.
        ("d * 10", {"d": 1e308}, INF),
        ("d / 0", {"d": 1.0}, None),
        ("d / 0", {"d": NAN}, None),
        ("d % 0", {"d": 1.0}, None),
        ("d % 2", {"d": -5.5}, -1.5),
        ("0 * d", {"d": -1.0}, 0.0),
        ("sqrt(d)", {"d": -1.0}, None),
        ("sqrt(d)", {"d": NAN}, NAN),
        ("sign(d)", {"d": NAN}, NAN),
        ("sign(d)", {"d": -3.0}, -1.0),
        # DECIMAL is exact; what needs more than 18 digits is NULL.
        ("n + 0.005", {"n": Decimal("1.10")}, Decimal("1.105")),
        ("n * n", {"n": Decimal("-1.25")}, Decimal("1.5625")),
        ("n / 2", {"n": Decimal("1.25")}, 0.625),
        ("n * 1000000000000000", {"n": Decimal("999.99")}, None),
        ("floor(n)", {"n": Decimal("-1.05")}, Decimal(-2)),
        ("ceil(n)", {"n": Decimal("999.99")}, Decimal(1000)),
        # Rounding is half away from zero.
        ("round(d)", {"d": -2.5}, -3.0),
        ("round(d)", {"d": 0.49999999999999994}, 0.0),
        ("round(d, 1)", {"d": 0.25}, 0.3),
        ("round(d, 1)", {"d": -0.25}, -0.3),
        ("round(n, 1)", {"n": Decimal("-1.25")}, Decimal("-1.30")),
        ("round(n, 1)", {"n": Decimal("999.99")}, None),
        ("round(b, -1)", {"b": 15}, 20),
        ("round(b, -1)", {"b": -15}, -20),
        # NaN equals itself and is greatest; there is one zero.
        ("d = d", {"d": NAN}, True),
        ("d > 1e308", {"d": NAN}, True),
        ("greatest(d, 1, NULL)", {"d": NAN}, NAN),
        ("least(d, 1, NULL)", {"d": NAN}, 1.0),
        ("d = 0", {"d": -0.0}, True),
        # Strings compare by bytes; lengths and positions are in characters.
        ("v > 'Z'", {"v": "a"}, True),
        ("v > 'z'", {"v": "é"}, True),
        ("length(v)", {"v": "日本"}, 2),
        ("strpos(v, '本')", {"v": "日本"}, 2),
        ("trim(v)", {"v": " \ta\u00a0 "}, "\ta\u00a0"),
        ("upper(v)", {"v": "aé"}, "AÉ"),
        ("substring(v, 0, 2)", {"v": "abc"}, "a"),
        ("substring(v, -1, 3)", {"v": "abc"}, "a"),
        ("substring(v, 2)", {"v": "日本語"}, "本語"),
        ("substring(v, -5)", {"v": "abc"}, "abc"),
        ("substring(v, 2, -1)", {"v": "abc"}, ""),
        ("substring(v, 2, 9)", {"v": "abc"}, "bc"),
        ("replace(v, '', 'x')", {"v": "abc"}, "abc"),
        ("v || v", {"v": None}, None),
        ("v LIKE 'a\\%'", {"v": "a%"}, False),
        ("v LIKE 'a\\%'", {"v": "a\\b"}, True),
        ("v LIKE '_b%'", {"v": "éb\nc"}, True),
        # Times.
        ("extract(epoch FROM t)", {"t": -1}, -1),
        ("extract(microsecond FROM t)", {"t": -1}, 999999),
        ("extract(second FROM t)", {"t": 61_500_000}, 1),
        ("extract(dow FROM t)", {"t": 0}, 4),
        ("date_trunc('day', t)", {"t": -1}, -86_400_000_000),
        ("t + INTERVAL '1' DAY", {"t": 0}, 86_400_000_000),
        ("t + INTERVAL '1' DAY", {"t": 2**63 - 1}, None),
        ("t - t", {"t": 5}, 0),
        # Casts: what does not fit is NULL.
        ("CAST(d AS BIGINT)", {"d": 2.9}, 2),
        ("CAST(d AS BIGINT)", {"d": -2.9}, -2),
        ("CAST(d AS BIGINT)", {"d": NAN}, None),
        ("CAST(d AS BIGINT)", {"d": 2.0**63}, None),
        ("CAST(b AS INTEGER)", {"b": 2**31}, None),
        ("CAST(n AS INTEGER)", {"n": Decimal("-2.99")}, -2),
        ("CAST(d AS DECIMAL(4, 2))", {"d": 1.005}, Decimal("1.00")),
        ("CAST(d AS DECIMAL(4, 2))", {"d": -0.125}, Decimal("-0.13")),
        ("CAST(d AS DECIMAL(4, 2))", {"d": 99.995}, None),
        ("CAST(d AS DECIMAL(4, 2))", {"d": INF}, None),
        ("CAST(n AS DECIMAL(4, 1))", {"n": Decimal("-1.25")}, Decimal("-1.3")),
        ("CAST(CAST(b AS DECIMAL(18, 0)) AS DOUBLE)", {"b": 2**53 + 1}, 2.0**53),
        ("CAST(v AS DECIMAL(18, 3))", {"v": "123456789012345.678"}, Decimal("123456789012345.678")),
        ("CAST(n AS VARCHAR)", {"n": Decimal("-0.05")}, "-0.05"),
        ("CAST(CAST(v AS DECIMAL(2, 2)) AS VARCHAR)", {"v": "0.5"}, "0.50"),
        ("CAST(f AS VARCHAR)", {"f": True}, "true"),
        ("CAST(f AS BIGINT)", {"f": True}, 1),
        ("CAST(b AS BOOLEAN)", {"b": -7}, True),
        ("CAST(t AS VARCHAR)", {"t": 1_500_000}, "1970-01-01 00:00:01.500000"),
        ("CAST(t AS VARCHAR)", {"t": 0}, "1970-01-01 00:00:00"),
        ("CAST(v AS BIGINT)", {"v": " +12 "}, 12),
        ("CAST(v AS BIGINT)", {"v": "12.0"}, None),
        ("CAST(v AS DOUBLE)", {"v": "1_0"}, None),
        ("CAST(v AS DOUBLE)", {"v": "-Infinity"}, -INF),
        ("CAST(v AS DOUBLE)", {"v": "nan"}, NAN),
        ("CAST(v AS BOOLEAN)", {"v": "T"}, True),
        ("CAST(v AS BOOLEAN)", {"v": "yes"}, None),
        ("CAST(v AS TIMESTAMP)", {"v": "1970-01-02"}, 86_400_000_000),
        ("CAST(v AS TIMESTAMP)", {"v": "1970-01-01T00:00:00.5"}, 500_000),
        ("CAST(v AS TIMESTAMP)", {"v": "1970-02-30"}, None),
    ],
)
def test_an_expression_means_what_cql_says(
    expression: str, columns: dict[str, object], expected: Value
) -> None:
    found = value(expression, **columns)
    assert same(found, expected), f"{expression} is {found!r}, not {expected!r}"


def test_null_follows_sql_in_and_or_in_and_case() -> None:
    items = """f AND FALSE AS a, f OR TRUE AS o, f AND TRUE AS u, b IN (1, NULL) AS i,
    b NOT IN (1, NULL) AS n, f IS DISTINCT FROM NULL AS s, CASE WHEN f THEN 1 ELSE 2 END AS c"""
    assert evaluate(items, [{"b": 2, "f": None}]) == [(False, True, None, None, None, False, 2)]


# ---------------------------------------------------------------- aggregates


def aggregate(expression: str, column: str, cells: list[Value]) -> Value:
    return evaluate(f"{expression} AS x", [{column: cell} for cell in cells])[0][0]


@pytest.mark.parametrize(
    ("expression", "column", "cells", "expected"),
    [
        ("SUM(d)", "d", [1e16, 1.0, 1.0, -1e16], 2.0),
        ("SUM(d)", "d", [0.1] * 10, 1.0),
        ("SUM(d)", "d", [1e308, 1e308, -1e308], 1e308),
        ("SUM(d)", "d", [1e308, 1e308], INF),
        ("SUM(d)", "d", [INF, 1.0], INF),
        ("SUM(d)", "d", [INF, -INF], NAN),
        ("SUM(d)", "d", [NAN, INF, None], NAN),
        ("SUM(d)", "d", [None], None),
        ("SUM(b)", "b", [2**63 - 1, 1], None),
        ("SUM(b)", "b", [2**63 - 1, 1, -1], 2**63 - 1),
        ("SUM(n)", "n", [Decimal("999.99"), Decimal("0.01")], Decimal("1000.00")),
        ("SUM(DISTINCT b)", "b", [1, 1, 2, None], 3),
        ("AVG(b)", "b", [2**53, 2**53 + 3], 2.0**53 + 2),
        ("AVG(n)", "n", [Decimal("0.10"), Decimal("0.20")], 0.15),
        ("AVG(d)", "d", [1e308, 1e308], 1e308),
        ("AVG(d)", "d", [INF, 1.0], INF),
        ("VAR_SAMP(d)", "d", [1e9 + 1, 1e9 + 2, 1e9 + 3], 1.0),
        ("VAR_SAMP(d)", "d", [1.0], None),
        ("VAR_POP(d)", "d", [1.0], 0.0),
        ("VAR_POP(d)", "d", [INF, 1.0], NAN),
        ("VAR_POP(d)", "d", [1e200, -1e200], INF),
        ("STDDEV(b)", "b", [1, 2, 3, 4], math.sqrt(5 / 3)),
        ("STDDEV_POP(b)", "b", [2, 4], 1.0),
        ("MEDIAN(b)", "b", [4, None, 1, 2, 3], 2.5),
        ("MEDIAN(d)", "d", [INF, INF, 1.0], INF),
        ("PERCENTILE_CONT(d, 0.25)", "d", [1.0, 2.0], 1.25),
        ("PERCENTILE_DISC(b, 0.5)", "b", [4, 1, 3, 2], 2),
        ("PERCENTILE_DISC(b, 0)", "b", [4, 1], 1),
        ("PERCENTILE_DISC(v, 1)", "v", ["a", "é", None, "z"], "é"),
        ("PERCENTILE_DISC(b, 0.07)", "b", list(range(1, 101)), 7),
        ("MIN(d)", "d", [NAN, 1.0, None], 1.0),
        ("MAX(d)", "d", [NAN, 1.0, None], NAN),
        ("MAX(v)", "v", ["Z", "a", "é"], "é"),
        ("MIN(f)", "f", [True, False], False),
        ("COUNT(*)", "d", [None, 1.0], 2),
        ("COUNT(d)", "d", [None, 1.0], 1),
        ("COUNT(DISTINCT d)", "d", [NAN, NAN, 0.0, -0.0, None], 2),
    ],
)
def test_an_aggregate_is_exact_and_rounded_once(
    expression: str, column: str, cells: list[Value], expected: Value
) -> None:
    found = aggregate(expression, column, cells)
    assert same(found, expected), f"{expression} is {found!r}, not {expected!r}"


def test_the_exact_sum_does_not_depend_on_order() -> None:
    cells = [1e100, 1.0, -1e100, 1e-10, 3.7, -1.0]
    sums = {bridges.exact_sum(cells[turn:] + cells[:turn]) for turn in range(len(cells))}
    assert sums == {math.fsum(cells)}


def test_groups_take_null_nan_and_zero_as_one_value_each() -> None:
    rows: list[dict[str, object]] = [{"d": cell} for cell in (None, None, NAN, -NAN, 0.0, -0.0)]
    assert repr(evaluate("d, COUNT(*) AS c", rows, "GROUP BY d")) == "[(None, 2), (0.0, 2), (nan, 2)]"


def test_a_constant_group_is_no_column_number() -> None:
    assert evaluate("COUNT(*) AS c", [{"b": 5}, {"b": 6}], "GROUP BY b * 0") == [(2,)]


def test_having_filters_groups_and_may_hold_the_only_aggregate() -> None:
    rows: list[dict[str, object]] = [{"b": 1}, {"b": 1}, {"b": 2}]
    assert evaluate("b", rows, "GROUP BY b HAVING COUNT(*) > 1") == [(1,)]
    assert evaluate("COUNT(*) AS c", rows, "HAVING COUNT(*) > 3") == []


# ---------------------------------------------------------------- sub-queries and joins

PAIRS: list[dict[str, object]] = [{"i": 1, "b": 1}, {"i": 2, "b": None}, {"i": 3, "b": 3}]


def test_row_in_a_sub_query_is_three_valued() -> None:
    assert evaluate("i", PAIRS, "WHERE (i, b) IN (SELECT i, b FROM s)") == [(1,), (3,)]
    assert evaluate("i", PAIRS, "WHERE (i, b) NOT IN (SELECT i + 1, b FROM s)") == [(1,)]


def test_correlated_in_and_exists_see_the_row_outside() -> None:
    assert evaluate("i", PAIRS, "WHERE EXISTS (SELECT 1 FROM s o WHERE o.i = s.i + 1)") == [(1,), (2,)]
    assert evaluate("i", PAIRS, "WHERE i + 1 IN (SELECT o.i FROM s o WHERE o.b = s.i + 1)") == [(2,)]
    correlated = "WHERE (i, b) NOT IN (SELECT o.i, o.b FROM s o WHERE o.i >= s.i)"
    assert evaluate("i", PAIRS, correlated) == []


def test_a_scalar_sub_query_of_nothing_is_null() -> None:
    assert evaluate("i", PAIRS, "WHERE b > (SELECT AVG(i) FROM s)") == [(3,)]
    assert evaluate("(SELECT MAX(b) FROM s WHERE i > 9) AS m", PAIRS[:1]) == [(None,)]


def test_outer_joins_take_any_condition() -> None:
    joined = "LEFT JOIN s r ON s.i < r.b"
    assert evaluate("s.i, r.i AS j", PAIRS, joined) == [(1, 3), (2, 3), (3, None)]
    joined = "FULL JOIN s r ON s.i = r.b + 1"
    assert evaluate("s.i, r.i AS j", PAIRS, joined) == [(None, 2), (None, 3), (1, None), (2, 1), (3, None)]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("UNION", [(None,), (1,), (2,)]),
        ("UNION ALL", [(None,), (None,), (1,), (1,), (1,), (2,)]),
        ("EXCEPT", [(2,)]),
        ("EXCEPT ALL", [(1,), (2,)]),
        ("INTERSECT", [(None,), (1,)]),
        ("INTERSECT ALL", [(None,), (1,)]),
    ],
)
def test_set_operations_take_nulls_as_equal(operation: str, expected: list[tuple[Value, ...]]) -> None:
    rows: list[dict[str, object]] = [{"b": cell, "i": 0} for cell in (1, 1, 2, None)]
    rows += [{"b": cell, "i": 1} for cell in (1, None)]
    assert evaluate("b", rows, f"WHERE i = 0 {operation} SELECT b FROM s WHERE i = 1") == expected


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("2147483648", INTEGER, None),
        ("-9223372036854775808", BIGINT, -(2**63)),
        ("1e3", BIGINT, None),
        ("1e3", DOUBLE, 1000.0),
        ("٣", INTEGER, None),
        (".5", decimal(3, 1), Decimal("0.5")),
        ("99.95", decimal(3, 1), None),
        ("0.05", decimal(3, 1), Decimal("0.1")),
        (" x ", VARCHAR, " x "),
        ("FALSE", BOOLEAN, False),
        ("2026-01-01 00:00", TIMESTAMP, None),
        ("2026-01-01 24:00:00", TIMESTAMP, None),
        ("2026-01-01 00:00:00.000001", TIMESTAMP, 1_767_225_600_000_001),
    ],
)
def test_text_becomes_a_value_of_its_column_or_none(text: str, type_: Type, expected: Value) -> None:
    assert bridges.from_text(type_)(text) == expected
