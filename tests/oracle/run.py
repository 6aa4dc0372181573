"""The instant loop: for every instant in order, everything is recomputed from the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from kasen.cql.bind.change import LiveCatalog
from kasen.cql.bound import (
    App,
    CatalogChange,
    Drop,
    Input,
    Query,
    Register,
    RegisteredQuery,
    Source,
    Streamify,
    StreamKind,
)
from kasen.cql.expr import Value
from kasen.errors import ResourceError
from tests.oracle.bridges import connect, limit_texts
from tests.oracle.inputs import UNMATCHED, DeadLetter, Inputs, Tuple, diff_column, read_inputs
from tests.oracle.instants import Instant
from tests.oracle.kept import WindowIdentity, identity
from tests.oracle.relations import (
    DerivedStream,
    Evaluated,
    InputStream,
    NamedRelation,
    NamedStream,
    OutsideRelation,
    Relation,
    RelationFrom,
    Stream,
    StreamFrom,
    WindowOver,
)
from tests.oracle.sql import Statement, statement
from tests.oracle.values import DEFAULT_MAX_TEXT_BYTES, Row, bag_difference, order_key
from tests.oracle.windows import Arrival

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
        self.max_text_bytes = int(app.setting("max_text_bytes", str(DEFAULT_MAX_TEXT_BYTES)))
        self.max_ticks = int(app.setting("max_ticks", "10000"))
        self._inputs: dict[str, InputStream | OutsideRelation] = {}
        self._queries: dict[str, DerivedStream | Evaluated] = {}
        self._parts: dict[str, list[DerivedStream | WindowOver]] = {}
        self._reported: dict[str, list[Row]] = {}
        #: The windows over named streams of each query, by what they are: those that a REPLACE may keep.
        self._leaves: dict[str, dict[WindowIdentity, WindowOver]] = {}
        self._catalog = LiveCatalog.of(app)
        self._changes = [change for change in app.changes if change.at is not None]
        #: While a query is built: which it is, since when it sees its inputs, and what it takes over.
        self._building = ""
        self._since: Instant | None = None
        self._backfill = self._silent = False
        self._kept: dict[WindowIdentity, WindowOver] = {}
        for one in app.inputs:
            self._inputs[one.name.lower()] = self._input(one, inputs.tuples[one.name.lower()])
        for query in app.all_queries:
            self.outputs[query.name] = []
        while self._changes and (self._changes[0].at or 0) <= self.beginning.ts:
            self._catalog.apply(self._changes.pop(0))
        for query in list(self._catalog.queries.values()):
            self._named(query.name)

    # ------------------------------------------------------------ building

    def _input(self, input_: Input, tuples: list[Tuple]) -> InputStream | OutsideRelation:
        if not input_.is_relation:
            return InputStream(tuples)
        if input_.is_static:
            tuples = [Tuple(each.line, each.raw, each.row, instant=self.beginning) for each in tuples]
        ignored = {input_.timestamp, input_.schema.find(diff_column(input_))} - {None}

        def unmatched(each: Tuple) -> None:
            self.dead.append(DeadLetter(input_.name, each.line, f"{UNMATCHED}: no such row", each.raw))

        return OutsideRelation(tuples, frozenset(index for index in ignored if index is not None), unmatched)

    def _named(self, name: str) -> DerivedStream | Evaluated:
        """The query called `name`: known before its parts are built, as a loop leads back to it."""
        key = name.lower()
        if key not in self._queries:
            query = self._catalog.query(name)
            assert query is not None, name
            around, self._building = self._building, key
            self._queries[key] = self._build(query)
            self._building = around
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
        self._own(stream)
        if name is not None:
            self._queries[name] = stream
        relation.leaves = self._leaves_of(bound)
        return stream

    def _evaluated(self, body: Query, name: str | None = None) -> Evaluated:
        bound = statement(body)
        relation = Evaluated(_duck(), bound)
        if name is not None:
            self._queries[name] = relation
        relation.leaves = self._leaves_of(bound)
        return relation

    def _leaves_of(self, bound: Statement) -> list[Relation]:
        pairs = zip(bound.leaves, bound.filters, strict=True)
        return [self._leaf(source, identity(source, filter_)) for source, filter_ in pairs]

    def _leaf(self, source: Source, leaf: WindowIdentity | None) -> Relation:
        if source.window is None:
            relation = self._relation(source.input)
            return relation if self._since is None or self._silent else RelationFrom(relation, self._since)
        kept = self._kept.get(leaf) if leaf is not None else None
        window = kept or WindowOver(source.window, self._seen(source.input))
        self._own(window)
        if leaf is not None:
            self._leaves.setdefault(self._building, {})[leaf] = window
        return window

    def _seen(self, read: str | Query) -> Stream:
        """A stream from the instant on at which the query that reads it came; or from what is retained."""
        stream = self._stream(read)
        if self._since is None or not isinstance(read, str):
            return stream
        one = self._catalog.input(read)
        back = one.retain if self._backfill and one is not None and one.retain is not None else 0
        return StreamFrom(stream, self._since._replace(ts=self._since.ts - back))

    def _relation(self, read: str | Query) -> Relation:
        assert isinstance(read, str)
        found = self._inputs.get(read.lower())
        if found is None:
            return NamedRelation(lambda: self._named(read))
        assert isinstance(found, OutsideRelation), read
        return found

    def _stream(self, read: str | Query) -> Stream:
        """What a window looks at; a window on a relation (a monotone select) looks at its ISTREAM."""
        found: object
        if isinstance(read, str):
            found = self._inputs.get(read.lower()) or NamedStream(lambda: self._named(read))
        else:
            found = self._streamify(read) if isinstance(read, Streamify) else self._evaluated(read)
        if isinstance(found, Evaluated):
            found = DerivedStream(StreamKind.ISTREAM, found, self.end)
            self._own(found)
        assert isinstance(found, (InputStream, DerivedStream, NamedStream)), read
        return found

    def _own(self, part: DerivedStream | WindowOver) -> None:
        """Notes a part of the query that is being built."""
        self._parts.setdefault(self._building, []).append(part)

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
        if self._changes and (self._changes[0].at or 0) <= self.end:
            waiting.append(Instant(self._changes[0].at or 0))
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
        limit_texts(self.max_text_bytes)
        if now.tick > self.max_ticks:
            raise ResourceError(f"more than {self.max_ticks} ticks at {now}")
        if now.ts > self.end:
            self.flushed += 1
        if self.flushed > MOST_FLUSHED:
            raise ResourceError("the flush finds no end: RSTREAM[d] keeps filling a window")
        self.instants.append(now)
        while self._changes and Instant(self._changes[0].at or 0) <= now:
            self._change(self._changes.pop(0), now)
        for one in self._inputs.values():
            one.update(now)
        for name, query in self._queries.items():
            query.update(now)
            self._report(name, query, now)
        for stream in self._derived:
            stream.compute(now)

    # ------------------------------------------------------------ queries that come and go

    def _change(self, change: CatalogChange, now: Instant) -> None:
        """Queries come and go between everything before (ts, 0, 0) and everything from it on."""
        before = Instant(now.ts - 1, 2**40)
        for action in change.actions:
            if isinstance(action, Drop):
                self._forget(action.name.lower())
        comes = [action for action in change.actions if isinstance(action, Register)]
        kept: dict[str, dict[WindowIdentity, WindowOver]] = {}
        histories: dict[str, list[Arrival]] = {}
        for action in comes:
            name = action.query.name.lower()
            old = self._catalog.query(name)
            if old is not None:
                kept[name] = self._leaves.get(name, {})
                # Under other columns the answer is another one, which begins with all that it holds.
                goes_over = old.schema.types == action.query.schema.types
                histories[name] = self._forget(name, told=goes_over)
        self._catalog.apply(change)
        for action in comes:
            name = action.query.name.lower()
            self._since, self._backfill = now, action.backfill
            self._silent = name in kept or action.backfill
            self._kept = kept.get(name, {})
            self._named(name)
            built = self._queries[name]
            if isinstance(built, DerivedStream):
                built.history += histories.get(name, [])  # its readers' windows still hold those
        self._since, self._backfill, self._kept = None, False, {}
        # Queries of a loop look at one another, so all are silent before any is asked what it held before.
        silent = [one.query.name.lower() for one in comes if one.query.name.lower() in kept or one.backfill]
        parts = [part for name in silent for part in self._parts.get(name, [])]
        streams = [part for part in parts if isinstance(part, DerivedStream)]
        for stream in streams:
            stream.hush(before)
        for stream in streams:
            stream.prime(before)

    def _forget(self, name: str, *, told: bool = False) -> list[Arrival]:
        """A query goes, or makes room for its next text, which knows what was `told`."""
        gone = self._queries.pop(name)
        self._leaves.pop(name, None)
        self._parts.pop(name, None)
        if not told or isinstance(gone, DerivedStream):
            self._reported.pop(name, None)
        return gone.history if isinstance(gone, DerivedStream) else []

    @property
    def _windows(self) -> list[WindowOver]:
        return [part for parts in self._parts.values() for part in parts if isinstance(part, WindowOver)]

    @property
    def _derived(self) -> list[DerivedStream]:
        return [part for parts in self._parts.values() for part in parts if isinstance(part, DerivedStream)]

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
        registered = self._catalog.query(name)
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
