"""By which key a step may be sharded: rows that must meet must have it in common."""

from __future__ import annotations

import pytest

from kasen.plan.logical import Node, Streamify, WindowAggregate, WindowJoin, walk
from kasen.plan.rules.rewrite import rewrite
from kasen.plan.shard.partition import sharding
from tests.plan.outline import plan_of


def shards(query: str, kind: type[Node]) -> str:
    """How the only step of this kind in the query's plan is sharded."""
    (found,) = [node for node in walk(rewrite(plan_of(query))) if isinstance(node, kind)]
    return str(sharding(found))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a, COUNT(*) AS n FROM s [ROWS 5] GROUP BY a", "by a"),
        ("SELECT a, c, COUNT(*) AS n FROM s [ROWS 5] GROUP BY a, c", "by a, c"),
        ("SELECT COUNT(*) AS n FROM s [ROWS 5]", "one shard (an aggregate without GROUP BY is one group)"),
        ("SELECT a, COUNT(*) AS n FROM s [PARTITION BY a ROWS 5] GROUP BY a", "by a"),
    ],
)
def test_an_aggregate_is_sharded_by_its_groups(query: str, expected: str) -> None:
    assert shards(query, WindowAggregate) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Tuples of one partition must meet to tell which are the last, so b may not tell them apart.
        ("SELECT a, b, COUNT(*) AS n FROM s [PARTITION BY a ROWS 5] GROUP BY a, b", "by a"),
        ("SELECT b, COUNT(*) AS n FROM s [PARTITION BY a ROWS 5] GROUP BY b", "one shard"),
    ],
)
def test_an_aggregate_over_partitions_keeps_each_partition_whole(query: str, expected: str) -> None:
    assert shards(query, WindowAggregate).split(" (")[0] == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s.a = t.a", "by s.a"),
        ("s.a = t.a AND s.b = t.b", "by s.a, s.b"),
        ("s.a < t.a", "one shard (no key is common to all inputs of the join)"),
    ],
)
def test_a_join_is_sharded_by_the_keys_of_all_its_inputs(where: str, expected: str) -> None:
    assert shards(f"SELECT s.c FROM s [ROWS 5], t [RANGE 5] WHERE {where}", WindowJoin) == expected


def test_a_join_over_partitions_keeps_each_partition_whole() -> None:
    keyed = "SELECT s.c FROM s [PARTITION BY a, b ROWS 5], t [RANGE 5] WHERE s.a = t.a AND s.ts = t.ts"
    assert shards(keyed, WindowJoin) == "by s.a"
    other = "SELECT s.c FROM s [PARTITION BY c ROWS 5], t [RANGE 5] WHERE s.a = t.a"
    assert shards(other, WindowJoin) == "one shard (PARTITION BY and the join have no key in common)"


def test_a_join_over_partitions_on_both_sides_keeps_both_whole() -> None:
    query = (
        "SELECT s.c FROM s [PARTITION BY a ROWS 5], t [PARTITION BY b ROWS 5] WHERE s.a = t.a AND s.b = t.b"
    )
    assert shards(query, WindowJoin) == "one shard (PARTITION BY and the join have no key in common)"


def test_streams_are_sharded_by_whole_rows_so_that_equal_ones_cancel() -> None:
    assert shards("ISTREAM(SELECT a, b FROM s [ROWS 5])", Streamify) == "by a, b"
