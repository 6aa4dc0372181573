"""The engines under test: each makes of a bound app and its folder a result like the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from kasen.connect.chunk import Chunk
from kasen.connect.chunk import DeadLetter as LetterOfChunk
from kasen.connect.decode import decode
from kasen.connect.encode import encode
from kasen.cql.bound import App
from kasen.engine.text.dictionary import FORGOTTEN, Dictionary
from kasen.errors import QueryError
from kasen.plan.physical import Plan, plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.input.reader import Reader
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.pipeline import Answer
from kasen.types import Kind, Schema, Type
from tests.oracle import DeadLetter, OutputRow, Result, run_app
from tests.sharded import ShardedPipeline

if TYPE_CHECKING:
    from kasen.spark.pipeline import SparkRun

Engine = Callable[[App, Path], Result]


def local(batch: int, *, restart: bool = False, joins: str = "") -> Engine:
    """The local engine with epochs of at least `batch` tuples; with `restart`, every epoch on a new run.

    `joins` is the method of all joins.
    """

    def run(app: App, folder: Path) -> Result:
        plan = plan_app(app, joins)
        collected = Collected(plan)
        options = Options(folder, batch=batch)
        engine = LocalRun(plan, options, on_answer=collected.add)
        collected.run = engine
        if restart:
            _restart_every_epoch(engine)
        engine.run()
        dead = [DeadLetter(*letter) for letter in engine.outputs.dead_letters]
        return Result(collected.rows, dead, [])

    return run


def on_shards(batch: int, shards: int, *, restart: bool = False, joins: str = "") -> Engine:
    """The local engine's reading, with clock and fragments on several shards as executors run them.

    `joins` is the method of all joins that can be run by it on shards.
    """

    def run(app: App, folder: Path) -> Result:
        made = partial(ShardedPipeline, shards=shards, restart=restart, joins=joins)
        with patch("kasen.runtime.local.RunningPipeline", made):
            return local(batch)(app, folder)

    return run


def sharded(batch: int, shards: int, *, restart: bool = False, joins: str = "") -> Engine:
    """The same, for cases: what executors refuse is skipped."""
    engine = on_shards(batch, shards, restart=restart, joins=joins)

    def run(app: App, folder: Path) -> Result:
        try:
            return engine(app, folder)
        except QueryError as error:
            if "executors" not in str(error):
                raise
            pytest.skip(str(error))

    return run


def networked(engine: Engine) -> Engine:
    """An engine in which even a single condition on a stream goes through the selection network."""

    def run(app: App, folder: Path) -> Result:
        with patch("kasen.engine.select.network.FEW", 0):
            return engine(app, folder)

    return run


def on_two_cores(engine: Engine) -> Engine:
    """An engine that shares all work that it can between two cores, be it of a few rows."""

    def run(app: App, folder: Path) -> Result:
        changes = {"engine.parallel._WORTH": 4, "engine.parallel._allowed": True}
        with ExitStack() as stack:
            for name, value in {**changes, "runtime.graph.graph.ROWS_PER_STEP": 0}.items():
                stack.enter_context(patch(f"kasen.{name}", value))
            return engine(app, folder)

    return run


def forgetful(engine: Engine) -> Engine:
    """An engine that after every epoch forgets all texts that it can: one that is still held comes out wrong.

    Codes are from 1000 on, so that hardly any other number in these apps is taken for one; and a reader that
    holds a chunk's rows does not hold their texts.
    """
    begin, drop = Dictionary.__init__, Dictionary._drop

    def begin_high(self: Dictionary, *limits: int) -> None:
        begin(self, *limits)
        self.constant("")
        self._texts += [FORGOTTEN] * 999

    def drop_high(self: Dictionary, is_held: npt.NDArray[np.bool_]) -> None:
        drop(self, is_held)
        self._texts += [FORGOTTEN] * (1000 - len(self._texts))
        self._free = [code for code in self._free if code >= 1000]

    def run(app: App, folder: Path) -> Result:
        with ExitStack() as stack:
            stack.enter_context(patch.object(Dictionary, "is_always_due", True))
            stack.enter_context(patch.object(Dictionary, "__init__", begin_high))
            stack.enter_context(patch.object(Dictionary, "_drop", drop_high))
            stack.enter_context(patch("kasen.runtime.local.Reader", ReaderOfTexts))
            return engine(app, folder)

    return run


class ReaderOfTexts(Reader):
    """Looks up the texts of rows when it hands them out, not of a whole chunk."""

    def _open(self, dead: list[LetterOfChunk]) -> Chunk | None:
        with patch("kasen.runtime.input.reader.encode", lambda chunk, _: chunk.data):
            return super()._open(dead)

    def _rows(self, first: int, last: int) -> InputRows:
        rows = super()._rows(first, last)
        assert self._chunk is not None
        data, texts = list(rows.data), {}
        for index, known in self._chunk.texts.items():
            if len(known):
                used, data[index] = np.unique(data[index], return_inverse=True)
                texts[index] = known.take(pa.array(used))
        rows.data = encode(replace(self._chunk, data=data, texts=texts), self._dictionary)
        return rows


class Collected:
    """Gathers a run's answers as the oracle's rows."""

    run: LocalRun | SparkRun

    def __init__(self, plan: Plan) -> None:
        self._app = plan.app
        self.rows: dict[str, list[OutputRow]] = {query.name: [] for query in plan.app.all_queries}

    def add(self, answer: Answer) -> None:
        for name, batch in answer.changes.items():
            query = answer.queries.get(name) or self._app.query(name)
            assert query is not None
            schema = query.schema
            table = decode(batch, schema, self.run.pipeline.dictionary, self._app.time)
            self.rows[name] += _rows(table.columns, schema, self._app.time)


def _rows(columns: list[object], schema: Schema, time: Type) -> list[OutputRow]:
    types = [time, *[None] * 3, *schema.types]
    lists = []
    for column, type_ in zip(columns, types, strict=True):
        if type_ is not None and type_.kind is Kind.TIMESTAMP:
            column = column.cast("int64")  # type: ignore[attr-defined]
        lists.append(column.to_pylist())  # type: ignore[attr-defined]
    return list(zip(*lists, strict=True))


def _restart_every_epoch(engine: LocalRun) -> None:
    """After each epoch all operators are thrown away and made anew from their snapshot."""
    graph = engine.pipeline._graph
    run = graph.run

    def run_and_restart(*args: object, **kwargs: object) -> object:
        answer = run(*args, **kwargs)  # type: ignore[arg-type]
        graph.renew()
        return answer

    graph.run = run_and_restart  # type: ignore[method-assign, assignment]


ENGINES: dict[str, Engine] = {
    "oracle": run_app,
    "local-1": local(1),
    "local-7": local(7),
    "local-all": local(1 << 16),
    "local-1-restarted": local(1, restart=True),
    "local-7-restarted": local(7, restart=True),
    "local-mjoin": local(7, restart=True, joins="MJOIN"),
    "local-parallel-mjoin": local(7, restart=True, joins="PARALLEL_MJOIN"),
    "local-parallel-trees": local(7, restart=True, joins="PARALLEL_TREES"),
    "local-join-tree": local(7, joins="JOIN_TREE"),
    "local-network": networked(local(7)),
    "local-1-forgetful": forgetful(local(1)),
    "local-7-forgetful": forgetful(networked(local(7))),
    "local-two-cores": on_two_cores(networked(local(1 << 16))),
    "sharded-1": sharded(7, 1),
    "sharded-3": sharded(1, 3),
    "sharded-3-restarted": sharded(7, 3, restart=True),
    "sharded-3-forgetful": forgetful(sharded(1, 3)),
    "sharded-mjoin": sharded(7, 3, restart=True, joins="MJOIN"),
    "sharded-parallel-mjoin": sharded(7, 2, restart=True, joins="PARALLEL_MJOIN"),
    "sharded-parallel-trees": sharded(7, 2, restart=True, joins="PARALLEL_TREES"),
    "sharded-join-tree": sharded(7, 3, joins="JOIN_TREE"),
}
