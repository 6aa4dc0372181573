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
        ("", "a [RANGE 5], b [RANGE 9]", TWO, "PairJoin k = k over [RANGE 5], [RANGE 9]   -- by k"),
        ("", "a [NOW], b [UNBOUNDED]", TWO, "PairJoin k = k over [NOW], [UNBOUNDED]   -- by k"),
        ("JOIN_TREE", "a [RANGE 5], b [RANGE 9]", TWO, "Join k = k   -- by k"),
        ("JOIN_TREE", "a [ROWS 5], b [RANGE 9]", TWO, "Join k = k   -- by k"),
        ("", "a [ROWS 5], b [RANGE 9]", TWO, "PairJoin k = k over [ROWS 5] by ordinals, [RANGE 9]   -- by k"),
        (
            "",
            "a [ROWS 5], b [ROWS 7]",
            TWO,
            "PairJoin k = k over [ROWS 5] by ordinals, [ROWS 7] by ordinals   -- by k",
        ),
        ("", "a [ROWS 5], b [ROWS 6 SLIDE 2]", TWO, "Join k = k   -- by k"),
        (
            "MJOIN",
            "a [ROWS 5], b [ROWS 6 SLIDE 2]",
            TWO,
            "MJoin k = k over its rows, its rows   -- by k",
        ),
        (
            "",
            "a [ROWS 5], b [ROWS 7]",
            f"{TWO} AND a.v < b.v",
            "Join k = k AND a.v < b.v   -- by k",
        ),
        (
            "",
            "a [PARTITION BY k ROWS 2], b [NOW], c [NOW]",
            THREE,
            "Join k = k   -- by k",
        ),
        (
            "MJOIN",
            "a [PARTITION BY k ROWS 2], b [NOW], c [NOW]",
            THREE,
            "MJoin k = k = k over its rows, [NOW], [NOW]   -- by k",
        ),
        (
            "",
            "a [RANGE 5], b [NOW], c [RANGE 7]",
            THREE,
            "MJoin k = k = k over [RANGE 5], [NOW], [RANGE 7]   -- by k",
        ),
        (
            "",
            "a [RANGE 5], b [ROWS 2], c [NOW]",
            THREE,
            "MJoin k = k = k over [RANGE 5], its rows, [NOW]   -- by k",
        ),
        (
            "PARALLEL_MJOIN",
            "a [RANGE 5], b [NOW], c [NOW]",
            THREE,
            "ParallelMJoin k = k = k over [RANGE 5], [NOW], [NOW]   -- by k",
        ),
        ("PARALLEL_TREES", "a [RANGE 5], b [NOW], c [NOW]", THREE, "Selector of 3 trees   -- by k"),
        ("MJOIN", "a [RANGE 5], b [NOW], c [NOW]", "a.k = b.k AND b.v = c.v", "Join v = v   -- by v"),
    ],
)
def test_a_shard_runs_the_join_that_was_chosen(hint: str, windows: str, where: str, line: str) -> None:
    items = TRIPLES if "c." in where else PAIRS
    text = explained(f"ISTREAM(SELECT /*+ {hint} */ {items} FROM {windows} WHERE {where})")
    assert line in [each.strip() for each in text.splitlines()], text


def test_inputs_of_a_join_are_split_by_the_key_that_all_of_them_share() -> None:
    windows = "a [RANGE 5], b [RANGE 5], c [RANGE 5]"
    text = explained(f"ISTREAM(SELECT {TRIPLES} FROM {windows} WHERE {THREE} AND a.v = b.v)")
    exchanges = sorted(line.strip() for line in text.splitlines() if "exchange" in line)
    assert exchanges == ["exchange a: by k", "exchange b: by k", "exchange c: by k"]
    assert "level 2" not in text
