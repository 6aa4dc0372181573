"""How runs are cut so that answers fit into memory, and that answers do not tell."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from kasen.cql.bind.app import bind_text
from kasen.engine.batch import I64
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.output import answers as in_pieces
from kasen.runtime.output.answers import PiecewiseRun
from kasen.runtime.output.pace import MOST_BYTES, Pace
from kasen.runtime.pipeline import Answer, RunningPipeline

APP = """
    REGISTER STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY all_ AS SELECT ts, k FROM s;
    REGISTER QUERY half AS SELECT k FROM s WHERE k < 50;
    REGISTER QUERY counted AS SELECT k, COUNT(*) AS n FROM s [ROWS 10] GROUP BY k;
    REGISTER QUERY early AS SELECT k FROM s WHERE ts < 100;
"""


def fed(times: I64, limit: int = MOST_BYTES) -> RunningPipeline:
    pipeline = RunningPipeline(plan_app(bind_text(APP)))
    pipeline.pace = Pace(limit)
    feed(pipeline, times)
    return pipeline


def feed(pipeline: RunningPipeline, times: I64) -> None:
    count = len(times)
    data = np.stack([times, times * 37 % 100, np.zeros(count, np.int64)])
    pipeline.add("s", InputRows(times, np.ones(count, np.int64), data, range(count)))
    pipeline.advance("s", int(times[-1]) + 1)


def said(answers: Iterable[Answer]) -> dict[str, list[tuple[int, ...]]]:
    """All changes of each query, one after the other."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for answer in answers:
        for name, batch in answer.changes.items():
            rows = zip(batch.ts.tolist(), batch.diff.tolist(), *batch.data.tolist(), strict=True)
            found.setdefault(name, []).extend(rows)
    return found


def test_answers_do_not_tell_how_runs_were_cut() -> None:
    times = np.arange(5000) // 3
    cut = list(fed(times, limit=100_000).answers())
    whole = [fed(times).run()]
    assert len(cut) > 3
    assert said(cut) == said(whole)


def test_a_run_takes_fewer_rows_after_one_that_brought_much() -> None:
    pace = Pace(limit=1 << 20)
    first = pace.most(queries=1)
    pipeline = fed(np.arange(first))
    answer = pipeline.run()
    pace.saw(answer.rows, answer.size)
    assert pace.most(queries=1) < first / 2


def test_a_run_takes_more_rows_step_by_step_after_ones_that_brought_little() -> None:
    pace = Pace(limit=80 * 4096)
    found = []
    for _ in range(4):
        found.append(pace.most(queries=1))
        pace.saw(5000, 0)
    assert found == [4096, 16_384, 65_536, 262_144]


def test_queries_that_come_are_expected_to_say_something_of_every_row() -> None:
    pace = Pace()
    pace.most(queries=10)
    for _ in range(20):
        pace.saw(5000, 0)
    assert pace.most(queries=1000) < 10_000 < pace.most(queries=1000) * 1000


def test_rows_of_one_time_run_together_however_many() -> None:
    times = np.repeat(np.array([1, 2, 3]), 3000)
    cut = list(fed(times, limit=1).answers())
    assert [answer.rows for answer in cut] == [3000, 3000, 3000]


def test_an_epoch_that_is_done_again_is_cut_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_pieces, "_PIECE", 2000)
    monkeypatch.setattr(in_pieces, "_LITTLE", 1 << 18)
    pipeline = fed(np.arange(3000))
    driver = PiecewiseRun(pipeline)
    list(driver.answers())
    state = pipeline.snapshot()
    feed(pipeline, np.arange(3000, 20_000))
    first = [(answer.rows, answer.size) for answer in driver.answers()]
    again = RunningPipeline(plan_app(bind_text(APP)))
    again.restore(state)
    feed(again, np.arange(3000, 20_000))
    assert len(first) > 2
    assert [(answer.rows, answer.size) for answer in PiecewiseRun(again).answers()] == first


def test_pieces_that_are_joined_name_every_query_that_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_pieces, "_PIECE", 1000)
    (answer,) = PiecewiseRun(fed(np.arange(3000))).answers()
    assert set(answer.queries) == set(answer.changes) == {"all_", "half", "counted", "early"}
