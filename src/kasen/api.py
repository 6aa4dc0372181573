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
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import pyarrow as pa

from kasen.aggregates import UserAggregate
from kasen.connect.chunk import DeadLetter
from kasen.connect.decode import Decoder, output_schema
from kasen.connect.plain import Change, ChangeReader
from kasen.connect.registry import open_source
from kasen.connect.sniff import sniffer
from kasen.cql.bind.app import bind_text
from kasen.cql.bind.expr.user_aggregates import by_name
from kasen.cql.bound import App, Input, Register, RegisteredQuery
from kasen.cql.bound import CatalogChange as QueryChange
from kasen.cql.parse.literals import parse_timestamp
from kasen.engine.batch import Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError
from kasen.plan.explain.explain import explain
from kasen.plan.physical import plan_app
from kasen.runtime.input.arrival import ArrivalClock
from kasen.runtime.input.inlet import Inlet
from kasen.runtime.input.pressure import Admission, Pushed
from kasen.runtime.input.reader import Reader
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.output.kept import AnswerStore, StoredAnswer
from kasen.runtime.pipeline import Answer
from kasen.runtime.pipeline import RunningPipeline as Running
from kasen.runtime.pushed import OUTPUT_ROWS, PushedRun
from kasen.types import TIMESTAMP, Kind

ForeachBatch = Callable[[int, pa.Table], None]
ForeachFrame = Callable[[int, "Frame"], None]
if TYPE_CHECKING:  # Spark is loaded when it is first used
    from kasen.spark.pipeline import SparkRun
    from kasen.spark.scan.sources import Frame

Time = int | str | datetime
_Unread = tuple[StoredAnswer, Dictionary]

#: So many queries that were dropped can still be asked for; beyond that, those with unread changes.
_MOST_DROPPED = 100


class Query:
    """A registered query's answers: changes as Arrow tables with columns ts, seq, tick, diff, and its own.

    Every change is handed out once, to whichever of the ways below asks first.
    """

    def __init__(self, registered: RegisteredQuery, time_type: Any, owner: Pipeline) -> None:
        self._registered = registered
        self._schema = output_schema(registered.schema, time_type)
        self._owner = owner
        self._time = time_type
        #: Changes nobody has read yet, each with the dictionary of its texts.
        self._batches: deque[_Unread] = deque()
        self._has_texts = any(field.type.kind is Kind.VARCHAR for field in registered.schema)
        self._decoder: tuple[Decoder, ChangeReader, Dictionary] | None = None
        self._waiting = 0
        self._discards = False
        self._reader: int | None = None
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
        tables = [self._reader_of(texts)[0].table(kept.batch()) for kept, texts in self._take_all()]
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def changes(self) -> list[Change]:
        """All changes that have not been handed out yet, as Python's values: the quickest way for a few."""
        found = self._take_all()
        return [each for kept, texts in found for each in self._reader_of(texts)[1].changes(kept.batch())]

    def _take_all(self) -> list[_Unread]:
        batches: list[_Unread] = []
        self._reader = threading.get_ident()
        while True:
            with self._arrived:
                if not self._batches:
                    return batches
                batches += self._batches
                self._batches.clear()
                self._waiting = 0
                self._arrived.notify_all()
            self._owner._make_room()

    def _reader_of(self, texts: Dictionary) -> tuple[Decoder, ChangeReader, Dictionary]:
        """What makes tables, or Python's values, of changes whose texts are there."""
        if self._decoder is None or self._decoder[2] is not texts:
            schema, time_type = self._registered.schema, self._time
            self._decoder = Decoder(schema, texts, time_type), ChangeReader(schema, time_type, texts), texts
        return self._decoder

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes epoch by epoch.

        While the pipeline runs in the background (after `start`) this waits for more until it ends, and
        raises what ended it if that was an error; otherwise it hands out what is there.
        """
        while True:
            with self._arrived:
                self._reader = threading.get_ident()
                while not self._batches and self._owner.running:
                    self._arrived.wait(0.1)
                if not self._batches:
                    self._owner._tell_error()
                    return
                kept, texts = self._batches.popleft()
                self._waiting -= len(kept)
                self._arrived.notify_all()
            self._owner._make_room()
            yield self._reader_of(texts)[0].table(kept.batch())

    def foreach_batch(self, function: ForeachBatch | ForeachFrame, *, frames: bool = False) -> Query:
        """From now on calls `function(epoch, changes)` instead of keeping changes.

        They come as an Arrow table; with `frames`, for engine='spark', as a DataFrame.
        """
        if frames:
            self._owner._need_spark()
            self._callbacks.append(lambda epoch, table: function(epoch, self._owner._frame(table)))
        else:
            self._callbacks.append(function)
        return self

    def discard(self) -> Query:
        """From now on keeps nothing: for a query that only others read, or that has a sink of its own."""
        self._discards = True
        with self._arrived:
            self._batches.clear()
            self._waiting = 0
        self._owner._make_room()
        return self

    @property
    def waiting(self) -> int:
        """How many changes wait to be read."""
        return self._waiting

    @property
    def _is_needed(self) -> bool:
        """Whether something is unread, or the program has said what to do with changes."""
        return self._waiting > 0 or not self._keeps

    @property
    def _keeps(self) -> bool:
        """Whether changes are kept for a reader, or handed on at once."""
        return not self._callbacks and not self._discards

    @property
    def _is_read_elsewhere(self) -> bool:
        """Whether waiting here for its reader makes sense."""
        return self._reader is not None and self._reader != threading.get_ident()

    def _wait_for_room(self, most: int) -> None:
        """For a thread that reads files: it goes on when the reader has caught up, or the run is stopped."""
        with self._arrived:
            while self._waiting >= most and not self._owner._stopped:
                self._arrived.wait(0.1)

    def _deliver(self, epoch: int, batch: Batch) -> None:
        texts = self._owner._texts
        if self._callbacks:
            table = self._reader_of(texts)[0].table(batch)
            for function in self._callbacks:
                function(epoch, table)
        if self._keeps:
            with self._arrived:
                # Made Arrow or Python's values when asked for.
                if self._has_texts:
                    texts.keep(batch.data)
                    kept = StoredAnswer(Batch(batch.ts, batch.seq_tick, batch.diff, batch.data))
                else:
                    kept = self._owner._keeper.keep(batch)
                self._batches.append((kept, texts))
                self._waiting += len(batch)
                self._arrived.notify_all()


class Pipeline:
    """Streams and continuous queries, running in this process.

    Register with `execute`. Then either `push` rows yourself and get answers at once, or let the
    pipeline read its files: `drain` runs to the end of the input, `start` does so in the background.
    """

    def __init__(
        self,
        engine: Literal["local", "spark"] = "local",
        base: str | Path = ".",
        batch: int = 1 << 16,
        clock: Callable[[], float] = time.monotonic,
        patience: float = 60.0,
        shed_log: str | Path | None = None,
        replay: str | Path | None = None,
        master: str | None = None,
        checkpoint: str | Path | None = None,
        files_per_epoch: int | None = None,
    ) -> None:
        """On Spark, `master` names one (the session that is there, or an embedded one, if None); with a
        `checkpoint`, a folder or an address that all hosts reach, a run goes on where the last one ended; an
        epoch takes `files_per_epoch` files.

        `patience` is how long, in seconds, a push waits for readers that make no progress.

        Rows that ON PRESSURE refuses are written to `shed_log`; a pipeline with that file as `replay` that is
        pushed the same rows refuses the same ones, and no others.
        """
        if batch < 1:
            raise DataError("batch must be at least 1")
        if engine not in ("local", "spark"):
            raise DataError(f"there is no engine {engine!r}; there are 'local' and 'spark'")
        if engine == "local" and (master or checkpoint or files_per_epoch):
            raise DataError("master, checkpoint and files_per_epoch are for engine='spark'")
        self._engine = engine
        self._master = master
        self._checkpoint = checkpoint
        self._files_per_epoch = files_per_epoch
        self._frames: dict[str, Frame] = {}
        self._base = Path(base)
        self._batch = batch
        self._text = ""
        self._aggregates: dict[str, UserAggregate] = {}
        self._app: App | None = None
        self._running: Running | None = None
        self._patience = patience
        self._shed_log = Path(shed_log) if shed_log is not None else None
        self._replay = Path(replay) if replay is not None else None
        self._pushing: PushedRun | None = None
        self._job: LocalRun | SparkRun | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._is_told = False
        self._drained = False
        self._queries: dict[str, Query] = {}
        #: Queries that were dropped and can be asked for, the one to look at next first; and others, as long
        #: as somebody holds them.
        self._dropped: dict[str, None] = {}
        self._left: WeakValueDictionary[str, Query] = WeakValueDictionary()
        self._keeper = AnswerStore()
        self._inlets: dict[str, Inlet] = {}
        self._clock = clock
        self._arrival = ArrivalClock()
        self._may_idle: list[Input] = []
        self._heard: dict[str, float] = {}
        self._epoch = 0
        self._most = OUTPUT_ROWS
        self._stopped = False

    # ------------------------------------------------------------ control

    def execute(self, text: str) -> Pipeline:
        """Registers, replaces or drops what the CQL text says; a QueryError leaves everything as it was.

        While data flows this changes queries only. It takes effect between two instants: what has been
        answered stays, and what comes from then on is answered by the queries that are there then.
        """
        if self._running is not None:
            if self._job is not None:
                raise DataError("a pipeline that reads its sources itself is changed through `kasen ctl`")
            assert self._pushing is not None
            waiting = self._pushing.pipeline
            self._pushing.execute(text, lambda each: self._follow(each, made=each not in waiting.pending))
            return self
        # What came before may end without a semicolon, or with a comment.
        whole = f"{self._text}\n;\n{text}" if self._text else text
        self._app = bind_text(
            whole, self._base, sniff=sniffer(self._base), aggregates=self._aggregates.values()
        )
        self._text = whole
        live = {query.name.lower() for query in self._app.queries}
        self._queries = {name: query for name, query in self._queries.items() if name in live}
        self._enter_queries(self._app.queries)
        return self

    def aggregate(
        self,
        name: str | UserAggregate | type,
        implementation: Callable[[], Any] | None = None,
        arguments: Sequence[str] = (),
        returns: str = "DOUBLE",
    ) -> Pipeline:
        """Makes an aggregate known to the queries that are registered from now on.

        `implementation` is a class with `init`, `add`, `merge` and `result` (see kasen.aggregates); or give
        what `@kasen.aggregate` made of it.
        """
        if isinstance(name, UserAggregate):
            one = name
        elif isinstance(name, type):
            raise DataError(f"give {name.__name__} a name and types, or decorate it with @kasen.aggregate")
        elif implementation is None:
            raise DataError(f"aggregate {name} needs the class that computes it")
        else:
            one = UserAggregate.of(name, implementation, arguments, returns)
        by_name([*self._aggregates.values(), one])
        self._aggregates[one.name] = one
        return self

    @property
    def failures(self) -> tuple[int, tuple[str, ...]]:
        """How many expressions and aggregates failed and gave NULL; and what users' aggregates said."""
        found = self._running.failures if self._running is not None else None
        return (0, ()) if found is None else (found.count, tuple(found.notes))

    def _enter_queries(self, queries: Iterable[RegisteredQuery]) -> None:
        for query in queries:
            known = self._queries.get(query.name.lower())
            if known is None or known._registered.schema != query.schema:
                self._queries[query.name.lower()] = Query(query, self.app.time, self)

    def _follow(self, change: QueryChange, *, made: bool = True) -> None:
        """Queries came and went, or will. One that went long ago stays while the program has a use for it."""
        for action in change.actions:
            if isinstance(action, Register):
                name = action.query.name.lower()
                left = self._left.pop(name, None)
                if left is not None:
                    self._queries.setdefault(name, left)
                self._dropped.pop(name, None)
                self._enter_queries([action.query])
            elif made and action.name.lower() in self._queries:
                self._dropped[action.name.lower()] = None
        # Two for each that was dropped now: so those that stay hold nobody up, and the others get less.
        for _ in range(min(2 * len(change.actions), len(self._dropped) - _MOST_DROPPED)):
            name = next(iter(self._dropped))
            del self._dropped[name]
            if self._queries[name]._is_needed:
                self._dropped[name] = None
            else:
                self._left[name] = self._queries.pop(name)

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
        run = self._job or self._pushing
        return list(run.outputs.dead_letters) if run is not None else []

    @property
    def running(self) -> bool:
        """Whether the pipeline runs in the background."""
        if self._pushing is not None:
            return self._pushing.running
        return self._thread is not None and self._thread.is_alive()

    @property
    def pressure(self) -> dict[str, Admission]:
        """For each stream how many pushed rows were admitted, still wait, or were refused, and why."""
        return self._pushing.gate.streams if self._pushing is not None else {}

    # ------------------------------------------------------------ pushing

    def push(self, stream: str, rows: Any) -> Pipeline:
        """Rows for a stream: dicts, a dict of columns, an Arrow table or a data frame. Answers come at once.

        An instant is answered when every stream's frontier is past it: push later rows, or `advance`.
        """
        inlet = self._inlets.get(stream) or self._inlet(stream)
        self._open()
        assert self._pushing is not None
        if self._may_idle:
            self._heard[inlet.name] = self._clock()
            self._skip_idle()
        for piece in inlet.pieces(rows):
            self._pushing.push(Pushed(inlet.name, piece.rows, piece.dead, piece.chunk, piece.offset))
        return self

    def stream(self, name: str, frame: Frame) -> Pipeline:
        """A streaming DataFrame as the rows of a stream that is registered FROM 'memory'; for engine='spark'.

        Columns are found by name. `start` follows it for ever, `drain` reads what is there now.
        """
        one = self._input(name)
        self._need_spark()
        if one.connector.format != "memory":
            raise DataError(f"{one.name} is read from {one.connector.format}; register it FROM 'memory'")
        if not frame.isStreaming:
            raise DataError(f"{one.name}: the DataFrame is no stream: make it with spark.readStream")
        self._frames[one.name] = frame
        return self

    def _need_spark(self) -> None:
        if self._engine != "spark":
            raise DataError("DataFrames are for Pipeline(engine='spark'); on the local engine, use Arrow")

    def _frame(self, table: pa.Table) -> Frame:
        run: SparkRun = self._job  # type: ignore[assignment]
        return run.spark.createDataFrame(table)

    def advance(self, stream: str, ts: Time) -> Pipeline:
        """Punctuation: no row of this stream with a time below `ts` will come any more."""
        inlet = self._inlets.get(stream)
        name = inlet.name if inlet is not None else self._input(stream).name
        self._open()
        assert self._pushing is not None
        self._skip_idle()
        self._pushing.advance(name, ts if type(ts) is int else self._time(ts))
        return self

    def poll(self) -> Pipeline:
        """Answers what is complete by now; a stream silent for its IDLE no longer holds others back.

        `push` and `advance` do this too; call it from time to time if all streams may fall silent.
        """
        self._open()
        assert self._pushing is not None
        self._skip_idle()
        self._pushing.poll()
        return self

    def _skip_idle(self) -> None:
        if not self._may_idle:
            return
        assert self._pushing is not None
        now = self._clock()
        for one in self._may_idle:
            silent = now - self._heard.setdefault(one.name, now)
            if one.idle is not None and silent * 1e6 >= one.idle:
                self._pushing.skip(one.name)

    def _room(self) -> tuple[str, int]:
        """The query whose reader is furthest behind, and how many more changes fit there."""
        behind: Query | None = None
        for query in self._queries.values():  # this is asked several times a push
            if query._keeps and (behind is None or query._waiting > behind._waiting):
                behind = query
        return ("", OUTPUT_ROWS) if behind is None else (behind.name, self._most - behind._waiting)

    def _make_room(self) -> None:
        """A reader has taken something: matching may go on."""
        if self._pushing is not None and not self._drained:
            self._pushing.poll()

    def _inlet(self, stream: str) -> Inlet:
        """The way in to a stream; kept under the name by which the program calls it."""
        one = self._input(stream)
        if one.connector.format != "memory":
            raise DataError(
                f"{one.name} is read from {one.connector.format}; register it FROM 'memory' to push it"
            )
        found = Inlet(one, self._open().dictionary, self._arrival)
        same = next((each for each in self._inlets.values() if each.name == found.name), found)
        self._inlets[stream] = same
        return same

    @property
    def _texts(self) -> Dictionary:
        assert self._running is not None, "answers come from a pipeline that runs"
        return self._running.dictionary

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
            known = ", ".join(input_.name for input_ in self.app.inputs) or "none yet"
            raise DataError(f"no stream {name!r}; registered are: {known}")
        return found

    def _open(self) -> Running:
        """The running pipeline of a program that pushes; starts it on first use."""
        if self._engine == "spark":
            raise DataError(
                "rows are pushed to engine='local'; on Spark give a DataFrame: p.stream(name, df)"
            )
        if self._drained:
            raise DataError("this pipeline has been drained: nothing can be pushed any more")
        if self._job is not None:
            raise DataError("this pipeline reads its sources itself (start, drain): nothing can be pushed")
        if self._running is None:
            self._most = int(self.app.setting("output_rows", str(OUTPUT_ROWS)))
            self._pushing = PushedRun(
                plan_app(self.app),
                self._base,
                self._on_answer,
                self._room,
                lambda name: name != "" and self.query(name)._is_read_elsewhere,
                self._patience,
                self._shed_log,
                self._replay,
            )
            self._running = self._pushing.pipeline
            self._may_idle = [input_ for input_ in self.app.inputs if input_.idle is not None]
            self._load_tables()
        return self._running

    def _load_tables(self) -> None:
        """Static tables come from their files; streams beside pushed ones must be pushed too."""
        assert self._running is not None
        assert self._pushing is not None
        for input_ in self.app.inputs:
            if input_.connector.format == "memory":
                continue
            if not input_.is_static:
                form = input_.connector.format
                raise DataError(f"{input_.name} is read from {form}: it cannot stand beside pushed streams")
            most = input_.max_text_bytes
            source = open_source(
                input_.connector,
                self._base,
                input_.name,
                input_.schema,
                is_relation=True,
                max_text_bytes=most,
            )
            reader = Reader(input_.name, source, None, self._running.dictionary)
            while (piece := reader.read(None)) is not None:
                self._pushing.outputs.take(input_.name, piece.rows, piece.dead, piece.chunk, piece.offset)

    # ------------------------------------------------------------ running

    def drain(self) -> Pipeline:
        """Runs to the end of the input and returns when every answer is out."""
        if self._thread is not None:
            self._thread.join()
        elif self._pushing is not None:
            if not self._drained:
                self._pushing.drain()
                self._drained = True
        else:
            self._run_job()
        if self._error is not None:
            self._is_told = True
            raise self._error
        if self._running is not None and self._running.stopped:
            raise self._running.stopped[0]
        return self

    def start(self) -> Pipeline:
        """Reads the sources in the background until they end or `stop` is called.

        Where streams are pushed, matching gets a thread of its own: pushes return once rows are admitted.
        """
        pushed = any(
            input_.connector.format == "memory" for input_ in self.app.inputs if not input_.is_static
        )
        if pushed and self._engine == "local":
            self._open()
            assert self._pushing is not None
            self._pushing.start()
        elif self._thread is None:
            self._make_job(follow=None)
            self._thread = threading.Thread(target=self._run_job, name="kasen", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends a background run after the epoch that is running, with all sinks flushed.

        Raises the error that ended it before, if nobody has been told of it yet.
        """
        self._stopped = True
        if self._job is not None:
            self._job.stop()
        if self._thread is not None:
            self._thread.join()
        if self._pushing is not None and not self._drained:
            self._pushing.stop()
        self._tell_error()

    def _tell_error(self) -> None:
        """Raises what ended a background run, once."""
        if self._error is not None and not self._is_told and self._thread is not None:
            self._is_told = True
            raise self._error

    def _make_job(self, follow: bool | None = False) -> LocalRun | SparkRun:
        if self._job is None:
            self._most = int(self.app.setting("output_rows", str(OUTPUT_ROWS)))
            if self._engine == "spark":
                self._job = self._spark_job(follow)
            else:
                options = Options(self._base, batch=self._batch)
                self._job = LocalRun(plan_app(self.app), options, on_answer=self._on_answer)
            self._running = self._job.pipeline  # type: ignore[assignment]  # Remote, with executors
        return self._job

    def _spark_job(self, follow: bool | None) -> SparkRun:
        from kasen.spark.pipeline import SparkRun

        for input_ in self.app.inputs:
            if input_.connector.format == "memory" and input_.name not in self._frames:
                raise DataError(
                    f"{input_.name} has no rows yet: give its DataFrame by p.stream({input_.name!r}, df)"
                )
        return SparkRun(
            plan_app(self.app),
            self._base,
            master=self._master,
            checkpoint=self._checkpoint,
            files_per_epoch=self._files_per_epoch,
            on_answer=self._on_answer,
            given=self._frames,
            follow=follow,
        )

    def _run_job(self) -> None:
        try:
            self._make_job().run()
        except Exception as error:  # also one from a caller's own function: `drain` must not hide it
            self._error = error
            if self._thread is None:
                raise

    def _on_answer(self, answer: Answer) -> None:
        assert self._running is not None
        # Numbers go on after a restart, so that what comes twice can be told by them.
        self._epoch = self._epoch + 1 if self._job is None else self._job.outputs.answers
        for name, batch in answer.changes.items():
            if len(batch):
                query = self._queries[name.lower()]
                if threading.current_thread() is self._thread:
                    query._wait_for_room(self._most)
                query._deliver(self._epoch, batch)
        self._keeper.begin()
        if answer.change is not None:
            self._follow(answer.change)
