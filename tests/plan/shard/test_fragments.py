"""What shards run: the operator that a hint or the planner chose, where a key is common to all inputs."""

from __future__ import annotations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.plan.explain.fragments import explain_fragments
from kasen.plan.shard.fragments import cut

STREAMS = "".join(
    f"REGISTER STREAM {name} (k BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path '{name}.csv');"
    for name in "abc"
)
TWO, THREE = "a.k = b.k", "a.k = b.k AND b.k = c.k"
PAIRS, TRIPLES = "a.k, a.v AS x, b.v AS y", "a.k, a.v AS x, b.v AS y, c.v AS z"


def explained(query: str) -> str:
    return explain_fragments(cut(bind_text(f"{STREAMS} REGISTER QUERY q AS {query};")))


@pytest.mark.parametrize(
    ("hint", "windows", "where", "line"),
    [
        ("", "a [RANGE 5], b [RANGE 9]", TWO, "PairJoin: a.k = b.k; windows: [RANGE 5], [RANGE 9]"),
        ("", "a [NOW], b [UNBOUNDED]", TWO, "PairJoin: a.k = b.k; windows: [NOW], [UNBOUNDED]"),
        ("JOIN_TREE", "a [RANGE 5], b [RANGE 9]", TWO, "HashJoin: a.k = b.k"),
        ("JOIN_TREE", "a [ROWS 5], b [RANGE 9]", TWO, "HashJoin: a.k = b.k"),
        (
            "",
            "a [ROWS 5], b [RANGE 9]",
            TWO,
            "CountedPairJoin: a.k = b.k; windows: [ROWS 5] by ordinals, [RANGE 9]",
        ),
        (
            "",
            "a [ROWS 5], b [ROWS 7]",
            TWO,
            "CountedPairJoin: a.k = b.k; windows: [ROWS 5] by ordinals, [ROWS 7] by ordinals",
        ),
        ("", "a [ROWS 5], b [ROWS 6 SLIDE 2]", TWO, "HashJoin: a.k = b.k"),
        (
            "MJOIN",
            "a [ROWS 5], b [ROWS 6 SLIDE 2]",
            TWO,
            "MJoin: a.k = b.k; windows: rows of the input, rows of the input",
        ),
        ("", "a [ROWS 5], b [ROWS 7]", f"{TWO} AND a.v < b.v", "HashJoin: a.k = b.k; filter: a.v < b.v"),
        ("", "a [PARTITION BY k ROWS 2], b [NOW], c [NOW]", THREE, "HashJoin: a.k = c.k"),
        (
            "MJOIN",
            "a [PARTITION BY k ROWS 2], b [NOW], c [NOW]",
            THREE,
            "MJoin: a.k = b.k = c.k; windows: rows of the input, [NOW], [NOW]",
        ),
        (
            "",
            "a [RANGE 5], b [NOW], c [RANGE 7]",
            THREE,
            "MJoin: a.k = b.k = c.k; windows: [RANGE 5], [NOW], [RANGE 7]",
        ),
        (
            "",
            "a [RANGE 5], b [ROWS 2], c [NOW]",
            THREE,
            "MJoin: a.k = b.k = c.k; windows: [RANGE 5], rows of the input, [NOW]",
        ),
        (
            "PARALLEL_MJOIN",
            "a [RANGE 5], b [NOW], c [NOW]",
            THREE,
            "ParallelMJoin: a.k = b.k = c.k; windows: [RANGE 5], [NOW], [NOW]",
        ),
        ("PARALLEL_TREES", "a [RANGE 5], b [NOW], c [NOW]", THREE, "TreeSelector: 3 trees"),
        ("MJOIN", "a [RANGE 5], b [NOW], c [NOW]", "a.k = b.k AND b.v = c.v", "HashJoin: b.v = c.v"),
    ],
)
def test_a_shard_runs_the_join_that_was_chosen(hint: str, windows: str, where: str, line: str) -> None:
    items = TRIPLES if "c." in where else PAIRS
    text = explained(f"ISTREAM(SELECT /*+ {hint} */ {items} FROM {windows} WHERE {where})")
    (found,) = [each.strip() for each in text.splitlines() if each.strip().startswith(f"{line};")]
    assert found.endswith("; shard: by v" if line.startswith("HashJoin: b.v") else "; shard: by k"), text


def test_inputs_of_a_join_are_split_by_the_key_that_all_of_them_share() -> None:
    windows = "a [RANGE 5], b [RANGE 5], c [RANGE 5]"
    text = explained(f"ISTREAM(SELECT {TRIPLES} FROM {windows} WHERE {THREE} AND a.v = b.v)")
    exchanges = sorted(line.strip() for line in text.splitlines() if "Exchange" in line)
    assert exchanges == ["Exchange: a by k", "Exchange: b by k", "Exchange: c by k"]
    assert "level 2" not in text


def shard_of(algorithm: str, query: str) -> str:
    """How the only step of this name lies on shards."""
    (line,) = [line for line in explained(query).splitlines() if line.strip().startswith(f"{algorithm}:")]
    return line.partition("shard: ")[2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, COUNT(*) AS n FROM a [ROWS 5] GROUP BY k", "by k"),
        ("SELECT k, v, COUNT(*) AS n FROM a [ROWS 5] GROUP BY k, v", "by k, v"),
        ("SELECT COUNT(*) AS n FROM a [ROWS 5]", "one"),
        # Tuples of one partition must meet to tell which are the last, so v may not tell them apart.
        ("SELECT k, v, COUNT(*) AS n FROM a [PARTITION BY k ROWS 5] GROUP BY k, v", "by k"),
        ("SELECT v, COUNT(*) AS n FROM a [PARTITION BY k ROWS 5] GROUP BY v", "by v"),
    ],
)
def test_an_aggregate_is_sharded_by_its_groups(query: str, expected: str) -> None:
    assert shard_of("HashAggregate", query) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a.k = b.k", "by k"),
        ("a.k = b.k AND a.v = b.v", "by k, v"),
        ("a.k < b.k", "one (no key is common to all inputs of the join)"),
    ],
)
def test_a_join_is_sharded_by_its_keys(where: str, expected: str) -> None:
    query = f"SELECT a.v FROM a [RANGE 5], b [RANGE 9] WHERE {where}"
    assert shard_of("HashJoin", query) == expected


def test_the_reason_for_one_shard_stands_where_rows_come_together() -> None:
    text = explained("ISTREAM(SELECT COUNT(*) AS n FROM a [RANGE 5])")
    lines = [line.strip() for line in text.splitlines() if "shard: one" in line]
    assert [line.endswith("shard: one") for line in lines] == [True, True, True, False]
    assert lines[-1] == "Project: no columns; shard: one (an aggregate without GROUP BY is one group)"


def test_streams_are_sharded_by_whole_rows_so_that_equal_ones_cancel() -> None:
    assert shard_of("IStream", "ISTREAM(SELECT v, k FROM a [RANGE 5])") == "by whole rows"
