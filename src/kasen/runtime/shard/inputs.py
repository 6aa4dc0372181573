"""What comes to one shard: by exchanges from other shards, from inputs by the clock's orders, or packed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, empty, ones, orderings
from kasen.engine.operator import State, words_in
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.logical import Node, Scan
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragments import travelling
from kasen.runtime.shard.clock import Orders
from kasen.runtime.shard.shipment import CHANGE, KeyHash, Shipper, unpack_changes
from kasen.runtime.shard.tuples import PLACED, PendingTuples

#: Before an exchange's name: what its source held before a change, for steps that are new.
BEFORE = "="
#: Packed changes that came for this shard, by exchange.
Received = Mapping[str, Sequence[bytes]]


class ShardInputs:
    """The exchanges that come to a shard, by name, and what it takes to read each of them."""

    def __init__(self, shard: int, shards: int, dictionary: Dictionary) -> None:
        self._shard = shard
        self._shards = shards
        self._dictionary = dictionary
        #: Every exchange with its source.
        self._sources: dict[str, tuple[Exchange, Node]] = {}
        self._pending: dict[str, PendingTuples] = {}
        self._shippers: dict[str, Shipper] = {}
        self._orders: dict[str, ValueOrder] = {}
        self._keys: dict[str, KeyHash] = {}
        #: How many tuples a stream had before the queries came that number them, by exchange.
        self.counts: dict[str, int] = {}

    def open(self, edge: Exchange, node: Node) -> None:
        """From now on the exchange is read; its tuples are kept until they are needed."""
        if edge.name in self._sources:
            return
        self._sources[edge.name] = (edge, node)
        if not isinstance(node, Scan):
            schema = travelling(node.schema, edge)
            self._shippers[edge.name] = Shipper(schema, self._dictionary, CHANGE)
            if node.is_stream and not edge.instants:
                # A query's tuples are in the order of values within an instant, wherever they come from.
                self._orders[edge.name] = ValueOrder(orderings(schema), self._dictionary)
        elif node.relation:
            self._shippers[edge.name] = Shipper(node.schema, self._dictionary, CHANGE)
        elif not edge.instants:
            shipper = Shipper(node.schema, self._dictionary, PLACED)
            self._pending[edge.name] = PendingTuples(len(node.schema), shipper)

    def close_all_but(self, used: Collection[str]) -> None:
        for name in self._sources.keys() - used:
            del self._sources[name]
            self._pending.pop(name, None)

    def __getitem__(self, name: str) -> tuple[Exchange, Node]:
        return self._sources[name]

    def find(self, name: str) -> tuple[Exchange, Node] | tuple[None, None]:
        """An exchange and its source, if it comes here."""
        return self._sources.get(name, (None, None))

    def are_common(self, name: str) -> bool:
        """Whether an exchange has the tuples of a stream from outside, with nothing of one generation's."""
        return name in self._pending and not self._sources[name][0].ordinals

    def hash_keys(self, edge: Exchange) -> None:
        """From now on `shards` knows an exchange, whether it comes here or leaves."""
        if edge.to is Destination.KEY and edge.name not in self._keys:
            self._keys[edge.name] = self._keys[BEFORE + edge.name] = KeyHash(edge.keys, self._dictionary)

    def shards(self, edge: Exchange, batch: Batch) -> I64:
        """The shard of each row of an exchange by keys."""
        return self._keys[edge.name].shards(batch, self._shards)

    # ------------------------------------------------------------ reading

    def read(self, orders: Orders, received: Received) -> dict[str, Batch]:
        """What runs in this epoch, by exchange."""
        return {
            name: self._read(edge, node, orders, received) for name, (edge, node) in self._sources.items()
        }

    def _read(self, edge: Exchange, node: Node, orders: Orders, received: Received) -> Batch:
        packed = received.get(edge.name, ())
        if not isinstance(node, Scan):
            batch, order = self.unpack(edge.name, packed), self._orders.get(edge.name)
            return batch if order is None else order.sort(batch)
        if node.relation:
            changes = orders.changes.get(node.name)
            if changes is None:
                return empty(0 if edge.instants else len(node.schema))
            return self.own_rows(edge, node, changes)
        released = orders.released.get(node.name)
        if edge.instants:
            return empty(0) if released is None else instants(released.ts, released.seq_tick)
        pending = self._pending[edge.name]
        pending.add(packed, orders.runs.get(node.name))
        batch = pending.release(orders, node.name, ordinals=edge.ordinals)
        return _renumber(batch, self.counts.get(edge.name, 0)) if edge.ordinals else batch

    def unpack(self, name: str, packed: Sequence[bytes]) -> Batch:
        return unpack_changes(self._shippers[name], packed)

    def own_rows(self, edge: Exchange, node: Scan, packed: bytes) -> Batch:
        """An outside relation's changes: every shard gets all of them and takes its own."""
        if edge.to is Destination.ONE and self._shard:
            return empty(0 if edge.instants else len(node.schema))
        batch = self.unpack(edge.name, [packed])
        if edge.instants:
            return instants(batch.ts, batch.seq_tick)
        if edge.to is Destination.KEY:
            batch = batch.where(self.shards(edge, batch) == self._shard)
        return batch

    def number_from(self, name: str, before: int, batch: Batch) -> Batch:
        """Queries came that number a stream's tuples: those that were before do not count."""
        self.counts[name] = before
        return _renumber(batch, before)

    # ------------------------------------------------------------ state

    def held_words(self) -> Iterator[I64]:
        """Every word that may be the code of a text."""
        for pending in self._pending.values():
            yield from words_in(pending.snapshot())

    def snapshot(self) -> dict[str, State]:
        return {f"held.{name}": pending.snapshot() for name, pending in self._pending.items()}

    def restore(self, state: Mapping[str, State]) -> None:
        for name, pending in self._pending.items():
            if f"held.{name}" in state:
                pending.restore(state[f"held.{name}"])


def instants(ts: I64, seq_tick: I64) -> Batch:
    """Rows without columns: they tell only when something comes."""
    count = len(ts)
    return Batch(ts, seq_tick, ones(count), np.zeros((1, count), np.int64))


def _renumber(batch: Batch, before: int) -> Batch:
    """Tuples with ordinals: the first that counts gets 1."""
    if not before or not len(batch):
        return batch
    data = batch.data.copy()
    data[-2] -= before
    return Batch(batch.ts, batch.seq_tick, batch.diff, data)
