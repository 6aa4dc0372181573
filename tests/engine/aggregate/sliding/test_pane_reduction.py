"""Sliding aggregates that reduce rows together answer as each does alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import kasen
from kasen.engine.aggregate.sliding import pane_reduction
from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate
from kasen.engine.batch import Batch

STREAM = "REGISTER STREAM s (ts BIGINT, k BIGINT, v BIGINT, w DECIMAL(10, 2)) TIMESTAMP BY ts FROM 'memory';"
WINDOWS = [(10, 10), (60, 10), (20, 30), (35, 5), (15, 10), (7, 20)]  # panes of 10, of 5, and of 1
CALLS = [
    "COUNT(*) AS n, MAX(v) AS top",
    "MIN(v) AS low, SUM(w) AS total",
    "AVG(v) AS mean, COUNT(v) AS n",
    "SUM(v) AS total",
]
ROWS = 6_000


def rows(seed: int, keys: int, most: int) -> pa.Table:
    random = np.random.default_rng(seed)
    ts = np.sort(random.integers(-50, 150, ROWS))
    cents = random.integers(-(10**6), 10**6, ROWS)
    values = random.integers(-most, most, ROWS)
    decimals = pa.array(cents).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.table({"ts": ts, "k": random.integers(0, keys, ROWS), "v": values, "w": decimals})


def answers(table: pa.Table, step: int) -> tuple[list[pa.Table], kasen.Pipeline]:
    p = kasen.Pipeline()
    names: list[str] = []
    text = STREAM
    for calls in CALLS:
        for length, slide in WINDOWS:
            names.append(f"q{len(names)}")
            query = f"SELECT k, {calls} FROM s [RANGE {length} SLIDE {slide}] WHERE v <> 13 GROUP BY k"
            text += f"REGISTER QUERY {names[-1]} AS {query};"
    p.execute(text)
    for first in range(0, ROWS, step):
        p.push("s", table.slice(first, step))
    p.advance("s", 5_000)
    return [p.query(name).to_arrow() for name in names], p


@pytest.mark.parametrize(
    ("keys", "most"), [(3, 100), (15, 100), (2_000, 100), (5, 2**62)], ids=["3", "15", "2000", "great"]
)
def test_together_as_alone(keys: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows(keys, keys, most)
    reduced = []
    reduce = pane_reduction.PaneReduction._reduce

    def counted(self: pane_reduction.PaneReduction, batch: Batch) -> object:
        answer = reduce(self, batch)
        reduced.append(answer is not None)
        return answer

    monkeypatch.setattr(pane_reduction.PaneReduction, "_reduce", counted)
    together, _ = answers(table, 3_000)
    assert any(reduced) == (keys < 2_000)
    reduced.clear()
    alone, _ = answers(table, 100)
    assert not reduced
    assert all(len(each) for each in alone)
    assert together == alone


def test_queries_that_go_leave_the_others_their_reduction() -> None:
    _, p = answers(rows(1, 5, 100), 3_000)
    assert p._running is not None
    sliding = [each for each in p._running.graph.operators if isinstance(each, SharableSlidingAggregate)]
    # Three lengths of panes; the last two lists of calls want the same of them.
    assert len({id(each.windows) for each in sliding}) == 3 * (len(CALLS) - 1)
    for number in range(len(WINDOWS) * len(CALLS)):
        p.execute(f"DROP QUERY q{number}")
    assert not p._running.graph._pool
