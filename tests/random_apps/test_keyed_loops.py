"""Loops on shards: those that hand a key on run on many, and answer as the oracle does."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from kasen.cli import load
from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from kasen.plan.explain.fragments import explain_fragments
from kasen.plan.physical import plan_app
from kasen.plan.shard.exchange import is_loop
from kasen.plan.shard.fragments import cut
from kasen.plan.shard.loops import LoopSharding, loop_sharding
from tests.cases_format import Case, all_cases
from tests.paths import EXAMPLES
from tests.random_apps.keyed_loops import keyed_loops
from tests.random_apps.test_apps import check
from tests.test_cases import bind

S = "REGISTER STREAM s (k VARCHAR, v BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');\n"
LAST = "last [PARTITION BY k ROWS 1] AS t"


def shardings(text: str) -> list[LoopSharding]:
    plan = plan_app(bind_text(text))
    return [loop_sharding(plan, stage) for stage in plan.stages() if is_loop(plan, stage)]


@pytest.mark.parametrize("block", range(6))
def test_60_random_keyed_loops_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check(keyed_loops(Random(seed)))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 10))
def test_1000_random_keyed_loops_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        check(keyed_loops(Random(seed)))


def test_most_random_keyed_loops_are_sharded() -> None:
    found = []
    for seed in range(60):
        try:
            found += shardings(keyed_loops(Random(seed)).text)
        except QueryError:
            continue
    assert sum(bool(one.key) for one in found) > len(found) * 0.6


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (f"SELECT t.k, t.v FROM s [NOW] AS n, {LAST} WHERE t.k = n.k", "sharded by k"),
        (f"SELECT t.k, t.v FROM s [ROWS 9] AS n JOIN {LAST} ON t.k = n.k AND t.v < n.v", "sharded by k"),
        (f"SELECT t.k, MAX(t.v) AS v FROM {LAST} GROUP BY t.k", "sharded by k"),
        (
            f"SELECT t.k, t.v FROM {LAST} WHERE NOT EXISTS (SELECT 1 FROM s [NOW] AS n WHERE n.k = t.k)",
            "sharded by k",
        ),
        (
            f"SELECT t.k, t.v FROM s [NOW] AS n, {LAST} WHERE t.v = n.v",
            "one shard (k: a join does not compare it; v: a window does not hand it on)",
        ),
        ("SELECT t.k, t.v FROM last [ROWS 1] AS t", "one shard (k, v: ROWS counts the tuples of all keys)"),
        (
            "SELECT t.k, t.v + 1 AS v FROM last [PARTITION BY v ROWS 1] AS t",
            "one shard (k: a window does not hand it on; v: a SELECT list does not hand it on)",
        ),
        (
            f"SELECT n.k, t.v FROM s [NOW] AS n JOIN {LAST} ON t.k <> n.k",
            "one shard (k: a join does not compare it; v: a window does not hand it on)",
        ),
        (
            "SELECT 'x' AS k, t.v + 1 AS v FROM last [NOW] AS t",
            "one shard (k, v: a SELECT list does not hand it on)",
        ),
    ],
)
def test_whether_a_loop_is_sharded_and_why_not(turn: str, says: str) -> None:
    text = f"{S}REGISTER QUERY last AS ISTREAM(SELECT k, v FROM s [NOW] UNION ALL {turn})<1>;"
    (found,) = shardings(text)
    assert str(found) == says


def test_a_column_that_only_sometimes_equals_the_key_does_not_tell_the_shard() -> None:
    """Inside the loop both columns hold the key, but what comes from outside may have two values."""
    (found,) = shardings(
        "REGISTER STREAM s (k BIGINT, j BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');\n"
        "REGISTER QUERY q AS ISTREAM(SELECT k, j FROM s [NOW]"
        " UNION ALL SELECT k, k AS j FROM q [PARTITION BY k, j ROWS 1])<1>;"
    )
    assert found.key == "k"
    assert set(found.inputs.values()) == {frozenset({0})}


def test_the_desk_stays_on_one_shard_because_its_cash_is_one(tmp_path: Path) -> None:
    desk = EXAMPLES / "trading" / "desk.cql"
    text = explain_fragments(cut(load(desk)))
    assert "shard: one (it is part of a loop)" in text
    assert re.search("^loop of .*cash.*: one shard ", text, re.MULTILINE)


CASES = [case for case in all_cases() if case.section("error") is None]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_plan_can_be_explained_on_shards(case: Case, tmp_path: Path) -> None:
    assert "level 1" in explain_fragments(cut(bind(case, tmp_path)))


def test_a_loop_by_account_lies_on_all_shards(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.name == "delay/loop_by_account"]
    found = cut(bind(case, tmp_path))
    text = explain_fragments(found)
    assert "Exchange: orders by account" in text
    assert "Delay: <Now>; state: tuples on their way; in the loop machine; shard: by account" in text
    assert len(found.fragments[0].others.steps) == len(found.fragments[0].first.steps)
