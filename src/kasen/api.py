"""The Python API: pipelines that a program feeds and reads.

p = kasen.Pipeline(engine="local")
p.execute('''
    REGISTER STREAM bids (item BIGINT, price BIGINT) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY best AS SELECT item, MAX(price) AS price FROM bids [RANGE 10] GROUP BY item;
''')
p.push("bids", [{"ts": 1, "item": 7, "price": 100}])
p.advance("bids", 2)
print(p.query("best").to_arrow())
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kasen.connect.chunk import DeadLetter
from kasen.connect.decode import decode, output_schema
from kasen.connect.encode import encode
from kasen.connect.memory import chunk_of
from kasen.connect.registry import layout_of, open_source
from kasen.connect.sniff import sniffer
from kasen.cql.bind import bind_text
from kasen.cql.bound import App, Input, RegisteredQuery
from kasen.cql.literals import parse_timestamp
from kasen.errors import DataError
from kasen.plan.explain import explain
from kasen.plan.physical import plan_app
from kasen.runtime.feed import Rows
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.outputs import Outputs
from kasen.runtime.pipeline import Answer
from kasen.runtime.pipeline import Pipeline as Running
from kasen.runtime.reader import Reader
from kasen.types import TIMESTAMP

ForeachBatch = Callable[[int, pa.Table], None]
Time = int | str | datetime


class Query:
    """A registered query's answers: changes as Arrow tables with columns ts, seq, tick, diff, and its own.

    Every change is handed out once, to whichever of the ways below asks first.
    """

    def __init__(self, registered: RegisteredQuery, time_type: Any, owner: Pipeline) -> None:
        self._registered = registered
        self._schema = output_schema(registered.schema, time_type)
        self._owner = owner
        self._tables: deque[pa.Table] = deque()
        self._arrived = threading.Condition()
        self._callbacks: list[ForeachBatch] = []

    @property
    def name(self) -> str:
        return self._registered.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes."""
        return self._schema

    def to_arrow(self) -> pa.Table:
        """All changes that have not been handed out yet, as one table."""
        with self._arrived:
            tables = list(self._tables)
            self._tables.clear()
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes epoch by epoch.

        While the pipeline runs in the background (after `start`) this waits for more until it ends; otherwise
        it hands out what is there.
        """
        while True:
            with self._arrived:
                while not self._tables and self._owner.running:
                    self._arrived.wait(0.1)
                if not self._tables:
                    return
                table = self._tables.popleft()
            yield table

    def foreach_batch(self, function: ForeachBatch) -> Query:
        """From now on calls `function(epoch, changes)` instead of keeping changes."""
        self._callbacks.append(function)
        return self

    def _deliver(self, epoch: int, table: pa.Table) -> None:
        if self._callbacks:
            for function in self._callbacks:
                function(epoch, table)
            return
        with self._arrived:
            self._tables.append(table)
            self._arrived.notify_all()


class Pipeline:
    """Streams and continuous queries, running in this process.

    Register with `execute`. Then either `push` rows yourself and get answers at once, or let the
    pipeline read its files: `drain` runs to the end of the input, `start` does so in the background.
    """

    def __init__(
        self,
        engine: Literal["local"] = "local",
        base: str | Path = ".",
        batch: int = 1 << 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if batch < 1:
            raise DataError("batch must be at least 1")
        if engine != "local":
            raise DataError(f"Pipeline runs on the local engine for now, not on {engine!r}: see `kasen run`")
        self._base = Path(base)
        self._batch = batch
        self._text = ""
        self._app: App | None = None
        self._running: Running | None = None
        self._outputs: Outputs | None = None
        self._job: LocalRun | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._drained = False
        self._queries: dict[str, Query] = {}
        self._pushed: dict[str, int] = {}
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._epoch = 0

    # ------------------------------------------------------------ control

    def execute(self, text: str) -> Pipeline:
        """Registers what the CQL text says; a QueryError leaves everything as it was."""
        if self._running is not None:
            raise DataError("queries can be registered before the first push, start or drain")
        whole = f"{self._text}\n{text}" if self._text else text
        self._app = bind_text(whole, self._base, sniff=sniffer(self._base))
        self._text = whole
        for query in self._app.queries:
            known = self._queries.get(query.name.lower())
            if known is None or known._registered != query:
                self._queries[query.name.lower()] = Query(query, self._app.time, self)
        return self

    @property
    def app(self) -> App:
        if self._app is None:
            raise DataError("nothing is registered yet: call execute('REGISTER STREAM ...') first")
        return self._app

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.app.warnings

    def explain(self) -> str:
        """The plan, as `kasen explain` prints it."""
        return explain(self.app)

    def query(self, name: str) -> Query:
        """A registered query's answers."""
        found = self._queries.get(name.lower())
        if found is None:
            known = ", ".join(query.name for query in self._queries.values()) or "none yet"
            raise DataError(f"no query {name!r}; registered are: {known}")
        return found

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The rows that were refused, with the reason."""
        outputs = self._job.outputs if self._job is not None else self._outputs
        return list(outputs.dead_letters) if outputs is not None else []

    @property
    def running(self) -> bool:
        """Whether the pipeline runs in the background."""
        return self._thread is not None and self._thread.is_alive()

    # ------------------------------------------------------------ pushing

    def push(self, stream: str, rows: Any) -> Pipeline:
        """Rows for a stream: dicts, a dict of columns, an Arrow table or a data frame. Answers come at once.

        An instant is answered when every stream's frontier is past it: push later rows, or `advance`.
        """
        one = self._input(stream)
        if one.connector.format != "memory":
            raise DataError(
                f"{one.name} is read from {one.connector.format}; register it FROM 'memory' to push it"
            )
        running = self._open()
        layout = layout_of(one.connector, one.name, one.schema, one.timestamp, one.is_relation)
        before = self._pushed.get(one.name, 0)
        chunk = chunk_of(layout, rows, before)
        self._pushed[one.name] = before + len(chunk) + len(chunk.dead)
        data = encode(chunk, running.dictionary)
        if one.timestamp is not None:
            ts = data[one.timestamp]
        else:
            # Arrival time: stamped once, here, at the edge. A static table has none.
            ts = np.full(len(chunk), 0 if one.is_relation else self._now(), np.int64)
        positions = np.arange(before, before + len(chunk), dtype=np.int64)
        assert self._outputs is not None
        self._outputs.take(one.name, Rows(ts, chunk.diff, data, positions), chunk.dead, chunk, before)
        self._heard[one.name] = self._clock()
        return self.poll()

    def advance(self, stream: str, ts: Time) -> Pipeline:
        """Punctuation: no row of this stream with a time below `ts` will come any more."""
        one = self._input(stream)
        running = self._open()
        running.advance(one.name, self._time(ts))
        return self.poll()

    def poll(self) -> Pipeline:
        """Answers what is complete by now; a stream silent for its IDLE no longer holds others back.

        `push` and `advance` do this too; call it from time to time if all streams may fall silent.
        """
        running = self._open()
        now = self._clock()
        for one in self.app.inputs:
            silent = now - self._heard.setdefault(one.name, now)
            if one.idle is not None and silent * 1e6 >= one.idle:
                running.skip(one.name)
        assert self._outputs is not None
        self._outputs.deliver(running.run())
        return self

    def _now(self) -> int:
        return time.time_ns() // 1000

    def _time(self, ts: Time) -> int:
        """A time as the app counts it; zoned ones are taken in UTC, as rows' are."""
        if isinstance(ts, int) and not isinstance(ts, bool):
            return ts
        parsed = None
        if self.app.time == TIMESTAMP and isinstance(ts, datetime):
            naive = ts if ts.tzinfo is None else ts.astimezone(UTC).replace(tzinfo=None)
            parsed = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        elif self.app.time == TIMESTAMP and isinstance(ts, str):
            parsed = parse_timestamp(ts)
        if parsed is None:
            form = "YYYY-MM-DD HH:MM:SS, a datetime or µs" if self.app.time == TIMESTAMP else "a whole number"
            raise DataError(f"{ts!r} is not a time: this app's are {form}")
        return parsed

    def _input(self, name: str) -> Input:
        found = self.app.input(name)
        if found is None:
            known = ", ".join(one.name for one in self.app.inputs) or "none yet"
            raise DataError(f"no stream {name!r}; registered are: {known}")
        return found

    def _open(self) -> Running:
        """The running pipeline of a program that pushes; starts it on first use."""
        if self._drained:
            raise DataError("this pipeline has been drained: nothing can be pushed any more")
        if self._job is not None:
            raise DataError("this pipeline reads its sources itself (start, drain): nothing can be pushed")
        if self._running is None:
            plan = plan_app(self.app)
            self._running = Running(plan)
            self._outputs = Outputs(
                plan, self._running, self._base, None, {}, lambda _: None, self._on_answer
            )
            self._load_tables()
        return self._running

    def _load_tables(self) -> None:
        """Static tables come from their files; streams beside pushed ones must be pushed too."""
        assert self._running is not None
        assert self._outputs is not None
        for one in self.app.inputs:
            if one.connector.format == "memory":
                continue
            if not one.is_static:
                form = one.connector.format
                raise DataError(f"{one.name} is read from {form}: it cannot stand beside pushed streams")
            source = open_source(one.connector, self._base, one.name, one.schema, is_relation=True)
            reader = Reader(one.name, source, None, self._running.dictionary)
            while (piece := reader.read(None)) is not None:
                self._outputs.take(one.name, piece.rows, piece.dead, piece.chunk, piece.offset)

    # ------------------------------------------------------------ running

    def drain(self) -> Pipeline:
        """Runs to the end of the input and returns when every answer is out."""
        if self._thread is not None:
            self._thread.join()
        elif self._outputs is not None:
            if not self._drained:
                self._end_of_pushes()
        else:
            self._run_job()
        if self._error is not None:
            raise self._error
        return self

    def start(self) -> Pipeline:
        """Reads the sources in the background until they end or `stop` is called."""
        if self._outputs is not None:
            raise DataError("rows were pushed to this pipeline: drain it, or start a new one for its files")
        if self._thread is None:
            self._make_job()
            self._thread = threading.Thread(target=self._run_job, name="kasen", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends a background run after the epoch that is running, with all sinks flushed."""
        if self._job is not None:
            self._job.stop()
        if self._thread is not None:
            self._thread.join()
        if self._outputs is not None and not self._drained:
            self._outputs.committed()

    def _end_of_pushes(self) -> None:
        assert self._running is not None
        assert self._outputs is not None
        for one in self.app.inputs:
            self._running.end(one.name)
        self._outputs.deliver(self._running.run())
        if self.app.setting("flush") == "true":
            for answer in self._running.flush():
                self._outputs.deliver(answer)
        self._outputs.close()
        self._drained = True

    def _make_job(self) -> LocalRun:
        if self._job is None:
            options = Options(self._base, batch=self._batch)
            self._job = LocalRun(plan_app(self.app), options, on_answer=self._on_answer)
            self._running = self._job.pipeline
        return self._job

    def _run_job(self) -> None:
        try:
            self._make_job().run()
        except Exception as error:  # also one from a caller's own function: `drain` must not hide it
            self._error = error
            if self._thread is None:
                raise

    def _on_answer(self, answer: Answer) -> None:
        assert self._running is not None
        self._epoch += 1
        for registered in self.app.queries:
            batch = answer.changes.get(registered.name)
            if batch is not None and len(batch):
                table = decode(batch, registered.schema, self._running.dictionary, self.app.time)
                self._queries[registered.name.lower()]._deliver(self._epoch, table)
