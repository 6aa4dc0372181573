"""One fragment of the plan on one shard: rows and orders in, rows for other shards and answers out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kasen.errors import ResourceError
from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound, Columns, empty, matrix, ones, orderings
from kasen.operators.dictionary import Dictionary
from kasen.operators.failures import Failures
from kasen.operators.net import net
from kasen.operators.value_order import ValueOrder
from kasen.plan.exchange import Exchange, To
from kasen.plan.fragments import Cut, Fragment, travelling
from kasen.plan.instantiate import Context
from kasen.plan.logical import Node, Scan
from kasen.plan.lower import is_net
from kasen.runtime.clock import Orders
from kasen.runtime.graph import Graph
from kasen.runtime.shipment import CHANGE, Keys, Shipper, pack_changes, unpack_changes

#: So many changes at most are packed together.
_PIECE = 1 << 17
#: What travels before the columns of an input's tuple.
PLACED = ("position",)


@dataclass(slots=True)
class Sent:
    """What a shard did in an epoch: packed changes for (exchange, shard), and packed answers by query."""

    exchanged: list[tuple[Exchange, int, bytes]] = field(default_factory=list)
    answers: list[tuple[str, bytes]] = field(default_factory=list)


class Shard:
    """Runs epoch after epoch; every epoch's orders come exactly once."""

    def __init__(self, cut: Cut, level: int, shard: int, shards: int) -> None:
        self._fragment: Fragment = cut.fragments[level - 1]
        self._shard = shard
        self._shards = shards
        app = cut.plan.app
        plan = self._fragment.plan(shard)
        self.dictionary = Dictionary()
        self.failures = Failures()
        max_ticks = int(app.setting("max_ticks", "1000000"))
        self._graph = Graph(plan, Context(self.dictionary, self.failures), max_ticks)
        nodes = [step.node for step in cut.plan.steps]
        self._sources = [(edge, nodes[edge.source]) for edge in self._fragment.inputs]
        self._held: dict[str, _Held] = {}
        self._shippers: dict[str, Shipper] = {}
        self._orders: dict[str, ValueOrder] = {}
        for edge, node in self._sources:
            self._open(edge, node)
        self._keys = {
            edge.name: Keys(edge.keys, self.dictionary)
            for edge in (*self._fragment.inputs, *self._fragment.outputs)
            if edge.to is To.KEY
        }
        self._outgoing = [
            (edge, Shipper(travelling(nodes[edge.source].schema, edge), self.dictionary, CHANGE))
            for edge in self._fragment.outputs
            if edge.name in dict(plan.outputs)
        ]
        self._queries = [
            (name, Shipper(node.schema, self.dictionary, CHANGE), not node.is_stream and not is_net(node))
            for name, node in ((name, plan.steps[step].node) for name, step in plan.outputs)
            if not name.startswith("#")
        ]

    def _open(self, edge: Exchange, node: Node) -> None:
        """What it takes to read one of the exchanges that come here."""
        if not isinstance(node, Scan):
            schema = travelling(node.schema, edge)
            self._shippers[edge.name] = Shipper(schema, self.dictionary, CHANGE)
            if node.is_stream and not edge.instants:
                # A query's tuples are in the order of values within an instant, wherever they come from.
                self._orders[edge.name] = ValueOrder(orderings(schema), self.dictionary)
        elif node.relation:
            self._shippers[edge.name] = Shipper(node.schema, self.dictionary, CHANGE)
        elif not edge.instants:
            self._held[edge.name] = _Held(len(node.schema), Shipper(node.schema, self.dictionary, PLACED))

    # ------------------------------------------------------------ running

    def run(self, orders: Orders, received: Mapping[str, Sequence[bytes]]) -> Sent:
        """One epoch. `received` has by exchange what came for this shard."""
        if orders.closing:
            self._graph.close_delays()
        sources = {edge.name: self._source(edge, node, orders, received) for edge, node in self._sources}
        if orders.begin is not None:
            self._graph.begin(orders.begin)
        if not self._graph.begun:
            return Sent()
        out = self._graph.run(sources, orders.upto)
        sent = Sent()
        for edge, shipper in self._outgoing:
            # Of what every shard has, the first one's is sent; but what stays on its shard, by each.
            if edge.to is To.SAME or not (edge.name in self._fragment.everywhere and self._shard):
                self._send(edge, shipper, out.get(edge.name), sent)
        for name, shipper, nets in self._queries:
            batch = out.get(name)
            if batch is not None and len(batch) and not (name in self._fragment.everywhere and self._shard):
                for piece in _pieces(net(batch) if nets else batch):
                    sent.answers.append((name, pack_changes(shipper, piece)))
        return sent

    def _source(
        self, edge: Exchange, node: Node, orders: Orders, received: Mapping[str, Sequence[bytes]]
    ) -> Batch:
        if not isinstance(node, Scan):
            shipper = self._shippers[edge.name]
            batch = unpack_changes(shipper, received.get(edge.name, ()))
            order = self._orders.get(edge.name)
            return batch if order is None else order.sort(batch)
        if node.relation:
            return self._relation(edge, node, orders)
        released = orders.released.get(node.name)
        if edge.instants:
            if released is None:
                return empty(0)
            count = len(released.ts)
            return Batch(released.ts, released.sub, ones(count), np.zeros((1, count), np.int64))
        held = self._held[edge.name]
        held.add(received.get(edge.name, ()), orders.runs.get(node.name))
        return held.release(orders, node.name, ordinals=edge.ordinals)

    def _relation(self, edge: Exchange, node: Scan, orders: Orders) -> Batch:
        """An outside relation's changes: every shard gets all of them and takes its own."""
        packed = orders.changes.get(node.name)
        if packed is None or (edge.to is To.ONE and self._shard):
            return empty(0 if edge.instants else len(node.schema))
        batch = unpack_changes(self._shippers[edge.name], [packed])
        if edge.instants:
            return Batch(batch.ts, batch.sub, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        if edge.to is To.KEY:
            batch = batch.where(self._keys[edge.name].shards(batch, self._shards) == self._shard)
        return batch

    def _send(self, edge: Exchange, shipper: Shipper, batch: Batch | None, sent: Sent) -> None:
        if batch is None or not len(batch):
            return
        if edge.instants:
            batch = Batch(batch.ts, batch.sub, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        match edge.to:
            case To.ONE:
                sent.exchanged.append((edge, 0, pack_changes(shipper, batch)))
            case To.SAME:
                sent.exchanged.append((edge, self._shard, pack_changes(shipper, batch)))
            case To.ALL:
                packed = pack_changes(shipper, batch)
                sent.exchanged += [(edge, shard, packed) for shard in range(self._shards)]
            case To.KEY:
                shards = self._keys[edge.name].shards(batch, self._shards)
                for shard in np.unique(shards).tolist():
                    mine = batch.where(shards == shard)
                    sent.exchanged.append((edge, shard, pack_changes(shipper, mine)))

    @property
    def stopped(self) -> list[ResourceError]:
        """Why loops were stopped, if any were."""
        return self._graph.stopped

    def last_instant(self) -> Bound | None:
        """When what windows hold now will have left them."""
        return self._graph.last_instant()

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, State]:
        marks = [int(self._graph.begun), self.failures.count]
        return {
            "shard": {"marks": np.array(marks, np.int64)},
            "dictionary": self.dictionary.snapshot(),
            **{f"held.{name}": held.snapshot() for name, held in self._held.items()},
            **{f"step.{step}": each for step, each in self._graph.snapshot().items()},
        }

    def restore(self, state: dict[str, State]) -> None:
        begun, self.failures.count = state["shard"]["marks"].tolist()
        self.dictionary.restore(state["dictionary"])
        for name, held in self._held.items():
            held.restore(state[f"held.{name}"])
        prefix = "step."
        steps = {int(key[len(prefix) :]): each for key, each in state.items() if key.startswith(prefix)}
        self._graph.restore(steps, bool(begun))


def _pieces(batch: Batch) -> Iterator[Batch]:
    """A batch in pieces that are good to carry."""
    if len(batch) <= _PIECE:
        yield batch
        return
    for first in range(0, len(batch), _PIECE):
        yield batch.take(np.arange(first, min(first + _PIECE, len(batch)), dtype=np.int64))


class _Held:
    """Tuples of an input that have come to this shard and wait for the clock, by place in the source."""

    def __init__(self, columns: int, shipper: Shipper) -> None:
        self._shipper = shipper
        self._position: I64 = np.empty(0, np.int64)
        self._data: I64 = np.empty((columns + 1, 0), np.int64)

    def add(self, packed: Sequence[bytes], runs: I64 | None) -> None:
        """Takes tuples in; `runs` tells their positions if they carry the places that Spark gave them."""
        if not packed:
            return
        (position,), data = self._shipper.unpack(packed)
        if runs is not None:
            run = np.searchsorted(runs[0], position, "right") - 1
            position = runs[1][run] + position - runs[0][run]
        self._position = np.concatenate([self._position, position])
        self._data = np.concatenate([self._data, data], axis=1)

    def release(self, orders: Orders, name: str, *, ordinals: bool) -> Batch:
        """What is to run now, in order; what is late is dropped."""
        late = orders.late.get(name)
        if late is not None:
            self._keep(~np.isin(self._position, late))
        released = orders.released.get(name)
        width = len(self._data) - 1 + ordinals
        if released is None or not len(self._position):
            return empty(width)
        # Where each held tuple stands among those that run.
        by_position = np.argsort(released.position, kind="stable")
        found = np.searchsorted(released.position, self._position, sorter=by_position)
        found = np.minimum(found, len(by_position) - 1)
        places = by_position[found]
        runs = released.position[places] == self._position
        mine = np.nonzero(runs)[0]
        mine = mine[np.argsort(places[mine], kind="stable")]
        where = places[mine]
        data = self._data[:, mine]
        if ordinals:
            numbers = where + released.first
            data = np.concatenate([data[:-1], numbers[np.newaxis], data[-1:]])
        self._keep(~runs)
        count = len(where)
        return Batch(released.ts[where], released.sub[where], ones(count), np.ascontiguousarray(data))

    def _keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        self._position = self._position[chosen]
        self._data = np.ascontiguousarray(self._data[:, chosen])

    def snapshot(self) -> State:
        return {"position": self._position, "data": self._data}

    def restore(self, state: State) -> None:
        self._position = state["position"]
        self._data = np.ascontiguousarray(state["data"], np.int64)


class Scatter:
    """Sends an input's tuples to the shards that need them."""

    def __init__(self, cut: Cut, shards: int, dictionary: Dictionary) -> None:
        self._shards = shards
        self._ways: dict[str, list[tuple[Exchange, Keys | None, Shipper]]] = {}
        for edge in cut.scanned:
            node = cut.plan.steps[edge.source].node
            if isinstance(node, Scan) and not node.relation and not edge.instants:
                keys = Keys(edge.keys, dictionary) if edge.to is To.KEY else None
                shipper = Shipper(node.schema, dictionary, PLACED)
                self._ways.setdefault(node.name, []).append((edge, keys, shipper))

    def send(self, name: str, position: I64, columns: Columns) -> list[tuple[Exchange, int, bytes]]:
        """Tuples with their positions in the source, or the places that Spark gave them."""
        count = len(position)
        sent: list[tuple[Exchange, int, bytes]] = []
        if not count:
            return sent
        data = matrix(columns)
        batch = Batch(position, position, ones(count), data)
        for edge, keys, shipper in self._ways.get(name, []):
            if keys is None or self._shards == 1:
                sent.append((edge, 0, shipper.pack((position,), data)))
                continue
            shards = keys.shards(batch, self._shards)
            for shard in np.unique(shards).tolist():
                mine = np.nonzero(shards == shard)[0]
                sent.append((edge, shard, shipper.pack((position[mine],), data[:, mine])))
        return sent
