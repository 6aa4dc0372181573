"""Binding: what names mean, and what a query block may hold."""

from __future__ import annotations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import (
    Join,
    JoinKind,
    Range,
    Select,
    SetOperation,
    Source,
    Streamify,
    StreamKind,
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
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP
from tests.cql.bind.binding import bind, block, names, refused, refused_text, types
from tests.cql.corpus import PRELUDE

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
