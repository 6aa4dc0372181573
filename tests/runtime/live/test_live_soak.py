"""Many queries that come, change and go under load, with restarts: exact answers, and nothing grows."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from kasen.cql.bind.app import bind_text
from kasen.engine.batch import Batch
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.pipeline import RunningPipeline

APP = "REGISTER STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';"
EACH, SLIDE = 5, 4


@dataclass(frozen=True)
class Counting:
    """Counts the tuples of a key above a value, in a window; or those of each key, in a sliding one."""

    k: int
    v: int
    panes: int = 0

    @property
    def text(self) -> str:
        if self.panes:
            return f"SELECT COUNT(*) AS n, k FROM s [RANGE {self.panes * SLIDE} SLIDE {SLIDE}] GROUP BY k"
        return f"SELECT COUNT(*) AS n FROM s [RANGE 20] WHERE k = {self.k} AND v > {self.v}"

    def counted(self, history: list[tuple[int, int, int]], since: int, now: int) -> int:
        """What such a query holds after all instants below `now`, if it began at `since`."""
        if self.panes:
            end = (now - 1) // SLIDE * SLIDE
            return sum(max(since, end - self.panes * SLIDE) <= ts < end for ts, _, _ in history)
        first = max(since, now - 1 - 20)
        return sum(ts >= first and key == self.k and value > self.v for ts, key, value in history)


def any_query(random: Random) -> Counting:
    if random.random() < 0.5:
        return Counting(0, 0, random.randrange(1, 6))
    return Counting(random.randrange(4), random.randrange(100))


def soak(operations: int, seed: int) -> None:
    random = Random(seed)
    plan = plan_app(bind_text(APP))
    pipeline = RunningPipeline(plan)
    history: list[tuple[int, int, int]] = []
    live: dict[str, tuple[int, Counting]] = {}
    held: dict[str, int] = {}
    now, steps, sizes = 0, 0, []
    for done in range(operations):
        verb = random.choice(("REGISTER", "REGISTER", "REPLACE", "DROP"))
        if verb == "REGISTER" and len(live) < 40:
            name = f"q{done}"
            query = any_query(random)
            pipeline.execute(f"REGISTER QUERY {name} AS {query.text}")
            live[name] = (now, query)
            held[name] = 0
        elif live and verb == "REPLACE":
            name = random.choice(sorted(live))
            query = any_query(random)
            if query.panes != live[name][1].panes and 0 in (query.panes, live[name][1].panes):
                query = live[name][1]  # of other columns: those who read it would not fit
            pipeline.execute(f"REPLACE QUERY {name} AS {query.text}")
            since = live[name][0] if live[name][1] == query else now
            live[name] = (since, query)
        elif live:
            name = random.choice(sorted(live))
            pipeline.execute(f"DROP QUERY {name}")
            del live[name], held[name]
        if random.random() < 0.02:  # the machine goes down
            state = pipeline.snapshot()
            pipeline = RunningPipeline(plan)
            pipeline.restore(state)
        rows = [(now + i // 2, random.randrange(4), random.randrange(100)) for i in range(EACH)]
        now = rows[-1][0] + 1
        history = [one for one in history if one[0] > now - 60] + rows
        answer = _push(pipeline, rows, now)
        for name, batch in answer.items():
            for diff, n in zip(batch.diff.tolist(), batch.column(0).tolist(), strict=True):
                held[name] += diff * n
        for name, (since, query) in live.items():
            assert held[name] == query.counted(history, since, now), (seed, done, name)
        steps = max(steps, len(pipeline.graph.operators))
        sizes.append(sum(a.nbytes for part in pipeline.snapshot().values() for a in part.values()))
    assert steps < 40 * 6
    third = len(sizes) // 3
    assert max(sizes[-third:]) < 2 * max(sizes[third : 2 * third])


def _push(pipeline: RunningPipeline, rows: list[tuple[int, int, int]], upto: int) -> dict[str, Batch]:
    ts, k, v = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    zeros = np.zeros(len(rows), np.int64)
    pipeline.add("s", InputRows(ts, zeros + 1, np.stack([k, v, ts, zeros]), np.arange(len(rows))))
    pipeline.advance("s", upto)
    found: dict[str, Batch] = {}
    for answer in pipeline.answers():
        found |= answer.changes
    return found


def test_queries_come_change_and_go_under_load_and_nothing_grows() -> None:
    soak(300, seed=1)


@pytest.mark.soak
def test_ten_thousand_changes_under_load() -> None:
    soak(10_000, seed=2)
