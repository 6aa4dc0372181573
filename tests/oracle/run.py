"""The instant loop: for every instant in order, everything is recomputed from the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from kasen.cql.bound import App, Input, Query, RegisteredQuery, Source, Streamify, StreamKind
from kasen.cql.expr import Value
from kasen.errors import ResourceError
from kasen.types import Instant
from tests.oracle.bridges import connect
from tests.oracle.inputs import UNMATCHED, DeadLetter, Inputs, Tuple, diff_column, read_inputs
from tests.oracle.relations import (
    DerivedStream,
    Evaluated,
    InputStream,
    OutsideRelation,
    Relation,
    Stream,
    WindowOver,
)
from tests.oracle.sql import statement
from tests.oracle.values import Row, bag_difference, order_key

# More instants than this after the end, and a flush is taken to be endless.
MOST_FLUSHED = 20_000

# ts, seq, tick, diff, and the query's columns.
OutputRow = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What an app answers: each query's rows in output order, the dead letters, and the instants that ran."""

    queries: dict[str, list[OutputRow]]
    dead_letters: list[DeadLetter]
    instants: list[Instant]


_connection: duckdb.DuckDBPyConnection | None = None


def _duck() -> duckdb.DuckDBPyConnection:
    global _connection
    if _connection is None:
        _connection = connect()
    return _connection


def run_app(
    app: App, base: Path | None = None, given: Mapping[str, Iterable[Mapping[str, object]]] | None = None
) -> Result:
    """Run an app to the end of its input. `given` holds the rows of inputs that are in no file."""
    rows = {name.lower(): found for name, found in (given or {}).items()}
    run = Run(app, read_inputs(app, base or Path(), rows))
    while (instant := run.next_instant()) is not None:
        run.step(instant)
    return run.result()


class Run:
    """A running app. `step` answers one instant; `next_instant` says which."""

    def __init__(self, app: App, inputs: Inputs) -> None:
        self.app = app
        self.dead = list(inputs.dead)
        self.instants: list[Instant] = []
        self.outputs: dict[str, list[OutputRow]] = {}
        self.beginning, self.end = beginning_and_end(app, inputs)
        self.flush = app.setting("flush") == "true"
        self.flushed = 0
        self.max_ticks = int(app.setting("max_ticks", "10000"))
        self._inputs: dict[str, InputStream | OutsideRelation] = {}
        self._queries: dict[str, DerivedStream | Evaluated] = {}
        self._windows: list[WindowOver] = []
        self._derived: list[DerivedStream] = []
        self._reported: dict[str, list[Row]] = {}
        for one in app.inputs:
            self._inputs[one.name.lower()] = self._input(one, inputs.tuples[one.name.lower()])
        for query in app.queries:
            self._named(query.name)
            self.outputs[query.name] = []

    # ------------------------------------------------------------ building

    def _input(self, one: Input, tuples: list[Tuple]) -> InputStream | OutsideRelation:
        if not one.is_relation:
            return InputStream(tuples)
        if one.is_static:
            tuples = [Tuple(each.line, each.raw, each.row, instant=self.beginning) for each in tuples]
        ignored = {one.timestamp, one.schema.find(diff_column(one))} - {None}

        def unmatched(each: Tuple) -> None:
            self.dead.append(DeadLetter(one.name, each.line, f"{UNMATCHED}: no such row", each.raw))

        return OutsideRelation(tuples, frozenset(index for index in ignored if index is not None), unmatched)

    def _named(self, name: str) -> DerivedStream | Evaluated:
        """The query called `name`: known before its parts are built, as a loop leads back to it."""
        key = name.lower()
        if key not in self._queries:
            query = self.app.query(name)
            assert query is not None, name
            self._queries[key] = self._build(query)
        return self._queries[key]

    def _build(self, query: RegisteredQuery) -> DerivedStream | Evaluated:
        body = query.query
        if isinstance(body, Streamify):
            return self._streamify(body, query.name.lower())
        return self._evaluated(body, query.name.lower())

    def _streamify(self, body: Streamify, name: str | None = None) -> DerivedStream:
        bound = statement(body.query)
        relation = Evaluated(_duck(), bound)
        stream = DerivedStream(body.kind, relation, self.end, body.every, body.delay)
        self._derived.append(stream)
        if name is not None:
            self._queries[name] = stream
        relation.leaves = [self._leaf(source) for source in bound.leaves]
        return stream

    def _evaluated(self, body: Query, name: str | None = None) -> Evaluated:
        bound = statement(body)
        relation = Evaluated(_duck(), bound)
        if name is not None:
            self._queries[name] = relation
        relation.leaves = [self._leaf(source) for source in bound.leaves]
        return relation

    def _leaf(self, source: Source) -> Relation:
        if source.window is None:
            return self._relation(source.input)
        window = WindowOver(source.window, self._stream(source.input))
        self._windows.append(window)
        return window

    def _relation(self, read: str | Query) -> Relation:
        assert isinstance(read, str)
        found = self._inputs.get(read.lower()) or self._named(read)
        assert isinstance(found, (OutsideRelation, Evaluated)), read
        return found

    def _stream(self, read: str | Query) -> Stream:
        """What a window looks at; a window on a relation (a monotone select) looks at its ISTREAM."""
        found: object
        if isinstance(read, str):
            found = self._inputs.get(read.lower()) or self._named(read)
        else:
            found = self._streamify(read) if isinstance(read, Streamify) else self._evaluated(read)
        if isinstance(found, Evaluated):
            found = DerivedStream(StreamKind.ISTREAM, found, self.end)
            self._derived.append(found)
        assert isinstance(found, (InputStream, DerivedStream)), read
        return found

    # ------------------------------------------------------------ running

    def next_instant(self) -> Instant | None:
        """The least instant at which anything can happen: an input, a window, an RSTREAM[d] or a delay.

        End: all instants of the last ts still run, nothing later. A flush lets windows go on acting, and
        RSTREAM[d] with them up to the last such event; it delivers no delayed tuples.
        """
        if not self.instants:
            return self.beginning
        now = self.instants[-1]
        waiting = [one.next_instant() for one in self._inputs.values()]
        waiting += [one.waiting[0].instant for one in self._derived if one.waiting]
        events = [event for one in self._windows if (event := one.next_event(now)) is not None]
        last_event = max(events, default=Instant(self.end)) if self.flush else Instant(self.end)
        candidates = [one for one in waiting if one is not None]
        candidates += [one for one in events if self.flush or one.ts <= self.end]
        firings = [firing for one in self._derived if (firing := one.next_firing(now)) is not None]
        candidates += [one for one in firings if one.ts <= self.end or one <= last_event]
        return min(candidates, default=None)

    def step(self, now: Instant) -> None:
        """One instant: what arrives, then every query, then what delayed queries send into the future."""
        if now.tick > self.max_ticks:
            raise ResourceError(f"more than {self.max_ticks} ticks at {now}")
        if now.ts > self.end:
            self.flushed += 1
        if self.flushed > MOST_FLUSHED:
            raise ResourceError("the flush finds no end: RSTREAM[d] keeps filling a window")
        self.instants.append(now)
        for one in self._inputs.values():
            one.update(now)
        for name, query in self._queries.items():
            query.update(now)
            self._report(name, query, now)
        for stream in self._derived:
            stream.compute(now)

    def _report(self, name: str, query: DerivedStream | Evaluated, now: Instant) -> None:
        """A stream reports its tuples; a relation its net changes."""
        if isinstance(query, DerivedStream):
            changes = [(one.row, 1) for one in query.history if one.instant == now]
        else:
            before = self._reported.get(name, [])
            changes = [(row, -1) for row in bag_difference(before, query.rows)]
            changes += [(row, 1) for row in bag_difference(query.rows, before)]
            self._reported[name] = query.rows
        # Rows of one instant in value order, then by diff.
        changes.sort(key=lambda change: (order_key(change[0]), change[1]))
        registered = self.app.query(name)
        assert registered is not None
        self.outputs[registered.name] += [(*now, diff, *row) for row, diff in changes]

    def result(self) -> Result:
        return Result(self.outputs, self.dead, self.instants)


def beginning_and_end(app: App, inputs: Inputs) -> tuple[Instant, int]:
    """The least instant of any input tuple ((0, 0, 0) if there is none), and the greatest ts of any."""
    timed = [
        each.instant for one in app.inputs if not one.is_static for each in inputs.tuples[one.name.lower()]
    ]
    return min(timed, default=Instant(0)), max((instant.ts for instant in timed), default=0)
