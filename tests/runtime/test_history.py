"""A copy that starts in the middle, with only the input still needed, goes on as the first one does."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from kasen.cli import load
from kasen.connect.decode import decode
from kasen.connect.registry import open_source
from kasen.errors import QueryError
from kasen.plan.history import is_without_history, why_history
from kasen.plan.physical import Plan, plan_app
from kasen.runtime import history
from kasen.runtime.history import History, Restart
from kasen.runtime.input.feed import InputRows, no_rows
from kasen.runtime.input.reader import Reader
from kasen.runtime.pipeline import Answer, RunningPipeline
from tests.random_apps.apps import random_app

Line = tuple[object, ...]
STREAM = "REGISTER STREAM s (a BIGINT) TIMESTAMP BY ts FROM 'memory';\nREGISTER QUERY q AS "


class Copy:
    """A pipeline, fed with the rows of files from given times on, that keeps its answers."""

    def __init__(self, plan: Plan, base: Path, restart: Restart | None) -> None:
        self.pipeline = RunningPipeline(plan)
        self.history = History(plan, self.pipeline, restart)
        self.lines: dict[str, list[Line]] = {query.name: [] for query in plan.app.queries}
        self._plan = plan
        self._rows: dict[str, InputRows] = {}
        for one in plan.app.inputs:
            source = open_source(
                one.connector, base, one.name, one.schema, one.timestamp, is_relation=one.is_relation
            )
            reader = Reader(one.name, source, one.timestamp, self.pipeline.dictionary)
            if one.is_static:
                while (piece := reader.read(None)) is not None:
                    self.pipeline.add(one.name, piece.rows)
                continue
            pieces = []
            while (piece := reader.read(None)) is not None:
                pieces.append(piece.rows)
            rows = ordered(pieces or [no_rows(len(one.schema))], one.slack)
            if restart is not None:
                rows = rows.take(rows.ts >= restart.of(one.name))
            self._rows[one.name] = rows

    def advance(self, ts: int) -> None:
        """Everything below a time runs."""
        for name, rows in self._rows.items():
            self.pipeline.add(name, rows.take(rows.ts < ts))
            self._rows[name] = rows.take(rows.ts >= ts)
            self.pipeline.advance(name, ts)
        self._keep(self.pipeline.run())

    def _keep(self, answer: Answer) -> None:
        for query in self._plan.app.queries:
            batch = answer.changes.get(query.name)
            if batch is not None and len(batch):
                table = decode(batch, query.schema, self.pipeline.dictionary, self._plan.app.time)
                columns = [column.to_pylist() for column in table.columns]
                self.lines[query.name] += [tuple(map(repr, line)) for line in zip(*columns, strict=True)]


def ordered(pieces: list[InputRows], slack: int) -> InputRows:
    """The rows that are not late, in order of time."""
    ts = np.concatenate([piece.ts for piece in pieces])
    data = np.concatenate([piece.data for piece in pieces], axis=1)
    greatest = np.maximum.accumulate(ts)
    kept = ts >= np.concatenate([ts[:1], greatest[:-1]]) - slack
    order = np.argsort(ts[kept], kind="stable")
    ones = np.ones(len(order), np.int64)
    return InputRows(ts[kept][order], ones, np.ascontiguousarray(data[:, kept][:, order]), ones)


def after(lines: list[Line], ts: int) -> list[Line]:
    return [line for line in lines if int(str(line[0])) >= ts]


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_that_starts_in_the_middle_answers_as_the_first_one_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(history, "_MOST_MARKS", 3)
    random = Random(seed)
    app = random_app(random)
    (tmp_path / "app.cql").write_text(app.text)
    app.write(tmp_path)
    try:
        plan = plan_app(load(tmp_path / "app.cql"))
    except QueryError:
        return  # the generator sometimes writes what CQL refuses; the front end's tests look at that
    if why_history(plan) is not None:
        return
    first = Copy(plan, tmp_path, None)
    restarts = []
    end = 40
    for ts in range(-3, end, random.choice([1, 1, 2, 5])):
        first.advance(ts)
        first.history.mark()
        restart = first.history.restart(ts - random.choice([0, 0, 3]))
        if restart is not None:
            restarts.append(restart)
    first.advance(end)
    for restart in restarts:
        copy = Copy(plan, tmp_path, Restart.from_json(restart.as_json()))
        for ts in (restart.at, (restart.at + end) // 2, end):
            copy.advance(ts)
        for name, lines in first.lines.items():
            assert after(copy.lines[name], restart.at) == after(lines, restart.at), (seed, restart, app.text)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("ISTREAM(SELECT * FROM s [NOW] WHERE a > 1)", None),
        ("SELECT SUM(a) AS a FROM s [ROWS 10 SLIDE 3]", None),
        ("ISTREAM(SELECT a FROM s [UNBOUNDED])", None),
        ("SELECT SUM(a) AS a FROM s [UNBOUNDED]", "UNBOUNDED"),
        ("SELECT DISTINCT a FROM s", "UNBOUNDED"),
        ("SELECT * FROM s [PARTITION BY a ROWS 1]", "PARTITION BY"),
        ("ISTREAM(SELECT a FROM s [NOW] UNION ALL SELECT a + 1 FROM q [NOW] WHERE a < 3)<1>", "loop"),
    ],
)
def test_a_plan_says_why_it_cannot_be_rebuilt(query: str, why: str | None, tmp_path: Path) -> None:
    (tmp_path / "app.cql").write_text(STREAM + query)
    reason = why_history(plan_app(load(tmp_path / "app.cql")))
    assert reason is None if why is None else reason is not None and why in reason


@pytest.mark.parametrize(
    ("query", "without"),
    [
        ("ISTREAM(SELECT * FROM s [NOW] WHERE a > 1)", True),
        ("ISTREAM(SELECT a FROM s [UNBOUNDED])", True),
        ("ISTREAM(SELECT a FROM s [ROWS 1])", False),
        ("SELECT COUNT(*) AS n FROM s [NOW]", False),
    ],
)
def test_only_selections_are_without_history(query: str, without: bool, tmp_path: Path) -> None:
    (tmp_path / "app.cql").write_text(STREAM + query)
    assert is_without_history(plan_app(load(tmp_path / "app.cql"))) is without
