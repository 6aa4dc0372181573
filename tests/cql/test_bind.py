"""Binding: what names mean, which types come out, what is cast, and what a query block may hold."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

import pytest

from kasen.cql.bind import bind_text
from kasen.cql.bound import (
    Join,
    JoinKind,
    Range,
    Select,
    SetOperation,
    Source,
    Streamify,
    StreamKind,
    Tick,
    Unbounded,
)
from kasen.cql.expr import (
    Aggregate,
    AggregateValue,
    Call,
    Cast,
    Column,
    Exists,
    Expr,
    GroupKey,
    InQuery,
    Literal,
    ScalarQuery,
    WindowBound,
    conjuncts,
    walk,
)
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, Connector, decimal
from tests.cql.binding import bind, block, names, refused, refused_text, types
from tests.cql.corpus import PRELUDE, registered


def item(expression: str) -> Expr:
    """An expression over the columns of s."""
    return block(f"SELECT {expression} FROM s").items[0]


# ---------------------------------------------------------------- types


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


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("a, b AS x, s.c", "a x c"),
        ("a, a, a", "a a_1 a_2"),
        ("a, a, b AS a_1", "a a_2 a_1"),
        ("b AS a, a", "a a_1"),
        ("b AS x, a AS x", "x x_1"),
        ("a + 1, 'x', NULL", "column1 column2 column3"),
        ("COUNT(*), COUNT(a), SUM(a)", "count count_1 sum"),
        ("ABS(a), CAST(a AS DOUBLE), (a), a::BIGINT", "abs a a_1 a_2"),
        ("CASE WHEN f THEN 1 END, EXTRACT(HOUR FROM ts)", "case extract"),
        ('a AS "A B", b AS "a b"', "A B|a b_1"),
    ],
)
def test_output_names(items: str, expected: str) -> None:
    assert names(f"SELECT {items} FROM s") == expected.split("|" if "|" in expected else None)


def test_star_leaves_an_undeclared_timestamp_out_but_it_can_be_named() -> None:
    assert names("SELECT * FROM t") == ["a", "x", "y"]
    assert names("SELECT t.*, ts FROM t") == ["a", "x", "y", "ts"]
    assert names("SELECT * FROM s, t")[-3:] == ["a_1", "x", "y"]
    assert names("SELECT * FROM (SELECT * FROM t) q") == ["a", "x", "y"]
    assert names("SELECT * FROM (SELECT *, ts FROM t) q") == ["a", "x", "y", "ts"]
    text = (
        "REGISTER STREAM z (ts BIGINT, a INT) TIMESTAMP BY TS FROM 'csv'; REGISTER QUERY q AS SELECT * FROM z"
    )
    assert bind_text(text).queries[0].schema.names == ("ts", "a")


def test_two_hidden_timestamps_are_ambiguous() -> None:
    assert refused("SELECT ts FROM s, t").remedy == "write which one is meant: s.ts, t.ts"
    assert names("SELECT s.ts FROM s, t") == ["ts"]


def test_star_takes_columns_of_equal_names_each_from_its_item() -> None:
    items = block("SELECT * FROM t AS one, t AS two").items
    assert items == tuple(
        Column(i.type, source, index, "") for source in (0, 1) for index, i in enumerate(items[:3])
    )


def test_an_alias_hides_the_streams_own_name() -> None:
    assert refused("SELECT s.a FROM s AS t").remedy == "it is called t here: write t.a"
    assert block("SELECT s.a FROM t AS s").items == (Column(INTEGER, 0, 0, "a"),)


def test_a_query_of_with_hides_a_stream_and_sees_it() -> None:
    assert names("WITH s AS (SELECT a AS n FROM s) SELECT * FROM s") == ["n"]


def test_a_query_of_with_sees_those_before_it_and_not_itself_or_later_ones() -> None:
    assert names("WITH x AS (SELECT a FROM s), y AS (SELECT a AS b FROM x) SELECT * FROM y") == ["b"]
    assert "'y'" in refused("WITH x AS (SELECT a FROM y), y AS (SELECT a FROM s) SELECT * FROM x").fault
    assert "'x'" in refused("WITH x AS (SELECT a FROM x) SELECT * FROM x").fault


def test_an_inner_with_hides_an_outer_one_but_not_for_what_was_defined_outside() -> None:
    inner = "SELECT * FROM (WITH y AS (SELECT c FROM s) SELECT * FROM {}) q"
    assert names("WITH y AS (SELECT a FROM s) " + inner.format("y")) == ["c"]
    assert names("WITH y AS (SELECT a FROM s), x AS (SELECT * FROM y) " + inner.format("x")) == ["a"]


def test_a_query_of_with_that_nobody_reads_must_be_right_all_the_same() -> None:
    assert refused("WITH x AS (SELECT nothing FROM s) SELECT a FROM s").fault == "unknown column 'nothing'"


# ---------------------------------------------------------------- FROM


def test_a_stream_without_a_window_is_unbounded_and_a_relation_has_none() -> None:
    assert [source.window for source in block("SELECT s.a FROM s, r").sources] == [Unbounded(), None]


def test_join_binds_tighter_than_the_comma() -> None:
    from_ = block("SELECT s.a FROM r, s RIGHT JOIN t ON s.a = t.a, r AS r2").from_
    assert isinstance(from_, Join)
    assert isinstance(from_.left, Join)
    assert isinstance(from_.left.right, Join)
    assert (from_.kind, from_.left.kind, from_.left.right.kind) == (
        JoinKind.CROSS,
        JoinKind.CROSS,
        JoinKind.RIGHT,
    )
    assert from_.left.right.on == Call(BOOLEAN, "=", (Column(INTEGER, 1, 0, "a"), Column(INTEGER, 2, 0, "a")))
    assert isinstance(from_.right, Source)
    assert from_.right.alias == "r2"


def test_on_sees_what_was_joined_since_the_last_comma() -> None:
    assert (
        refused("SELECT s.a FROM s, t JOIN r ON r.k = s.a").fault
        == "ON cannot see 's.a', which stands before the comma"
    )
    assert len(block("SELECT s.a FROM s CROSS JOIN t JOIN r ON r.k = s.a").sources) == 3
    # A name is not ambiguous with one that ON cannot see.
    assert block("SELECT s.a FROM s, t JOIN r ON r.k = a").sources[1].alias == "t"


def test_a_window_on_a_monotone_select_is_one_on_its_istream() -> None:
    plain = block("SELECT * FROM (SELECT a FROM s WHERE a > 1) [RANGE 1 HOUR] q").sources[0]
    around = block("SELECT * FROM (ISTREAM(SELECT a FROM s WHERE a > 1)) [RANGE 1 HOUR] q").sources[0]
    assert plain == around
    text = (
        "REGISTER QUERY p AS SELECT a FROM s WHERE a > 1; REGISTER QUERY q AS SELECT * FROM p [RANGE 1 HOUR]"
    )
    query = bind_text(PRELUDE + text).queries[1].query
    assert isinstance(query, Select)
    source = query.sources[0]
    assert source.window == Range(3_600_000_000)
    assert isinstance(source.input, Streamify)
    assert source.input.kind is StreamKind.ISTREAM


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT a FROM s",
        "SELECT COUNT(*) AS a FROM s",
        "SELECT a FROM s [ROWS 5]",
        "SELECT s.a FROM s, t",
        "SELECT a FROM s UNION ALL SELECT a FROM t",
        "SELECT k AS a FROM r",
        "SELECT a FROM s WHERE a NOT IN (SELECT a FROM t)",
        "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t)",
        "SELECT a FROM s WHERE a > (SELECT MAX(a) FROM t)",
        "SELECT (SELECT MAX(a) FROM t) AS a FROM s",
    ],
)
def test_what_can_take_rows_back_has_no_window(query: str) -> None:
    assert "a window goes on a stream" in refused(f"SELECT a FROM ({query}) [ROWS 5] q").fault
    text = f"{PRELUDE}REGISTER QUERY p AS {query}; REGISTER QUERY q AS SELECT a FROM p [ROWS 5]"
    assert refused_text(text).fault == "'p' is a relation, and a window goes on a stream"


# ---------------------------------------------------------------- aggregates


def test_beside_aggregates_items_range_over_groups() -> None:
    bound = block("SELECT a % 2, b + 1, COUNT(*), SUM(d) + 1 FROM s GROUP BY b, a % 2 HAVING MAX(c) > 'x'")
    assert bound.group_by is not None
    assert len(bound.group_by) == 2
    assert bound.items[0] == GroupKey(BIGINT, 1)
    assert bound.items[1] == Call(BIGINT, "+", (GroupKey(BIGINT, 0), Literal(BIGINT, 1)))
    assert bound.items[2] == AggregateValue(BIGINT, 0)
    assert [one.function for one in bound.aggregates] == ["count", "sum", "max"]
    roots = [*bound.items, *conjuncts(bound.having)]
    assert not any(isinstance(part, Column) for root in roots for part in walk(root))


def test_equal_aggregates_are_computed_once() -> None:
    bound = block("SELECT SUM(a), SUM(s.a), sum(A) + 1, MIN(DISTINCT a), MIN(a) FROM s HAVING SUM(a) > 1")
    assert [one.function for one in bound.aggregates] == ["sum", "min"]
    different = block(
        "SELECT COUNT(a), COUNT(DISTINCT a), COUNT(*), MEDIAN(a), PERCENTILE_CONT(a, 0.4) FROM s"
    )
    assert len(different.aggregates) == 5


def test_percentiles_are_written_in_three_ways() -> None:
    one = block(
        "SELECT MEDIAN(d), PERCENTILE_CONT(d, 0.5), PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY d) FROM s"
    )
    assert one.aggregates == (Aggregate("percentile_cont", (Column(DOUBLE, 0, 3, "d"),), False, DOUBLE, 0.5),)


def test_having_alone_makes_one_group() -> None:
    bound = block("SELECT 1 AS x FROM s HAVING COUNT(*) > 5")
    assert bound.group_by == ()
    assert "must be in GROUP BY" in refused("SELECT a FROM s HAVING COUNT(*) > 5").fault


def test_distinct_and_aggregates_go_together() -> None:
    bound = block("SELECT DISTINCT COUNT(*) FROM s GROUP BY a")
    assert bound.distinct
    assert bound.items == (AggregateValue(BIGINT, 0),)


def test_group_by_takes_aliases_and_positions_but_columns_first() -> None:
    by_expression = block("SELECT a % 3 AS p, COUNT(*) FROM s GROUP BY a % 3")
    assert block("SELECT a % 3 AS p, COUNT(*) FROM s GROUP BY p") == by_expression
    assert block("SELECT a % 3 AS p, COUNT(*) FROM s GROUP BY 1") == by_expression
    # b is a column of s, so GROUP BY b is by that column, whatever the SELECT list calls b.
    assert "'a' must be in GROUP BY" in refused("SELECT a AS b, COUNT(*) FROM s GROUP BY b").fault.replace(
        "column ", ""
    )


def test_having_takes_aliases_but_columns_first() -> None:
    by_aggregate = block("SELECT a, COUNT(*) AS n FROM s GROUP BY a HAVING COUNT(*) > 1")
    assert block("SELECT a, COUNT(*) AS n FROM s GROUP BY a HAVING n > 1") == by_aggregate
    assert "must be in GROUP BY" in refused("SELECT a, COUNT(*) AS b FROM s GROUP BY a HAVING b > 1").fault


def test_the_time_column_beside_aggregates_of_a_sliding_window_is_its_end() -> None:
    slide = "[RANGE 4 MINUTES SLIDE 1 MINUTE]"
    bound = block(f"SELECT ts, window_end(), window_start(), COUNT(*) FROM s {slide} GROUP BY a")
    end = WindowBound(TIMESTAMP, 0, end=True)
    assert bound.items[:3] == (end, end, WindowBound(TIMESTAMP, 0, end=False))
    assert "must be in GROUP BY" in refused("SELECT ts, COUNT(*) FROM s [ROWS 5]").fault
    assert (
        "must be in GROUP BY"
        in refused(f"SELECT s.ts, COUNT(*) FROM s {slide}, t {slide} GROUP BY s.a").fault
    )
    # Grouped by, it is the column itself.
    assert block(f"SELECT ts, COUNT(*) FROM s {slide} GROUP BY ts").items[0] == GroupKey(TIMESTAMP, 0)


# ---------------------------------------------------------------- sub-queries


def where(query: str) -> tuple[Expr, ...]:
    return conjuncts(block(query).where)


def test_exists_and_in_see_the_columns_of_the_block_around() -> None:
    (exists,) = where("SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.a = s.a AND x > b)")
    assert isinstance(exists, Exists)
    assert isinstance(exists.query, Select)
    columns = [part for part in walk(exists.query.where or Literal(NULL, None)) if isinstance(part, Column)]
    assert [(column.name, column.outer) for column in columns] == [("a", 0), ("a", 1), ("x", 0), ("b", 1)]


def test_a_column_means_the_nearest_one() -> None:
    (exists,) = where("SELECT a FROM s WHERE EXISTS (SELECT 1 FROM t WHERE a = 1)")
    assert isinstance(exists, Exists)
    assert not any(getattr(part, "outer", 0) for part in walk(exists.query.where))  # type: ignore[union-attr, arg-type]


def test_in_casts_both_sides_to_one_type_and_stays_one_block() -> None:
    (member,) = where("SELECT a FROM s WHERE a IN (SELECT DISTINCT x FROM t WHERE t.a = s.a)")
    assert isinstance(member, InQuery)
    assert member.args == (Cast(BIGINT, Column(INTEGER, 0, 0, "a")),)
    assert isinstance(member.query, Select)
    assert not member.query.distinct  # for membership it says nothing
    (member,) = where("SELECT a FROM s WHERE b IN (SELECT a FROM t WHERE t.a = s.a)")
    assert isinstance(member, InQuery)
    assert isinstance(member.query, Select)
    assert member.query.items == (Cast(BIGINT, Column(INTEGER, 0, 0, "a")),)
    assert isinstance(member.query.sources[0].input, str)


def test_not_stands_around_in_and_exists() -> None:
    parts = where("SELECT a FROM s WHERE a NOT IN (SELECT a FROM t) AND NOT (NOT EXISTS (SELECT 1 FROM t))")
    assert isinstance(parts[0], Call)
    assert parts[0].op == "not"
    assert isinstance(parts[0].args[0], InQuery)
    assert isinstance(parts[1], Exists)


def test_all_is_no_row_that_fails_and_any_a_row_that_holds() -> None:
    every, some = where("SELECT a FROM s WHERE a >= ALL (SELECT a FROM t) AND a < ANY (SELECT a FROM t)")
    assert isinstance(every, Call)
    assert isinstance(every.args[0], Exists)
    assert isinstance(some, Exists)
    assert isinstance(some.query, Select)
    assert some.query.where == Call(BOOLEAN, "<", (Column(INTEGER, 0, 0, "a", 1), Column(INTEGER, 0, 0, "a")))


def test_a_query_used_as_a_value_is_one_row() -> None:
    (compared,) = where("SELECT a FROM s WHERE d > (SELECT 2 * AVG(d) FROM s [RANGE 1 HOUR])")
    assert isinstance(compared, Call)
    assert isinstance(compared.args[1], ScalarQuery)
    for query in (
        "SELECT a FROM t",
        "SELECT MAX(a) FROM t GROUP BY x",
        "SELECT MAX(a) FROM t HAVING COUNT(*) > 1",
    ):
        assert "exactly one row" in refused(f"SELECT a FROM s WHERE a > ({query})").fault
    assert (
        "exactly one row"
        in refused("SELECT a FROM s WHERE a > (SELECT MAX(a) FROM t UNION SELECT 1 FROM t)").fault
    )


# ---------------------------------------------------------------- set operations


def test_set_operations_cast_both_sides_and_name_columns_by_the_left() -> None:
    bound = bind("SELECT a AS n FROM s UNION SELECT x FROM t")
    assert isinstance(bound, SetOperation)
    assert str(bound.schema) == "(n BIGINT)"
    assert bound.left.schema.types == bound.right.schema.types == (BIGINT,)


def test_distinct_compares_before_a_set_operation_casts() -> None:
    bound = bind("SELECT DISTINCT b FROM s UNION ALL SELECT d FROM s")
    assert isinstance(bound, SetOperation)
    assert isinstance(bound.left, Select)
    assert not bound.left.distinct
    inner = bound.left.sources[0].input
    assert isinstance(inner, Select)
    assert inner.distinct


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT NULL AS n FROM s UNION ALL SELECT b FROM s", "BIGINT"),
        ("SELECT u FROM s UNION ALL SELECT NULL FROM s", "TIMESTAMP"),
        ("SELECT NULL FROM s UNION SELECT NULL FROM t", "VARCHAR"),
        ("SELECT NULL FROM s UNION SELECT NULL FROM t UNION SELECT f FROM s", "BOOLEAN"),
        ("SELECT DISTINCT NULL FROM s UNION SELECT a FROM t", "INTEGER"),
    ],
)
def test_a_column_of_nothing_but_null_fits_any_type(query: str, expected: str) -> None:
    assert types(query) == [expected]


def test_intersect_binds_tighter_than_union_and_except() -> None:
    short = bind("SELECT a FROM s UNION SELECT a FROM t INTERSECT SELECT k FROM r EXCEPT SELECT k FROM r")
    full = bind("(SELECT a FROM s UNION (SELECT a FROM t INTERSECT SELECT k FROM r)) EXCEPT SELECT k FROM r")
    assert short == full


# ---------------------------------------------------------------- statements


def test_inputs_are_bound_with_all_their_clauses() -> None:
    text = """
        REGISTER STREAM s (ts TIMESTAMP, a VARCHAR(5)) TIMESTAMP BY ts
          SLACK 1 SECOND IDLE 2 SECONDS RETAIN 1 DAY TICK BY TUPLE
          FROM 'CSV' OPTIONS (Path 'x.csv', kafka.topic 5, header FALSE);
        REGISTER RELATION r (k INT) TIMESTAMP BY at FROM 'json';
        REGISTER RELATION static (k INT) FROM 'json';
    """
    stream, relation, static = bind_text(text).inputs
    assert (stream.timestamp, stream.hidden, stream.slack, stream.idle) == (0, 0, 1_000_000, 2_000_000)
    assert (stream.retain, stream.tick) == (86_400_000_000, Tick.TUPLE)
    assert stream.connector == Connector(
        "csv", (("path", "x.csv"), ("kafka.topic", "5"), ("header", "false"))
    )
    assert str(relation.schema) == "(k INTEGER, at TIMESTAMP)"
    assert (relation.is_relation, relation.timestamp, relation.hidden, relation.is_static) == (
        True,
        1,
        1,
        False,
    )
    assert static.is_static
    assert static.tick is Tick.TIME


def test_queries_bind_in_any_order() -> None:
    statements = [
        "REGISTER QUERY one AS SELECT a, COUNT(*) AS n FROM s [ROWS 5] GROUP BY a",
        "REGISTER QUERY two AS ISTREAM(SELECT n FROM one WHERE n > 1)",
        "REGISTER QUERY three AS SELECT 1 AS x FROM two [NOW]",
        "REGISTER QUERY four AS SELECT three.x, two.* FROM three, two [ROWS 1]",
    ]
    expected = {query.name: query.query for query in bind_text(PRELUDE + ";".join(statements)).queries}
    for order in permutations(statements):
        app = bind_text(PRELUDE + ";".join(order))
        assert {query.name: query.query for query in app.queries} == expected


def test_a_window_may_stand_on_a_query_that_comes_later() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY q AS SELECT one FROM p [ROWS 5];
        REGISTER QUERY p AS SELECT 1 AS one FROM o;
        REGISTER QUERY o AS ISTREAM(SELECT a FROM s);
    """
    assert [str(query.schema) for query in bind_text(text).queries] == ["(one INTEGER)"] * 2 + ["(a INTEGER)"]


def test_hundreds_of_queries_on_one_another_bind_quickly() -> None:
    chain = [f"REGISTER QUERY q{n} AS SELECT a FROM q{n + 1}" for n in range(400)]
    app = bind_text(f"{PRELUDE}{';'.join(chain)}; REGISTER QUERY q400 AS SELECT a FROM s")
    assert len(app.queries) == 401


def test_replace_and_drop_act_on_what_stands_above() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY p AS SELECT a FROM s;
        REGISTER QUERY q AS SELECT * FROM p;
        REPLACE QUERY P AS SELECT c, d FROM s INTO 'csv';
        REGISTER QUERY gone AS SELECT a FROM s;
        DROP QUERY gone;
        REGISTER QUERY gone AS SELECT f FROM s;
    """
    app = bind_text(text)
    assert [(query.name, str(query.schema)) for query in app.queries] == [
        ("P", "(c VARCHAR, d DOUBLE)"),
        ("q", "(c VARCHAR, d DOUBLE)"),
        ("gone", "(f BOOLEAN)"),
    ]
    assert app.queries[0].sink == Connector("csv")


def test_replacing_a_query_that_others_read_must_leave_them_right() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY p AS SELECT a FROM s;
        REGISTER QUERY q AS SELECT a + 1 AS b FROM p;
        REPLACE QUERY p AS SELECT {{}} FROM s;
    """
    assert refused_text(text.format("c")).fault == "unknown column 'a'"
    assert refused_text(text.format("c AS a")).fault == "a + b does not take VARCHAR and INTEGER"
    assert str(bind_text(text.format("d AS a")).queries[1].schema) == "(b DOUBLE)"


def test_dropping_a_query_that_others_read_is_refused_where_they_read_it() -> None:
    text = (
        f"{PRELUDE}REGISTER QUERY p AS SELECT a FROM s;\nREGISTER QUERY q AS SELECT a FROM p;\nDROP QUERY p;"
    )
    error = refused_text(text)
    assert error.fault == "unknown stream or query 'p'"
    assert error.remedy == "it is dropped on line 7"
    assert error.place is not None
    assert error.place.line == 6


def test_the_last_setting_counts() -> None:
    app = bind_text("SET flush = true; SET recursion = Insert; SET FLUSH = 'False'; SET max_ticks = 50")
    assert app.settings == (("flush", "false"), ("recursion", "insert"), ("max_ticks", "50"))


# ---------------------------------------------------------------- time

STREAM = "REGISTER STREAM z (a INTEGER{}) TIMESTAMP BY ts{} FROM 'csv';"


@pytest.mark.parametrize(
    ("text", "logical"),
    [
        (STREAM.format(", ts BIGINT", ""), True),
        (STREAM.format(", ts INTEGER", ""), True),
        (STREAM.format(", ts TIMESTAMP", ""), False),
        ("REGISTER STREAM z (a INTEGER) FROM 'csv';", False),
        (STREAM.format("", " SLACK 5"), True),
        (STREAM.format("", " SLACK 5 SECONDS"), False),
        (STREAM.format("", " IDLE 5 SECONDS RETAIN 3"), True),
        (STREAM.format("", "") + "REGISTER QUERY q AS SELECT a FROM z [RANGE 5]", True),
        (STREAM.format("", "") + "REGISTER QUERY q AS ISTREAM(SELECT a FROM z)<5 DAYS>", False),
        (STREAM.format("", "") + "REGISTER QUERY q AS SELECT a FROM z [ROWS 5]", False),
        (STREAM.format("", "") + "REGISTER STREAM y (t BIGINT) TIMESTAMP BY t FROM 'csv'", True),
    ],
)
def test_the_kind_of_time_is_told_by_columns_then_by_lengths_of_time(text: str, logical: bool) -> None:
    app = bind_text(text)
    assert app.is_logical_time is logical
    assert app.inputs[0].schema[app.inputs[0].schema.find("ts") or 0].type in (app.time, INTEGER)


def test_the_data_tells_the_kind_of_time_where_nothing_else_does() -> None:
    seen = []

    def sniff(connector: Connector, column: str) -> object:
        seen.append((connector.format, column))
        return BIGINT

    app = bind_text(STREAM.format("", ""), sniff=sniff)  # type: ignore[arg-type]
    assert app.is_logical_time
    assert seen == [("csv", "ts")]
    assert not bind_text(STREAM.format("", ""), sniff=lambda *_: None).is_logical_time


def test_window_bounds_have_the_apps_kind_of_time() -> None:
    text = STREAM.format(", ts INTEGER", "")
    app = bind_text(text + "REGISTER QUERY q AS SELECT ts, COUNT(*), window_end() FROM z [RANGE 4 SLIDE 1]")
    assert app.queries[0].schema.types == (BIGINT, BIGINT, BIGINT)


def test_a_source_is_called_as_it_was_registered() -> None:
    text = (
        PRELUDE + "REGISTER QUERY Up AS ISTREAM(SELECT a FROM S); REGISTER QUERY q AS SELECT a FROM UP [NOW]"
    )
    up, q = (query.query for query in bind_text(text).queries)
    assert isinstance(up, Streamify)
    assert isinstance(up.query, Select)
    assert isinstance(q, Select)
    assert [up.query.sources[0].input, q.sources[0].input] == ["s", "Up"]


def test_the_query_keeps_its_text() -> None:
    assert bind_text(registered("select  A\nfrom s -- hm")).queries[0].text == "SELECT A FROM s"
