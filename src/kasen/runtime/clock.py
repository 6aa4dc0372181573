"""The clock of a sharded pipeline: what must be decided once for all shards.

It sees of every tuple only its time and its place in the source. From that it tells which are late, how far
the pipeline may run, at which instants tuples are (TICK BY TUPLE numbers them over all streams), and
their ordinals. Relations from outside and static tables pass through it whole. What it decides for an epoch
is its `Orders`, which every shard gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound, matrix, zeros
from kasen.operators.dictionary import Dictionary
from kasen.plan.physical import Plan
from kasen.runtime.feed import Feed, Rows, as_batch, join, number_tuples, skip
from kasen.runtime.relation import Relation
from kasen.runtime.shipment import CHANGE, Shipper, pack_changes


@dataclass(slots=True)
class Released:
    """A stream's tuples that run in this epoch, in order. The first one's ordinal is `first`, from 1."""

    ts: I64
    sub: I64
    position: I64
    first: int


@dataclass(slots=True)
class Orders:
    """An epoch's decisions.

    `upto`: every instant below it runs. `begin` is set in the epoch in which the pipeline begins. `late` are
    the positions of tuples that are refused. `changes` are those of outside relations and static tables,
    packed. `runs` are [2, n]: tuples at Spark's places runs[0][i], runs[0][i] + 1, ... have the positions
    runs[1][i], runs[1][i] + 1, ... With `closing`, delays deliver nothing any more.
    """

    upto: Bound
    begin: Bound | None = None
    released: dict[str, Released] = field(default_factory=dict)
    late: dict[str, I64] = field(default_factory=dict)
    changes: dict[str, bytes] = field(default_factory=dict)
    runs: dict[str, I64] = field(default_factory=dict)
    closing: bool = False

    def arrays(self) -> dict[str, State]:
        """As named arrays, for files and for the way to the shards."""
        begin = self.begin or Bound(0, 0)
        marks = [*self.upto, *begin, self.begin is not None, self.closing]
        found: dict[str, State] = {"orders": {"marks": np.array(marks, np.int64)}}
        for name, each in self.released.items():
            found[f"released.{name}"] = {
                "ts": each.ts,
                "sub": each.sub,
                "position": each.position,
                "first": np.array([each.first]),
            }
        found |= {f"runs.{name}": {"runs": each} for name, each in self.runs.items()}
        found |= {f"late.{name}": {"position": each} for name, each in self.late.items()}
        found |= {
            f"changes.{name}": {"packed": np.frombuffer(each, np.uint8)}
            for name, each in self.changes.items()
        }
        return found

    @staticmethod
    def of(arrays: dict[str, State]) -> Orders:
        *marks, has_begin, closing = arrays["orders"]["marks"].tolist()
        orders = Orders(Bound(*marks[:2]), Bound(*marks[2:]) if has_begin else None, closing=bool(closing))
        for key, state in arrays.items():
            kind, _, name = key.partition(".")
            if kind == "released":
                ts, sub, position = state["ts"], state["sub"], state["position"]
                orders.released[name] = Released(ts, sub, position, int(state["first"][0]))
            elif kind == "runs":
                orders.runs[name] = state["runs"]
            elif kind == "late":
                orders.late[name] = state["position"]
            elif kind == "changes":
                orders.changes[name] = state["packed"].tobytes()
        return orders


class Clock:
    """Takes keys in and gives orders out. Its interface is a pipeline's, as far as inputs go."""

    def __init__(self, plan: Plan, dictionary: Dictionary | None = None) -> None:
        self.dictionary = Dictionary() if dictionary is None else dictionary
        inputs = [one for one in plan.app.inputs if not one.is_static]
        self._columns = {one.name: len(one.schema) if one.is_relation else 0 for one in inputs}
        self._feeds = {one.name: Feed(self._columns[one.name], one.slack) for one in inputs}
        self._relations = {
            one.name: Relation(len(one.schema), one.timestamp) for one in inputs if one.is_relation
        }
        self._by_tuple = [one.name for one in inputs if one.tick.value == "TUPLE"]
        self._counts = {one.name: 0 for one in inputs if not one.is_relation}
        self._tables: dict[str, Rows] = {}
        self._late: dict[str, list[I64]] = {}
        self._shippers = {
            one.name: Shipper(one.schema, self.dictionary, CHANGE)
            for one in plan.app.inputs
            if one.is_relation
        }
        self._upto = Bound(-(2**63), 0)
        self._begun = False
        self._closing = False
        #: Deletions of outside relations that the last orders held, and those that found no row.
        self.deletions: list[tuple[str, I64]] = []
        self.refused: list[tuple[str, I64]] = []

    # ------------------------------------------------------------ input

    def add(self, name: str, rows: Rows) -> Rows:
        """Rows of a relation, or keys of a stream (rows without columns); returns those that are late."""
        if name not in self._feeds:
            self._tables[name] = join([self._tables[name], rows]) if name in self._tables else rows
            return rows.take(np.zeros(len(rows), np.bool_))
        late = self._feeds[name].add(rows)
        if len(late):
            self._late.setdefault(name, []).append(late.position)
        return late

    def add_keys(self, name: str, ts: I64, position: I64) -> Rows:
        """A stream's tuples by time and place in the source."""
        return self.add(
            name, Rows(ts, np.ones(len(ts), np.int64), np.zeros((1, len(ts)), np.int64), position)
        )

    def refuse(self, name: str, position: I64) -> None:
        """Tuples that are not to run for another reason than their time."""
        self._late.setdefault(name, []).append(position)

    def advance(self, name: str, ts: int) -> None:
        """No row with a time below `ts` will come on this input any more."""
        self._feeds[name].advance(ts)

    def skip(self, name: str) -> int | None:
        """The input is idle: it goes along with the others; returns how far."""
        return skip(self._feeds, name)

    def end(self, name: str) -> None:
        if name in self._feeds:
            self._feeds[name].end()

    @property
    def frontier(self) -> int:
        return min((feed.frontier for feed in self._feeds.values()), default=2**63 - 1)

    @property
    def upto(self) -> Bound:
        """Every instant below this has been ordered to run."""
        return self._upto

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def ended(self) -> bool:
        return all(feed.ended for feed in self._feeds.values())

    @property
    def waiting_by_input(self) -> dict[str, int]:
        """How many tuples of each input have been read and not run."""
        return {name: feed.waiting for name, feed in self._feeds.items()}

    @property
    def waiting(self) -> int:
        """How many tuples have been read and not run."""
        return sum(feed.waiting for feed in self._feeds.values())

    @property
    def lag(self) -> int:
        """How far answers are behind what was read."""
        if self.ended:
            return 0
        greatest = max((feed.greatest for feed in self._feeds.values()), default=-(2**63))
        return max(0, greatest - self.frontier) if self.frontier > -(2**63) else 0

    # ------------------------------------------------------------ orders

    def run(self) -> Orders | None:
        """Orders to run every instant that is complete; None if the shards have nothing to do."""
        if not self.ended:
            return self._run_upto(self.frontier)
        greatest = [feed.greatest for feed in self._feeds.values()]
        known = [each for each in greatest if each > -(2**63)]
        return self._run_upto(max(known, default=0) + 1)

    def flush(self, upto: Bound) -> Orders | None:
        """Orders to let windows expire after the end of the input."""
        if upto <= self._upto:
            return None
        self._upto = upto
        self._closing = True
        return Orders(upto, closing=True)

    def _run_upto(self, ts: int) -> Orders | None:
        self.deletions, self.refused = [], []
        orders = Orders(Bound(ts, 0))
        orders.late = {name: np.concatenate(parts) for name, parts in self._late.items()}
        self._late = {}
        if orders.upto <= self._upto:
            # Late tuples must be forgotten by whoever holds them, even if time stands still.
            orders.upto = self._upto
            return orders if orders.late else None
        first = self._release(ts, orders)
        if first is None and not self._begun and not self.ended:
            orders.upto = self._upto
            return orders if orders.late else None
        if not self._begun:
            self._begun = True
            orders.begin = first or Bound(0, 0)
            for name, rows in self._tables.items():
                orders.changes[name] = pack_changes(self._shippers[name], _at(rows, orders.begin))
            self._tables = {}
        self._upto = orders.upto
        return orders

    def _release(self, ts: int, orders: Orders) -> Bound | None:
        pieces = {name: feed.release(ts) for name, feed in self._feeds.items()}
        rows = {name: join(each) for name, each in pieces.items() if each}
        subs = self._numbered(rows) if self._by_tuple else {}
        first: list[Bound] = []
        for name, released in rows.items():
            sub = subs.get(name, zeros(len(released)))
            first.append(Bound(int(released.ts[0]), int(sub[0])))
            if name not in self._relations:
                ordinal = self._counts[name] + 1
                self._counts[name] += len(released)
                orders.released[name] = Released(released.ts, sub, released.position, ordinal)
                continue
            batch, refused = self._relations[name].apply(released, as_batch([released], sub, enter=False))
            self.deletions.append((name, released.position[released.diff < 0]))
            if len(refused):
                self.refused.append((name, refused.position))
            orders.changes[name] = pack_changes(self._shippers[name], batch)
        return min(first, default=None)

    def _numbered(self, rows: dict[str, Rows]) -> dict[str, I64]:
        """`sub` of the tuples of each TICK BY TUPLE stream."""
        none = np.empty(0, np.int64)
        times = [rows[name].ts if name in rows else none for name in self._by_tuple]
        return dict(zip(self._by_tuple, number_tuples(times), strict=True))

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, State]:
        names = list(self._counts)
        late = {f"late.{name}": {"position": np.concatenate(parts)} for name, parts in self._late.items()}
        return {
            "clock": {
                "marks": np.array([*self._upto, self._begun, self._closing], np.int64),
                "counts": np.array([self._counts[name] for name in names], np.int64),
            },
            "dictionary": self.dictionary.snapshot(),
            **late,
            **{f"feed.{name}": feed.snapshot() for name, feed in self._feeds.items()},
            **{f"relation.{name}": each.snapshot() for name, each in self._relations.items()},
        }

    def restore(self, state: dict[str, State]) -> None:
        """Called on a new clock of the same plan. Until the beginning, static tables are added again."""
        ts, sub, begun, closing = state["clock"]["marks"].tolist()
        self._upto, self._begun, self._closing = Bound(ts, sub), bool(begun), bool(closing)
        self._counts = dict(zip(self._counts, state["clock"]["counts"].tolist(), strict=True))
        self.dictionary.restore(state["dictionary"])
        for name, feed in self._feeds.items():
            feed.restore(state[f"feed.{name}"])
            if f"late.{name}" in state:
                self._late[name] = [state[f"late.{name}"]["position"]]
        for name, relation in self._relations.items():
            relation.restore(state[f"relation.{name}"])


def _at(rows: Rows, instant: Bound) -> Batch:
    """A static table's rows, entering at one instant."""
    count = len(rows)
    ts, sub = np.full(count, instant.ts, np.int64), zeros(count) + instant.sub
    return Batch(ts, sub, np.ones(count, np.int64), matrix(rows.data))
