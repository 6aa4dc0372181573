"""What a program registers its streams and queries with.

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

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from kasen.aggregates import UserAggregate
from kasen.api.mode import Mode
from kasen.api.options import PipelineOptions
from kasen.api.push_mode import PushMode, Time, find_input, find_pushed
from kasen.api.queries import Queries
from kasen.api.query import Query, QueryOwner
from kasen.api.source_mode import LocalMode
from kasen.api.spark_mode import SparkMode
from kasen.connect.chunk import DeadLetter
from kasen.connect.sniff import sniffer
from kasen.cql.bind.app import bind_text
from kasen.cql.bind.expr.user_aggregates import by_name
from kasen.cql.bound import App
from kasen.errors import DataError
from kasen.plan.explain.explain import explain, explain_in_driver, explain_on_executors
from kasen.runtime.input.pressure import Admission
from kasen.runtime.pipeline import RunningPipeline as Running
from kasen.spark.place import reduces_panes

if TYPE_CHECKING:  # Spark is loaded when it is first used
    from kasen.spark.scan.sources import Frame


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
        self._options = PipelineOptions(
            engine,
            Path(base),
            batch,
            clock,
            patience,
            Path(shed_log) if shed_log is not None else None,
            Path(replay) if replay is not None else None,
            master,
            checkpoint,
            files_per_epoch,
        )
        self._text = ""
        self._aggregates: dict[str, UserAggregate] = {}
        self._app: App | None = None
        self._queries = Queries(
            QueryOwner(lambda: self.running, self._make_room, self._tell_error, self._need_spark, self._frame)
        )
        self._frames: dict[str, Frame] = {}
        self._mode: Mode | None = None

    # ------------------------------------------------------------ queries

    def execute(self, text: str) -> Pipeline:
        """Registers, replaces or drops what the CQL text says; a QueryError leaves everything as it was.

        While data flows this changes queries only. It takes effect between two instants: what has been
        answered stays, and what comes from then on is answered by the queries that are there then.
        """
        if self._mode is not None:
            self._mode.execute(text)
            return self
        # What came before may end without a semicolon, or with a comment.
        whole = f"{self._text}\n;\n{text}" if self._text else text
        base = self._options.base
        self._app = bind_text(whole, base, sniff=sniffer(base), aggregates=self._aggregates.values())
        self._text = whole
        self._queries.reset(self._app.queries, self._app.time)
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
    def app(self) -> App:
        if self._app is None:
            raise DataError("nothing is registered yet: call execute('REGISTER STREAM ...') first")
        return self._app

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.app.warnings

    def explain(self) -> str:
        """The plan that runs, or would, as `kasen explain` prints it."""
        if isinstance(self._mode, PushMode):
            return self._mode.explain()
        if self._options.engine == "local":
            return explain(self.app)
        from kasen.spark.session import master_in_use

        is_local = master_in_use(self._options.master).startswith("local")
        if not is_local:
            return explain_on_executors(self.app)
        return explain_in_driver(self.app, panes=reduces_panes(self.app, is_local=is_local))

    def query(self, name: str) -> Query:
        """A registered query's answers."""
        return self._queries.find(name)

    # ------------------------------------------------------------ rows

    def push(self, stream: str, rows: Any) -> Pipeline:
        """Rows for a stream: dicts, a dict of columns, an Arrow table or a data frame. Answers come at once.

        An instant is answered when every stream's frontier is past it: push later rows, or `advance`.
        """
        mode = self._mode
        if not isinstance(mode, PushMode):
            find_pushed(self.app, stream)
            mode = self._begin_pushing()
        mode.push(stream, rows)
        return self

    def advance(self, stream: str, ts: Time) -> Pipeline:
        """Punctuation: no row of this stream with a time below `ts` will come any more."""
        mode = self._mode
        if not isinstance(mode, PushMode):
            find_input(self.app, stream)
            mode = self._begin_pushing()
        mode.advance(stream, ts)
        return self

    def poll(self) -> Pipeline:
        """Answers what is complete by now; a stream silent for its IDLE no longer holds others back.

        `push` and `advance` do this too; call it from time to time if all streams may fall silent.
        """
        self._begin_pushing().poll()
        return self

    def stream(self, name: str, frame: Frame) -> Pipeline:
        """A streaming DataFrame as the rows of a stream that is registered FROM 'memory'; for engine='spark'.

        Columns are found by name. `start` follows it for ever, `drain` reads what is there now.
        """
        one = find_input(self.app, name)
        self._need_spark()
        if one.connector.format != "memory":
            raise DataError(f"{one.name} is read from {one.connector.format}; register it FROM 'memory'")
        if not frame.isStreaming:
            raise DataError(f"{one.name}: the DataFrame is no stream: make it with spark.readStream")
        self._frames[one.name] = frame
        return self

    # ------------------------------------------------------------ running

    def drain(self) -> Pipeline:
        """Runs to the end of the input and returns when every answer is out."""
        mode = self._begin_reading(follow=False) if self._mode is None else self._mode
        mode.drain()
        if mode.pipeline.stopped:
            raise mode.pipeline.stopped[0]
        return self

    def start(self) -> Pipeline:
        """Reads the sources in the background until they end or `stop` is called.

        Where streams are pushed, matching gets a thread of its own: pushes return once rows are admitted.
        """
        pushed = any(
            input_.connector.format == "memory" for input_ in self.app.inputs if not input_.is_static
        )
        if pushed and not self._options.on_spark:
            self._begin_pushing().start()
        else:
            (self._mode or self._begin_reading(follow=None)).start()
        return self

    def stop(self) -> None:
        """Ends a background run after the epoch that is running, with all sinks flushed.

        Raises the error that ended it before, if nobody has been told of it yet.
        """
        if self._mode is not None:
            self._mode.stop()
            self._mode.tell_error()

    def _begin_pushing(self) -> PushMode:
        """The mode of a program that pushes."""
        if isinstance(self._mode, PushMode):
            return self._mode
        if self._options.on_spark:
            raise DataError(
                "rows are pushed to engine='local'; on Spark give a DataFrame: p.stream(name, df)"
            )
        if self._mode is not None:
            raise DataError("this pipeline reads its sources itself (start, drain): nothing can be pushed")
        self._mode = mode = PushMode(self.app, self._options, self._queries)
        return mode

    def _begin_reading(self, *, follow: bool | None) -> Mode:
        """The mode of a program that lets the pipeline read its sources; on Spark, `follow` as there."""
        if self._options.on_spark:
            self._mode = SparkMode(self.app, self._options, self._queries, self._frames, follow)
        else:
            self._mode = LocalMode(self.app, self._options, self._queries)
        return self._mode

    # ------------------------------------------------------------ what can be looked at

    @property
    def running(self) -> bool:
        """Whether the pipeline runs in the background."""
        return self._mode is not None and self._mode.running

    @property
    def failures(self) -> tuple[int, tuple[str, ...]]:
        """How many expressions and aggregates failed and gave NULL; and what users' aggregates said."""
        found = self._running.failures if self._running is not None else None
        return (0, ()) if found is None else (found.count, tuple(found.notes))

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The rows that were refused, with the reason."""
        return list(self._mode.outputs.dead_letters) if self._mode is not None else []

    @property
    def pressure(self) -> dict[str, Admission]:
        """For each stream how many pushed rows were admitted, still wait, or were refused, and why."""
        return self._mode.pressure if self._mode is not None else {}

    @property
    def _running(self) -> Running | None:
        """What runs the operators, once something does."""
        return self._mode.pipeline if self._mode is not None else None

    # ------------------------------------------------------------ for queries

    def _make_room(self) -> None:
        """A reader has taken something: matching may go on."""
        if self._mode is not None:
            self._mode.make_room()

    def _tell_error(self) -> None:
        """Raises what ended a background run, once."""
        if self._mode is not None:
            self._mode.tell_error()

    def _need_spark(self) -> None:
        if not self._options.on_spark:
            raise DataError("DataFrames are for Pipeline(engine='spark'); on the local engine, use Arrow")

    def _frame(self, table: pa.Table) -> Frame:
        assert isinstance(self._mode, SparkMode), "answers come from a pipeline that runs"
        return self._mode.frame(table)
