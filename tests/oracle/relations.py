"""The oracle's streams and relations: each can say, at an instant, what it holds.

A stream is its history of tuples; a relation is a bag. `update(now)` may be called many times in an
instant, and in any order: whoever needs a part asks it to be up to date first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import duckdb

from kasen.cql.bound import Delay, Slide, StreamKind, Window
from kasen.errors import InternalError
from tests.oracle import windows
from tests.oracle.inputs import Tuple
from tests.oracle.instants import Instant
from tests.oracle.sql import Statement
from tests.oracle.values import (
    Row,
    bag_difference,
    canonical_row,
    in_value_order,
    order_key,
)
from tests.oracle.windows import Arrival, Bounds


class Stream(Protocol):
    """What a window looks at."""

    history: list[Arrival]

    def update(self, now: Instant) -> None: ...


class Relation(Protocol):
    """What FROM reads: the bag at the instant, and whether the instant touched it."""

    rows: list[Row]
    touched: bool

    def update(self, now: Instant) -> None: ...

    def bounds(self, now: Instant) -> Bounds | None: ...


# ---------------------------------------------------------------- from outside


class InputStream:
    """A registered stream: its tuples enter the history at their instants."""

    def __init__(self, tuples: list[Tuple]) -> None:
        self.history: list[Arrival] = []
        self._waiting = list(tuples)

    def update(self, now: Instant) -> None:
        while self._waiting and self._waiting[0].instant <= now:
            one = self._waiting.pop(0)
            self.history.append(Arrival(one.instant, one.row))

    def next_instant(self) -> Instant | None:
        return self._waiting[0].instant if self._waiting else None


class OutsideRelation:
    """A relation from outside: rows enter and leave by `diff`; a static one holds from the beginning."""

    def __init__(
        self, tuples: list[Tuple], ignored: frozenset[int], unmatched: Callable[[Tuple], None]
    ) -> None:
        self.rows: list[Row] = []
        self.touched = False
        self._waiting = list(tuples)
        self._ignored = ignored
        self._unmatched = unmatched
        self._updated: Instant | None = None

    def update(self, now: Instant) -> None:
        if self._updated == now:
            return
        self._updated = now
        changes = [one for one in self._waiting if one.instant <= now]
        self._waiting = self._waiting[len(changes) :]
        self.rows = list(self.rows)
        # Within one instant inserts are applied before deletes.
        inserts = [one for one in changes if one.diff > 0]
        deletes = [one for one in changes if one.diff < 0]
        self.rows += [one.row for one in inserts]
        matched = [one for one in deletes if self._delete(one)]
        self.touched = bool(inserts or matched)

    def _delete(self, one: Tuple) -> bool:
        """A -1 takes out the oldest equal row; its own time and diff say nothing about which row it means."""
        for index, row in enumerate(self.rows):
            if self._key(row) == self._key(one.row):
                del self.rows[index]
                return True
        self._unmatched(one)
        return False

    def _key(self, row: Row) -> object:
        return order_key(value for index, value in enumerate(row) if index not in self._ignored)

    def next_instant(self) -> Instant | None:
        return self._waiting[0].instant if self._waiting else None

    def bounds(self, now: Instant) -> Bounds | None:
        return None


# ---------------------------------------------------------------- by name


class NamedStream:
    """The stream that a name stands for now: REPLACE may put another in its place."""

    def __init__(self, find: Callable[[], DerivedStream | Evaluated]) -> None:
        self._find = find
        self.history: list[Arrival] = []

    def update(self, now: Instant) -> None:
        found = self._find()
        assert isinstance(found, DerivedStream)
        found.update(now)
        self.history = found.history


class NamedRelation:
    """The relation that a name stands for now."""

    def __init__(self, find: Callable[[], DerivedStream | Evaluated]) -> None:
        self._find = find
        self.rows: list[Row] = []
        self.touched = False

    def update(self, now: Instant) -> None:
        found = self._find()
        assert isinstance(found, Evaluated)
        found.update(now)
        self.rows, self.touched = found.rows, found.touched

    def bounds(self, now: Instant) -> Bounds | None:
        return None


# ---------------------------------------------------------------- seen from an instant on


class StreamFrom:
    """A stream as a query sees it that came at an instant: its tuples from there on, and no others."""

    def __init__(self, stream: Stream, since: Instant) -> None:
        self.stream = stream
        self.since = since
        self.history: list[Arrival] = []

    def update(self, now: Instant) -> None:
        self.stream.update(now)
        self.history = [one for one in self.stream.history if one.instant >= self.since]


class RelationFrom:
    """A relation as a query sees it that came at an instant: all that it holds enters there."""

    def __init__(self, relation: Relation, since: Instant) -> None:
        self.relation = relation
        self.since = since
        self.rows: list[Row] = []
        self.touched = False

    def update(self, now: Instant) -> None:
        self.relation.update(now)
        self.rows = self.relation.rows
        self.touched = self.relation.touched or (now == self.since and bool(self.rows))

    def bounds(self, now: Instant) -> Bounds | None:
        return self.relation.bounds(now)


# ---------------------------------------------------------------- stream -> relation


class WindowOver:
    """A window over a stream; a leaf of the query that reads it."""

    def __init__(self, window: Window, stream: Stream) -> None:
        self.window = window
        self.stream = stream
        self.rows: list[Row] = []
        self.touched = False
        self._held: list[int] = []
        self._updated: Instant | None = None

    def update(self, now: Instant) -> None:
        self.stream.update(now)
        if self._updated == now:
            return
        self._updated = now
        history = self.stream.history
        held = windows.contents(self.window, history, now)
        # Before netting: tuples are told apart by position, so an equal one taking over still touches.
        self.touched = held != self._held or windows.reports(self.window, history, now)
        self._held = held
        self.rows = [history[index].row for index in held]

    def bounds(self, now: Instant) -> Bounds | None:
        if isinstance(self.window, Slide):
            return windows.latest_bounds(self.window, self.stream.history, now)
        return None

    def next_event(self, now: Instant) -> Instant | None:
        return windows.next_event(self.window, self.stream.history, now)


# ---------------------------------------------------------------- relation -> relation


class Evaluated:
    """A query's relation, evaluated from scratch by DuckDB from what its leaves hold."""

    def __init__(self, duck: duckdb.DuckDBPyConnection, statement: Statement) -> None:
        self.rows: list[Row] = []
        self.touched = False
        self.leaves: list[Relation] = []  # set once all are built, as a loop leads back here
        self._duck = duck
        self._statement = statement
        self._updated: Instant | None = None
        self._known: object = None
        self._busy = False

    def update(self, now: Instant) -> None:
        if self._updated == now:
            return
        if self._busy:
            raise InternalError("a loop without a delay reached the oracle")
        self._busy = True
        for leaf in self.leaves:
            leaf.update(now)
        self._busy = False
        self._updated = now
        self.touched = any(leaf.touched for leaf in self.leaves)
        self._evaluate(now)

    def _evaluate(self, now: Instant) -> None:
        parameters = self._statement.parameters(
            [leaf.rows for leaf in self.leaves], [leaf.bounds(now) for leaf in self.leaves]
        )
        # The bag is a function of the parameters alone: equal ones need no second evaluation.
        if self._known != parameters:
            found = self._duck.execute(self._statement.sql, parameters).fetchall()
            self.rows = [canonical_row(row) for row in found]
            self._known = parameters

    def bounds(self, now: Instant) -> Bounds | None:
        return None


# ---------------------------------------------------------------- relation -> stream


class DerivedStream:
    """ISTREAM, DSTREAM or RSTREAM of a relation, maybe delayed."""

    def __init__(
        self,
        kind: StreamKind,
        relation: Relation,
        end: int,
        every: int | None = None,
        delay: Delay | None = None,
    ) -> None:
        self.kind = kind
        self.relation = relation
        self.end = end
        self.every = every
        self.delay = delay
        self.history: list[Arrival] = []
        self.waiting: list[Arrival] = []
        self._before: list[Row] = []
        self._computed: Instant | None = None
        self._busy = False

    def prime(self, before: Instant) -> None:
        """The stream takes over in the middle: what its relation held before counts as told."""
        self.relation.update(before)
        self._before = self.relation.rows

    def hush(self, before: Instant) -> None:
        """Nothing is to be told of what was before."""
        self._computed = before

    def update(self, now: Instant) -> None:
        """Tuples of this instant enter the history: delayed ones from before, or those of this instant."""
        if self.delay is None:
            self.compute(now)
        due = [one for one in self.waiting if one.instant <= now]
        self.waiting = self.waiting[len(due) :]
        self.history += due

    def compute(self, now: Instant) -> None:
        """What the relation emits at `now`, moved by the delay."""
        if self._computed == now:
            return
        if self._busy:
            raise InternalError("a loop without a delay reached the oracle")
        self._busy = True
        self.relation.update(now)
        self._busy = False
        self._computed = now
        emitted = self._emitted(now, self._before, self.relation.rows)
        self._before = self.relation.rows
        target = moved(now, self.delay)
        # Pending delays beyond the end are not delivered, not even by a flush.
        if self.delay is None or target.ts <= self.end:
            # Order within one instant on derived streams: by value.
            self.waiting += [Arrival(target, row) for row in in_value_order(emitted)]

    def _emitted(self, now: Instant, before: list[Row], after: list[Row]) -> list[Row]:
        """ISTREAM, DSTREAM: bag differences of consecutive instants; RSTREAM: the whole bag when it fires."""
        if self.kind is StreamKind.ISTREAM:
            return bag_difference(after, before)
        if self.kind is StreamKind.DSTREAM:
            return bag_difference(before, after)
        return after if self._fires(now) else []

    def _fires(self, now: Instant) -> bool:
        """RSTREAM: when a leaf gains, loses or reports. RSTREAM[d]: at every (k*d, 0, 0)."""
        if self.every is None:
            return self.relation.touched
        return now == Instant(now.ts // self.every * self.every)

    def next_firing(self, now: Instant) -> Instant | None:
        return None if self.every is None else Instant((now.ts // self.every + 1) * self.every)


def moved(now: Instant, delay: Delay | None) -> Instant:
    """`<d>`: (ts + d, seq, tick). `<Now>`: one tick."""
    if delay is None:
        return now
    if delay.length is None:
        return now._replace(tick=now.tick + 1)
    return now._replace(ts=now.ts + delay.length)
