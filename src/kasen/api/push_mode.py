"""The program pushes rows, and gets answers at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kasen.api.mode import Mode
from kasen.api.options import PipelineOptions
from kasen.api.queries import Queries
from kasen.connect.registry import open_source
from kasen.cql.bound import App, Input
from kasen.cql.parse.literals import parse_timestamp
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.input.arrival import ArrivalClock
from kasen.runtime.input.inlet import Inlet
from kasen.runtime.input.pressure import Admission, PushedRows
from kasen.runtime.input.reader import Reader
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import RunningPipeline as Running
from kasen.runtime.pushed import PushedRun
from kasen.types import TIMESTAMP, Type

Time = int | str | datetime


class PushMode(Mode):
    """Matches in the thread that pushes; after `start`, in a thread of its own."""

    def __init__(self, app: App, options: PipelineOptions, queries: Queries) -> None:
        super().__init__(app, queries)
        for input_ in app.inputs:
            if input_.connector.format != "memory" and not input_.is_static:
                form = input_.connector.format
                raise DataError(f"{input_.name} is read from {form}: it cannot stand beside pushed streams")
        self._run = PushedRun(
            plan_app(app),
            options.base,
            self._on_answer,
            partial(queries.room, self._most),
            queries.is_read_elsewhere,
            options.patience,
            options.shed_log,
            options.replay,
        )
        #: The ways in by the names by which the program calls the streams.
        self._inlets: dict[str, Inlet] = {}
        self._arrival = ArrivalClock()
        self._clock = options.clock
        self._may_idle = [input_ for input_ in app.inputs if input_.idle is not None]
        self._heard: dict[str, float] = {}
        self._drained = False
        try:
            self._load_tables(options.base)
        except BaseException:
            self.outputs.close()
            raise

    @property
    def pipeline(self) -> Running:
        return self._run.pipeline

    @property
    def outputs(self) -> Outputs:
        return self._run.outputs

    @property
    def running(self) -> bool:
        return self._run.running

    @property
    def pressure(self) -> dict[str, Admission]:
        return self._run.gate.streams

    # ------------------------------------------------------------ rows

    def push(self, stream: str, rows: Any) -> None:
        inlet = self._inlets.get(stream) or self._inlet(stream)
        self._check_open()
        if self._may_idle:
            self._heard[inlet.name] = self._clock()
            self._skip_idle()
        for piece in inlet.pieces(rows):
            self._run.push(PushedRows(inlet.name, piece.rows, piece.dead, piece.chunk, piece.offset))

    def advance(self, stream: str, ts: Time) -> None:
        inlet = self._inlets.get(stream)
        name = inlet.name if inlet is not None else find_input(self._app, stream).name
        self._check_open()
        self._skip_idle()
        self._run.advance(name, ts if type(ts) is int else instant_of(ts, self._app.time))

    def poll(self) -> None:
        self._check_open()
        self._skip_idle()
        self._run.poll()

    def _check_open(self) -> None:
        if self._drained:
            raise DataError("this pipeline has been drained: nothing can be pushed any more")

    def _inlet(self, stream: str) -> Inlet:
        """The way in to a stream; kept under the name by which the program calls it."""
        found = Inlet(find_pushed(self._app, stream), self.pipeline.dictionary, self._arrival)
        same = next((each for each in self._inlets.values() if each.name == found.name), found)
        self._inlets[stream] = same
        return same

    def _skip_idle(self) -> None:
        if not self._may_idle:
            return
        now = self._clock()
        for one in self._may_idle:
            silent = now - self._heard.setdefault(one.name, now)
            if one.idle is not None and silent * 1e6 >= one.idle:
                self._run.skip(one.name)

    def _load_tables(self, base: Path) -> None:
        """Static tables come from their files."""
        for input_ in self._app.inputs:
            if input_.connector.format == "memory":
                continue
            most = input_.max_text_bytes
            source = open_source(
                input_.connector, base, input_.name, input_.schema, is_relation=True, max_text_bytes=most
            )
            reader = Reader(input_.name, source, None, self.pipeline.dictionary)
            while (piece := reader.read(None)) is not None:
                self.outputs.take(input_.name, piece.rows, piece.dead, piece.chunk, piece.offset)

    # ------------------------------------------------------------ control

    def execute(self, text: str, /) -> None:
        pending, time = self.pipeline, self._app.time
        self._run.execute(
            text, lambda each: self._queries.follow(each, time, made=each not in pending.pending)
        )

    def explain(self) -> str:
        """The plan that runs now."""
        return self._run.explain()

    def make_room(self) -> None:
        if not self._drained:
            self._run.poll()

    def start(self) -> None:
        self._check_open()
        self._run.start()

    def drain(self) -> None:
        if not self._drained:
            self._run.drain()
            self._drained = True

    def stop(self) -> None:
        if not self._drained:
            self._run.stop()


def find_input(app: App, name: str) -> Input:
    found = app.input(name)
    if found is None:
        known = ", ".join(input_.name for input_ in app.inputs) or "none yet"
        raise DataError(f"no stream {name!r}; registered are: {known}")
    return found


def find_pushed(app: App, name: str) -> Input:
    """The input of that name, which must be one whose rows are pushed."""
    one = find_input(app, name)
    if one.connector.format != "memory":
        raise DataError(
            f"{one.name} is read from {one.connector.format}; register it FROM 'memory' to push it"
        )
    return one


def instant_of(ts: Time, time: Type) -> int:
    """A time as the app counts it; zoned ones are taken in UTC, as rows' are."""
    if isinstance(ts, int) and not isinstance(ts, bool):
        return ts
    parsed = None
    if time == TIMESTAMP and isinstance(ts, datetime):
        naive = ts if ts.tzinfo is None else ts.astimezone(UTC).replace(tzinfo=None)
        parsed = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    elif time == TIMESTAMP and isinstance(ts, str):
        parsed = parse_timestamp(ts)
    if parsed is None:
        form = "YYYY-MM-DD HH:MM:SS, a datetime or µs" if time == TIMESTAMP else "a whole number"
        raise DataError(f"{ts!r} is not a time: this app's are {form}")
    return parsed
