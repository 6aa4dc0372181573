"""Queries that come and go on shards: what is freed, what is refused, and what a commit record holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError, ResourceError
from kasen.plan.keep.pinned import expression_of, expression_to_json
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.live.limits import StateSize
from kasen.types import BIGINT
from tests.sharded import ShardedPipeline

APP = """
REGISTER STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts RETAIN 5 FROM 'memory';
REGISTER QUERY n AS SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k;
REGISTER QUERY much AS SELECT k, n FROM n WHERE n > 1;
REGISTER QUERY round AS ISTREAM(SELECT v FROM s [NOW] WHERE NOT EXISTS (SELECT 1 FROM round [ROWS 1]))<Now>;
"""


class Feeding:
    """A pipeline on two shards and what it has answered."""

    def __init__(self, app: str = APP) -> None:
        self.pipeline = ShardedPipeline(plan_app(bind_text(app, sniff=lambda *_: BIGINT)), 2)
        self.time = 0
        #: All that queries told: times, sub-times, signs and values.
        self.rows: dict[str, list[list[int]]] = {}

    def feed(self, count: int) -> dict[str, int]:
        """So many more tuples, each at a time of its own; returns how many changes each query told."""
        ts = np.arange(self.time, self.time + count, dtype=np.int64)
        self.time += count
        data = np.stack([ts % 3, ts, ts, np.zeros(count, np.int64)])
        self.pipeline.add("s", InputRows(ts, np.ones(count, np.int64), data, ts))
        told: dict[str, int] = {}
        for answer in self.pipeline.answers():
            for name, batch in answer.changes.items():
                told[name] = told.get(name, 0) + len(batch)
                words = np.vstack([batch.ts, batch.seq_tick, batch.diff, batch.data])
                self.rows.setdefault(name, []).extend(words.T.tolist())
        return told

    @property
    def steps(self) -> int:
        """How many steps all shards have."""
        return sum(len(shard._graph.steps) for shard in self.pipeline._shards.values())


def test_what_queries_had_is_freed_when_they_are_dropped_or_replaced() -> None:
    run = Feeding()
    run.feed(20)
    before = run.steps
    for _ in range(3):
        run.pipeline.execute("REGISTER QUERY sums AS SELECT k, SUM(v) AS v FROM s [RANGE 7] GROUP BY k")
        assert run.feed(10)["sums"] > 0
        came = run.steps
        assert came > before
        run.pipeline.execute(
            "REPLACE QUERY sums AS SELECT k, SUM(v) AS v FROM s [RANGE 7] GROUP BY k HAVING SUM(v) > 3"
        )
        assert run.feed(10)["sums"] > 0
        run.pipeline.execute(
            "REPLACE QUERY sums AS SELECT k, SUM(v) AS v FROM s [RANGE 8] GROUP BY k HAVING SUM(v) > 3"
        )
        assert run.feed(10)["sums"] > 0
        assert run.steps < 2 * came
        run.pipeline.execute("DROP QUERY sums")
        assert "sums" in run.feed(10)  # until the change takes effect
        assert "sums" not in run.feed(10)
        assert run.steps == before
    assert len(run.pipeline.remote.generations) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("REGISTER QUERY b BACKFILL AS SELECT COUNT(*) AS n FROM s [RANGE 5]", "backfilled"),
        ("REPLACE QUERY round AS ISTREAM(SELECT v FROM s [NOW])", "loop"),
        ("REPLACE QUERY n AS SELECT k, COUNT(*) AS n FROM s [RANGE 11] GROUP BY k, v", "much reads n"),
        ("REGISTER QUERY late AS SELECT k FROM s; AT 3 REGISTER QUERY later AS SELECT k FROM s", "times"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(text: str, why: str) -> None:
    run = Feeding()
    run.feed(20)
    saved = json.dumps(run.pipeline.remote.save())
    with pytest.raises(QueryError, match=why):
        run.pipeline.execute(text)
    assert json.dumps(run.pipeline.remote.save()) == saved
    assert run.feed(10)["n"] > 0


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        ("max_queries = 3", StateSize()),
        ("max_groups = 4", StateSize(4)),
        ("max_state_bytes = 9", StateSize(0, 9)),
    ],
)
def test_a_newcomer_is_refused_where_a_limit_is_reached(limit: str, size: StateSize) -> None:
    run = Feeding(f"SET {limit};{APP}")
    run.feed(20)
    run.pipeline.remote.state_size = lambda: size
    with pytest.raises(ResourceError, match=limit.split()[0]):
        run.pipeline.execute("REGISTER QUERY more AS SELECT k FROM s [RANGE 2]")
    run.pipeline.execute("DROP QUERY much")
    assert run.feed(10)["n"] > 0


def test_two_changes_of_one_query_wait_for_one_another() -> None:
    run = Feeding()
    run.feed(20)
    run.pipeline.execute("REGISTER QUERY one AS SELECT k FROM s [RANGE 2]")
    with pytest.raises(QueryError, match="has not run"):
        run.pipeline.execute("DROP QUERY one")
    run.feed(10)
    run.pipeline.execute("DROP QUERY one")


def test_changes_between_two_epochs_are_one_after_the_other_but_at_one_time() -> None:
    texts = [
        "REGISTER QUERY a AS SELECT k, COUNT(*) AS n FROM s [RANGE 5] GROUP BY k",
        "REGISTER QUERY b AS SELECT MAX(n) AS n FROM a",
        "REGISTER QUERY c AS ISTREAM(SELECT n FROM b WHERE n > 1)",
        "DROP QUERY much",
        "REPLACE QUERY n AS SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k HAVING COUNT(*) > 2",
    ]
    one, many = Feeding(), Feeding()
    for run in (one, many):
        run.feed(20)
    (change,) = one.pipeline.execute(";".join(texts))
    for text in texts:
        (each,) = many.pipeline.execute(text)
        assert each.at == change.at
    for run in (one, many):
        run.feed(7)
        run.feed(20)
    assert one.rows == many.rows
    assert len(one.rows["b"]) > 2
    assert {"a", "c", "much", "n"} <= one.rows.keys()
    assert max(ts for ts, *_ in one.rows["much"]) < 20


def test_expressions_by_which_rows_are_split_survive_a_commit_record() -> None:
    text = (
        "REGISTER STREAM s (a BIGINT, t VARCHAR, x DECIMAL(9, 2), ts BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 9] GROUP BY a % 7, UPPER(t), x * 1.50,"
        " CASE WHEN a > 3 THEN 'much' ELSE t END, CAST(a AS DOUBLE);"
    )
    pipeline = ShardedPipeline(plan_app(bind_text(text, sniff=lambda *_: BIGINT)), 2)
    keys = [key for edge in pipeline._fragments.scanned for key in edge.keys]
    assert len(keys) == 5
    again = [expression_of(json.loads(json.dumps(expression_to_json(key)))) for key in keys]
    assert again == keys
