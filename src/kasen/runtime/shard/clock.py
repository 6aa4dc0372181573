"""The clock of a sharded pipeline: what must be decided once for all shards.

It sees of every tuple only its time and its place in the source. From that it tells which are late, how far
the pipeline may run, at which instants tuples are (TICK BY TUPLE numbers them over all streams), and
their ordinals. Relations from outside and static tables pass through it whole. What it decides for an epoch
is its `Orders`, which every shard gets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, concat, matrix, zeros
from kasen.engine.operator import State, words_in
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.physical import Plan
from kasen.runtime.input.feed import Feed, InputRows, as_batch, input_words, join, number_tuples, skip
from kasen.runtime.input.relation import Relation
from kasen.runtime.live.contents import at
from kasen.runtime.shard.shipment import CHANGE, Shipper, pack_changes


@dataclass(slots=True)
class ReleasedTuples:
    """A stream's tuples that run in this epoch, in order. The first one's ordinal is `first`, from 1."""

    ts: I64
    seq_tick: I64
    position: I64
    first: int


@dataclass(slots=True)
class SplicePoint:
    """Queries come and go between the instants below (at, 0, 0) and those from it on.

    `comes` are generations, `goes` names of queries by generation. The clock adds whether the pipeline has
    begun by then and, if so, how many tuples each stream has had and what outside relations hold, packed.
    """

    at: int
    comes: tuple[int, ...] = ()
    goes: tuple[tuple[int, str], ...] = ()
    begun: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)

    def arrays(self) -> State:
        marks = {
            "at": self.at,
            "comes": self.comes,
            "goes": self.goes,
            "begun": self.begun,
            "counts": self.counts,
            "relations": list(self.contents),
        }
        found = {"json": np.frombuffer(json.dumps(marks).encode(), np.uint8)}
        packed = self.contents.values()
        return found | {str(place): np.frombuffer(each, np.uint8) for place, each in enumerate(packed)}

    @staticmethod
    def of(state: State) -> SplicePoint:
        marks = json.loads(state["json"].tobytes())
        contents = {name: state[str(place)].tobytes() for place, name in enumerate(marks["relations"])}
        goes = tuple((number, name) for number, name in marks["goes"])
        return SplicePoint(
            marks["at"], tuple(marks["comes"]), goes, marks["begun"], marks["counts"], contents
        )


@dataclass(slots=True)
class Orders:
    """An epoch's decisions.

    `upto`: every instant below it runs. `begin` is set in the epoch in which the pipeline begins. `late` are
    the positions of tuples that are refused. `changes` are those of outside relations and static tables,
    packed. `runs` are [2, n]: tuples at Spark's places runs[0][i], runs[0][i] + 1, ... have the positions
    runs[1][i], runs[1][i] + 1, ... With `closing`, delays deliver nothing any more. `splices` are changes of
    the queries on the way to `upto`, in the order of their times.
    """

    upto: Frontier
    begin: Frontier | None = None
    released: dict[str, ReleasedTuples] = field(default_factory=dict)
    late: dict[str, I64] = field(default_factory=dict)
    changes: dict[str, bytes] = field(default_factory=dict)
    runs: dict[str, I64] = field(default_factory=dict)
    closing: bool = False
    splices: list[SplicePoint] = field(default_factory=list)

    def arrays(self) -> dict[str, State]:
        """As named arrays, for files and for the way to the shards."""
        begin = self.begin or Frontier(0, 0)
        marks = [*self.upto, *begin, self.begin is not None, self.closing]
        found: dict[str, State] = {"orders": {"marks": np.array(marks, np.int64)}}
        for name, each in self.released.items():
            found[f"released.{name}"] = {
                "ts": each.ts,
                "sub": each.seq_tick,
                "position": each.position,
                "first": np.array([each.first]),
            }
        found |= {f"runs.{name}": {"runs": each} for name, each in self.runs.items()}
        found |= {f"late.{name}": {"position": each} for name, each in self.late.items()}
        found |= {
            f"changes.{name}": {"packed": np.frombuffer(each, np.uint8)}
            for name, each in self.changes.items()
        }
        return found | {f"splice.{place}": each.arrays() for place, each in enumerate(self.splices)}

    @staticmethod
    def of(arrays: dict[str, State]) -> Orders:
        *marks, has_begin, closing = arrays["orders"]["marks"].tolist()
        orders = Orders(
            Frontier(*marks[:2]), Frontier(*marks[2:]) if has_begin else None, closing=bool(closing)
        )
        for key, state in arrays.items():
            kind, _, name = key.partition(".")
            if kind == "released":
                ts, seq_tick, position = state["ts"], state["sub"], state["position"]
                orders.released[name] = ReleasedTuples(ts, seq_tick, position, int(state["first"][0]))
            elif kind == "runs":
                orders.runs[name] = state["runs"]
            elif kind == "late":
                orders.late[name] = state["position"]
            elif kind == "changes":
                orders.changes[name] = state["packed"].tobytes()
            elif kind == "splice":
                orders.splices.append(SplicePoint.of(state))
        orders.splices.sort(key=lambda each: each.at)
        return orders


class Clock:
    """Takes keys in and gives orders out. Its interface is a pipeline's, as far as inputs go."""

    def __init__(self, plan: Plan, dictionary: Dictionary | None = None) -> None:
        self.dictionary = Dictionary() if dictionary is None else dictionary
        inputs = [input_ for input_ in plan.app.inputs if not input_.is_static]
        self._columns = {input_.name: len(input_.schema) if input_.is_relation else 0 for input_ in inputs}
        self._feeds = {input_.name: Feed(self._columns[input_.name], input_.slack) for input_ in inputs}
        self._relations = {
            input_.name: Relation(len(input_.schema), input_.timestamp)
            for input_ in inputs
            if input_.is_relation
        }
        self._by_tuple = [input_.name for input_ in inputs if input_.tick.value == "TUPLE"]
        self._counts = {input_.name: 0 for input_ in inputs if not input_.is_relation}
        self._tables: dict[str, InputRows] = {}
        #: Whether queries may come later, and static tables are kept for them.
        self.keeps_tables = False
        self._late: dict[str, list[I64]] = {}
        self._shippers = {
            input_.name: Shipper(input_.schema, self.dictionary, CHANGE)
            for input_ in plan.app.inputs
            if input_.is_relation
        }
        self._upto = Frontier(-(2**63), 0)
        self._begun = False
        self._closing = False
        #: Deletions of outside relations that the last orders held, and those that found no row.
        self.deletions: list[tuple[str, I64]] = []
        self.refused: list[tuple[str, I64]] = []

    # ------------------------------------------------------------ input

    def add(self, name: str, rows: InputRows) -> InputRows:
        """Rows of a relation, or keys of a stream (rows without columns); returns those that are late."""
        if name not in self._feeds:
            self._tables[name] = join([self._tables[name], rows]) if name in self._tables else rows
            return rows.take(np.zeros(len(rows), np.bool_))
        late = self._feeds[name].add(rows)
        if len(late):
            self._late.setdefault(name, []).append(late.position)
        return late

    def add_keys(self, name: str, ts: I64, position: I64) -> InputRows:
        """A stream's tuples by time and place in the source."""
        return self.add(
            name, InputRows(ts, np.ones(len(ts), np.int64), np.zeros((1, len(ts)), np.int64), position)
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
    def upto(self) -> Frontier:
        """Every instant below this has been ordered to run."""
        return self._upto

    @property
    def come(self) -> int | None:
        """The first time of which nothing has come, and nothing was ordered; None if nothing came at all."""
        greatest = max((feed.greatest for feed in self._feeds.values()), default=-(2**63))
        if not self._begun and greatest == -(2**63):
            return None
        return max(greatest + 1, self._upto.ts)

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

    def run(self, splices: Sequence[SplicePoint] = ()) -> Orders | None:
        """Orders to run every instant that is complete; None if the shards have nothing to do.

        Of the changes of queries to come, in the order of their times, they hold those that are due.
        """
        if not self.ended:
            return self._run_upto(self.frontier, splices)
        greatest = [feed.greatest for feed in self._feeds.values()]
        known = [each for each in greatest if each > -(2**63)]
        return self._run_upto(max(known, default=0) + 1, splices)

    def flush(self, upto: Frontier) -> Orders | None:
        """Orders to let windows expire after the end of the input."""
        if upto <= self._upto:
            return None
        self._upto = upto
        self._closing = True
        return Orders(upto, closing=True)

    def _run_upto(self, ts: int, splices: Sequence[SplicePoint] = ()) -> Orders | None:
        self.deletions, self.refused = [], []
        orders = Orders(Frontier(ts, 0))
        orders.late = {name: np.concatenate(parts) for name, parts in self._late.items()}
        self._late = {}
        if orders.upto <= self._upto:
            # Late tuples must be forgotten by whoever holds them, even if time stands still.
            orders.upto = self._upto
            return orders if orders.late else None
        first: Frontier | None = None
        changes: dict[str, list[Batch]] = {}
        for splice in splices:
            if splice.at < ts:
                first = self._release(splice.at, orders, changes, first)
                orders.splices.append(self._spliced(splice, first))
        first = self._release(ts, orders, changes, first)
        if first is None and not self._begun and not self.ended:
            orders.upto = self._upto
            orders.splices = []
            return orders if orders.late else None
        if not self._begun:
            self._begun = True
            orders.begin = first or Frontier(0, 0)
            for name, rows in self._tables.items():
                orders.changes[name] = pack_changes(self._shippers[name], rows.entering(orders.begin))
            self._tables = self._tables if self.keeps_tables else {}
        for name, batches in changes.items():
            batch = concat(batches, self._columns[name]) if len(batches) > 1 else batches[0]
            orders.changes[name] = pack_changes(self._shippers[name], batch)
        self._upto = orders.upto
        return orders

    def _spliced(self, splice: SplicePoint, first: Frontier | None) -> SplicePoint:
        """The change with what is known at its time; `first` is the first instant before it, if any."""
        found = SplicePoint(splice.at, splice.comes, splice.goes)
        found.begun = self._begun or first is not None
        if found.begun and found.comes:
            found.counts = dict(self._counts)
            held = {name: each.contents() for name, each in self._relations.items()}
            held |= {name: rows.entering(Frontier(0, 0)) for name, rows in self._tables.items()}
            found.contents = {
                name: pack_changes(self._shippers[name], at(batch, Frontier(splice.at, 0)))
                for name, batch in held.items()
                if len(batch)
            }
        return found

    def _release(
        self, ts: int, orders: Orders, changes: dict[str, list[Batch]], before: Frontier | None
    ) -> Frontier | None:
        """Adds what is below a time to the orders, and to the changes of relations.

        Returns the first instant of all that the orders hold; `before` is that of what they held.
        """
        pieces = {name: feed.release(ts) for name, feed in self._feeds.items()}
        rows = {name: join(each) for name, each in pieces.items() if each}
        subs = self._numbered(rows) if self._by_tuple else {}
        first: list[Frontier] = []
        for name, released in rows.items():
            seq_tick = subs.get(name, zeros(len(released)))
            first.append(Frontier(int(released.ts[0]), int(seq_tick[0])))
            if name not in self._relations:
                self._release_stream(name, released, seq_tick, orders)
                continue
            batch, refused = self._relations[name].apply(
                released, as_batch([released], seq_tick, enter=False)
            )
            self.deletions.append((name, released.position[released.diff < 0]))
            if len(refused):
                self.refused.append((name, refused.position))
            changes.setdefault(name, []).append(batch)
        return before if before is not None else min(first, default=None)

    def _release_stream(self, name: str, rows: InputRows, seq_tick: I64, orders: Orders) -> None:
        ordinal = self._counts[name] + 1
        self._counts[name] += len(rows)
        ts, position = rows.ts, rows.position
        if (before := orders.released.get(name)) is not None:
            ordinal = before.first
            ts = np.concatenate([before.ts, ts])
            seq_tick = np.concatenate([before.seq_tick, seq_tick])
            position = np.concatenate([before.position, position])
        orders.released[name] = ReleasedTuples(ts, seq_tick, position, ordinal)

    def _numbered(self, rows: dict[str, InputRows]) -> dict[str, I64]:
        """`seq_tick` of the tuples of each TICK BY TUPLE stream."""
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
            **{f"table.{name}": {"data": matrix(rows.data)} for name, rows in self._kept_tables.items()},
        }

    def forget_texts(self) -> None:
        """Forgets texts that nothing holds any more; to be called when orders were packed."""
        if self.dictionary.is_due:
            self.dictionary.forget(self._held_words)

    def _held_words(self) -> Iterator[I64]:
        yield from input_words(self._tables, self._feeds)
        for relation in self._relations.values():
            yield from words_in(relation.snapshot())

    @property
    def _kept_tables(self) -> dict[str, InputRows]:
        """Before the beginning, static tables are in the log only."""
        return self._tables if self._begun else {}

    def restore(self, state: dict[str, State]) -> None:
        """Called on a new clock of the same plan. Until the beginning, static tables are added again."""
        ts, seq_tick, begun, closing = state["clock"]["marks"].tolist()
        self._upto, self._begun, self._closing = Frontier(ts, seq_tick), bool(begun), bool(closing)
        self._counts = dict(zip(self._counts, state["clock"]["counts"].tolist(), strict=True))
        self.dictionary.restore(state["dictionary"])
        for name, feed in self._feeds.items():
            feed.restore(state[f"feed.{name}"])
            if f"late.{name}" in state:
                self._late[name] = [state[f"late.{name}"]["position"]]
        for name, relation in self._relations.items():
            relation.restore(state[f"relation.{name}"])
        for key, table in state.items():
            if key.startswith("table."):
                data = np.array(table["data"], np.int64, order="C")
                nothing = zeros(data.shape[1])
                self._tables[key.removeprefix("table.")] = InputRows(nothing, nothing + 1, data, nothing)
