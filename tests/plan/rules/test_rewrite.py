"""Each rewrite on its own: where it fires, and where it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kasen.plan.logical import Node, SemiJoin, Streamify, WindowActivity, walk
from kasen.plan.lower.lower import lower
from kasen.plan.physical_nodes import SlidingAggregate
from kasen.plan.rules.fuse_windows import fuse_windows
from kasen.plan.rules.join_keys import join_keys
from kasen.plan.rules.prune_columns import prune_columns
from kasen.plan.rules.push_filters import push_filters
from kasen.plan.rules.rewrite import merge_projections, rewrite
from tests.plan.outline import outline, plan_of, shown

Rule = Callable[[Node], Node]


def after(query: str, *rules: Rule) -> str:
    node = plan_of(query)
    for rule in rules:
        node = rule(node)
    return outline(node)


def lowered(query: str) -> list[Node]:
    """The nodes of a query's plan as operators run it."""
    return walk(lower(rewrite(plan_of(query))))


# ---------------------------------------------------------------- join_keys


def test_an_equality_between_inputs_becomes_a_key_and_a_condition_on_one_input_its_filter() -> None:
    assert after("SELECT s.b FROM s [NOW], t [NOW] WHERE s.a = t.a AND s.b > 1", join_keys) == shown("""
        Project s.b
          Join s.a = t.a
            Filter s.b > 1
              Window [NOW]
                Scan s
            Window [NOW]
              Scan t
    """)


def test_nested_joins_become_one_and_equalities_are_transitive() -> None:
    query = "SELECT s.b FROM s [NOW] JOIN t [NOW] ON s.a = t.a JOIN u [NOW] ON t.a = u.a"
    assert after(query, join_keys).split("\n")[1] == "  Join s.a = t.a = u.a"


def test_a_class_of_two_columns_of_one_input_keeps_one_of_them_and_filters() -> None:
    query = "SELECT t.d FROM s [NOW], t [NOW] WHERE s.a = t.a AND t.a = s.b"
    assert after(query, join_keys) == shown("""
        Project t.d
          Join s.a = t.a
            Filter s.a = s.b
              Window [NOW]
                Scan s
            Window [NOW]
              Scan t
    """)


def test_an_inequality_between_inputs_stays_with_the_join() -> None:
    query = "SELECT s.b FROM s [NOW], t [NOW] WHERE s.a = t.a AND s.b < t.b"
    assert after(query, join_keys).split("\n")[1] == "  Join s.a = t.a AND s.b < t.b"


def test_a_constant_condition_stays_with_the_join() -> None:
    query = "SELECT s.b FROM s [NOW], t [NOW] WHERE 1 = 0"
    assert after(query, join_keys).split("\n")[1] == "  Join 1 = 0"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("LEFT", "LeftJoin s.a = t.a AND s.b > 1"),  # t.b > 2 filters t
        ("RIGHT", "RightJoin s.a = t.a AND t.b > 2"),  # s.b > 1 filters s
        ("FULL", "FullJoin s.a = t.a AND (s.b > 1) AND (t.b > 2)"),
    ],
)
def test_on_filters_only_the_side_that_may_be_missing(kind: str, expected: str) -> None:
    query = f"SELECT s.b FROM s [NOW] {kind} JOIN t [NOW] ON s.a = t.a AND s.b > 1 AND t.b > 2"
    found = after(query, join_keys)
    assert found.split("\n")[1] == f"  {expected}"
    assert ("Filter s.b > 1" in found, "Filter t.b > 2" in found) == (kind == "RIGHT", kind == "LEFT")


def test_a_correlated_equality_is_a_key_of_exists_but_not_of_not_in() -> None:
    exists = "SELECT b FROM s [NOW] WHERE EXISTS (SELECT * FROM t [NOW] WHERE t.a = s.a AND t.b < s.b)"
    assert after(exists, join_keys).split("\n")[1] == "  SemiJoin a = query.a AND query.b < b"
    node = join_keys(plan_of("SELECT b FROM s [NOW] WHERE a NOT IN (SELECT a FROM t [NOW] WHERE t.b = s.b)"))
    (anti,) = [each for each in walk(node) if isinstance(each, SemiJoin)]
    assert len(anti.keys) == 1
    assert anti.residual is not None


# ---------------------------------------------------------------- push_filters


@pytest.mark.parametrize("window", ["[UNBOUNDED]", "[NOW]", "[RANGE 5]", "[RANGE 5 SLIDE 2]"])
def test_a_filter_goes_below_a_window_of_time(window: str) -> None:
    assert after(f"SELECT a FROM s {window} WHERE b > 1", push_filters) == shown(f"""
        Project a
          Window {window}
            Filter b > 1
              Scan s
    """)


@pytest.mark.parametrize("window", ["[ROWS 5]", "[ROWS 5 SLIDE 2]", "[PARTITION BY a ROWS 5]"])
def test_a_filter_stays_above_a_window_of_rows(window: str) -> None:
    assert after(f"SELECT a FROM s {window} WHERE b > 1", push_filters) == shown(f"""
        Project a
          Filter b > 1
            Window {window}
              Scan s
    """)


def test_a_filter_on_computed_columns_is_a_filter_on_what_they_are_computed_from() -> None:
    query = "SELECT x FROM (SELECT e * e AS x FROM u [NOW]) AS q WHERE x > 4"
    found = after(query, push_filters)
    assert "Filter (CAST(e AS BIGINT) * CAST(e AS BIGINT)) > 4" in found
    assert found.index("Window") < found.index("Filter")


def test_having_goes_below_only_where_it_is_about_keys() -> None:
    query = "SELECT a, COUNT(*) AS n FROM s [NOW] GROUP BY a HAVING a > 1 AND COUNT(*) > 2"
    assert after(query, push_filters) == shown("""
        Project a, COUNT(*) AS n
          Filter COUNT(*) > 2
            Aggregate COUNT(*) by a
              Window [NOW]
                Filter a > 1
                  Scan s
    """)


def test_nothing_goes_below_an_aggregate_without_keys() -> None:
    query = "SELECT COUNT(*) AS n FROM s [NOW] HAVING COUNT(*) > 0"
    assert after(query, push_filters) == after(query)


def test_a_filter_does_not_go_into_a_stream_that_a_query_made() -> None:
    query = "SELECT a FROM (ISTREAM(SELECT a, b FROM s [ROWS 3])) [RANGE 5] WHERE b > 1"
    assert after(query, push_filters) == shown("""
        Project a
          Window [RANGE 5]
            Filter b > 1
              ISTREAM
                Project a, b
                  Window [ROWS 3]
                    Scan s
    """)


def test_a_filter_reaches_both_sides_of_a_set_operation_and_below_distinct() -> None:
    for operation in ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT"):
        query = (
            f"SELECT a FROM (SELECT a, b FROM s [NOW] {operation} SELECT a, b FROM t [NOW]) AS q WHERE b > 1"
        )
        assert after(query, push_filters).count("Filter b > 1") == 2
    query = "SELECT a FROM (SELECT DISTINCT a, b FROM s [NOW]) AS q WHERE b > 1"
    found = after(query, push_filters)
    assert found.index("Distinct") < found.index("Filter b > 1")


@pytest.mark.parametrize(
    ("kind", "above", "below"),
    [
        ("LEFT", ["t.b > 2"], ["s.b > 1"]),
        ("RIGHT", ["s.b > 1"], ["b > 2"]),
        ("FULL", ["t.b > 2", "s.b > 1"], []),
    ],
)
def test_where_filters_only_the_side_that_is_always_there(
    kind: str, above: list[str], below: list[str]
) -> None:
    query = f"SELECT s.b FROM s [NOW] {kind} JOIN t [NOW] ON s.a = t.a WHERE s.b > 1 AND t.b > 2"
    upper, lower = after(query, push_filters).split("Join")
    assert all(condition in upper for condition in above)
    assert all(f"Filter {condition}" in lower for condition in below)
    assert lower.count("Filter") == len(below)


def test_filters_leave_the_instants_at_which_rstream_fires_alone() -> None:
    node = push_filters(plan_of("RSTREAM(SELECT a FROM s [RANGE 5] WHERE b > 1)"))
    assert isinstance(node, Streamify)
    (leaf,) = node.leaves
    assert isinstance(leaf, WindowActivity)
    assert outline(leaf.child) == "Scan s"


def test_filters_leave_the_reports_of_a_sliding_window_alone() -> None:
    query = "SELECT COUNT(*) AS n, window_end() AS till FROM s [RANGE 4 SLIDE 2] WHERE b > 1"
    assert after(query, join_keys, push_filters) == shown("""
        Project COUNT(*) AS n, window_end AS till
          Join all pairs
            Aggregate COUNT(*)
              Window [RANGE 4 SLIDE 2]
                Filter b > 1
                  Scan s
            Reports of [RANGE 4 SLIDE 2]
              Scan s
    """)


# ---------------------------------------------------------------- prune_columns


def test_a_source_is_narrowed_below_its_window() -> None:
    assert after("SELECT b FROM s [ROWS 2]", prune_columns) == shown("""
        Project b
          Window [ROWS 2]
            Project b
              Scan s
    """)


def test_a_derived_stream_is_narrowed_above_its_window() -> None:
    assert after("SELECT b FROM (ISTREAM(SELECT a, b FROM s [NOW])) [ROWS 2]", prune_columns) == shown("""
        Project b
          Project b
            Window [ROWS 2]
              ISTREAM
                Project a, b
                  Window [NOW]
                    Project a, b
                      Scan s
    """)


def test_the_columns_of_partition_by_stay_and_are_found_again() -> None:
    assert after("SELECT a FROM s [PARTITION BY c ROWS 2]", prune_columns) == shown("""
        Project a
          Window [PARTITION BY c ROWS 2]
            Project a, c
              Scan s
    """)


def test_pruning_keeps_the_order_of_columns() -> None:
    node = prune_columns(plan_of("SELECT t.d, s.c, s.a FROM s [NOW], t [NOW] WHERE s.b = t.b"))
    assert node.schema.names == ("d", "c", "a")
    assert "Project a, b, c" in outline(node)
    assert "Project b, d" in outline(node)


@pytest.mark.parametrize("word", ["DISTINCT", ""])
def test_distinct_needs_all_its_columns(word: str) -> None:
    found = after(f"SELECT a FROM (SELECT {word} a, b FROM s [NOW]) AS q", prune_columns)
    assert ("Project a, b" in found) == (word == "DISTINCT")


def test_the_instants_of_rstream_need_no_columns() -> None:
    node = prune_columns(plan_of("RSTREAM(SELECT a FROM s [RANGE 5])"))
    assert isinstance(node, Streamify)
    assert [len(leaf.children[0].schema) for leaf in node.leaves] == [0]


# ---------------------------------------------------------------- merge_projections


def test_projections_above_one_another_become_one_and_those_that_do_nothing_go() -> None:
    query = "SELECT y AS z FROM (SELECT x AS y FROM (SELECT a AS x FROM s [NOW]) AS p) AS q"
    assert after(query, merge_projections) == shown("""
        Project a AS z
          Window [NOW]
            Scan s
    """)
    assert after("SELECT * FROM r", merge_projections) == "Scan r"


def test_a_renaming_projection_stays() -> None:
    assert after("SELECT a AS a2, name FROM r", merge_projections) == shown("""
        Project a AS a2, name
          Scan r
    """)


# ---------------------------------------------------------------- fuse_windows


def test_window_and_aggregate_become_one_with_what_is_between_them() -> None:
    assert after("SELECT c, SUM(b) AS n FROM s [ROWS 9] WHERE a > 1 GROUP BY c", fuse_windows) == shown("""
        Project c, SUM(CAST(b AS BIGINT)) AS n
          WindowAggregate [ROWS 9] WHERE a > 1 SUM(CAST(b AS BIGINT)) by c
            Scan s
    """)


def test_a_filter_over_a_projection_is_carried_through_it() -> None:
    query = (
        "SELECT k, COUNT(*) AS n FROM (SELECT c AS k, a * b AS v FROM s [ROWS 9]) AS q WHERE v < 5 GROUP BY k"
    )
    expected = "WindowAggregate [ROWS 9] WHERE (CAST(a AS BIGINT) * CAST(b AS BIGINT)) < 5 COUNT(*) by c"
    assert expected in after(query, fuse_windows)


def test_windows_become_part_of_a_join_unless_one_slides() -> None:
    plain = "SELECT s.b FROM s [ROWS 3], t [RANGE 3] WHERE s.a = t.a"
    assert "WindowJoin s.a = t.a over [ROWS 3] [RANGE 3]" in after(plain, join_keys, fuse_windows)
    sliding = "SELECT s.b FROM s [ROWS 3], t [RANGE 3 SLIDE 2] WHERE s.a = t.a"
    assert "WindowJoin" not in after(sliding, join_keys, fuse_windows)
    with_relation = "SELECT s.b FROM s [ROWS 3], r WHERE s.a = r.a"
    assert "WindowJoin" not in after(with_relation, join_keys, fuse_windows)


def test_an_aggregate_over_a_join_stays_apart() -> None:
    query = "SELECT COUNT(*) AS n FROM s [NOW], t [NOW] WHERE s.a = t.a"
    assert "WindowAggregate" not in after(query, join_keys, fuse_windows)


# ---------------------------------------------------------------- panes, by lowering


@pytest.mark.parametrize(
    ("window", "pane"), [("6 SLIDE 2", 2), ("10 SLIDE 4", 2), ("2 SLIDE 6", 2), ("7 SLIDE 3", 1)]
)
def test_a_pane_is_the_greatest_common_divisor_of_range_and_slide(window: str, pane: int) -> None:
    query = f"SELECT SUM(b) AS n FROM s [RANGE {window}] WHERE a > 1"
    (sliding,) = [node for node in lowered(query) if isinstance(node, SlidingAggregate)]
    assert sliding.pane == pane


@pytest.mark.parametrize(
    "call", ["COUNT(DISTINCT b)", "SUM(DISTINCT b)", "MEDIAN(b)", "PERCENTILE_DISC(b, 0.9)"]
)
def test_distinct_and_percentiles_have_no_panes(call: str) -> None:
    query = f"SELECT COUNT(*) AS n, {call} AS x FROM s [RANGE 6 SLIDE 2]"
    assert not any(isinstance(node, SlidingAggregate) for node in lowered(query))


@pytest.mark.parametrize("window", ["[RANGE 6]", "[ROWS 6 SLIDE 2]", "[UNBOUNDED]", "[NOW]"])
def test_only_sliding_windows_of_time_have_panes(window: str) -> None:
    query = f"SELECT COUNT(*) AS n FROM s {window}"
    assert not any(isinstance(node, SlidingAggregate) for node in lowered(query))


# ---------------------------------------------------------------- all of them


def test_the_rules_together_leave_nothing_to_do_for_a_second_round() -> None:
    query = "SELECT s.c, COUNT(*) AS n FROM s [RANGE 5], t [RANGE 5] WHERE s.a = t.a AND s.b > 1 GROUP BY s.c"
    once = rewrite(plan_of(query))
    assert rewrite(once) == once
