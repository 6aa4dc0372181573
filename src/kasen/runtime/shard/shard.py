"""One fragment of the plan on one shard: rows and orders in, rows for other shards and answers out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, concat, empty, ones
from kasen.engine.operator import State, words_in
from kasen.engine.stream.net import net
from kasen.errors import ResourceError
from kasen.plan.logical import Node, Scan
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.runtime.graph.graph import below
from kasen.runtime.live.shard_queries import BEFORE, ShardQueries, SpliceOutput, renumber
from kasen.runtime.shard.clock import Orders
from kasen.runtime.shard.shipment import Shipper, pack_changes, unpack_changes

#: So many changes at most are packed together.
_PIECE = 1 << 17


@dataclass(slots=True)
class ShardOutput:
    """What a shard did in an epoch: packed changes for (exchange, shard), and packed answers by query."""

    exchanged: list[tuple[Exchange, int, bytes]] = field(default_factory=list)
    answers: list[tuple[str, bytes]] = field(default_factory=list)


class Shard(ShardQueries):
    """Runs epoch after epoch; every epoch's orders come exactly once."""

    def run(self, orders: Orders, received: Mapping[str, Sequence[bytes]]) -> ShardOutput:
        """One epoch. `received` has by exchange what came for this shard."""
        if orders.closing:
            self._graph.end_input()
        sources = {name: self._source(*each, orders, received) for name, each in self._sources.items()}
        begin = orders.begin
        outputs: list[dict[str, Batch]] = []
        splice_outputs: list[SpliceOutput] = []
        for splice in orders.splices:
            if begin is not None and splice.begun:
                self._graph.begin(begin)
                begin = None
            if self._graph.begun:
                before = {name: below(batch, Frontier(splice.at)) for name, batch in sources.items()}
                outputs.append(self._graph.run(before, Frontier(splice.at)))
            # What is not there yet sees nothing of what was before it.
            sources = {name: _since(batch, splice.at) for name, batch in sources.items()}
            splice_outputs.append(self._splice(splice, sources, received))
            outputs.append(splice_outputs[-1].outputs)
        if begin is not None:
            self._graph.begin(begin)
        if self._graph.begun:
            outputs.append(self._graph.run(sources, orders.upto))
        sent = self._sent(outputs)
        for splice_output in splice_outputs:
            for edge, shipper, batch in splice_output.contents_before:
                self._send(replace(edge, alias=BEFORE + edge.name), shipper, batch, sent)
            sent.answers += [
                (name, pack_changes(shipper, batch)) for name, shipper, batch in splice_output.transitions
            ]
        if orders.splices:
            self._forgotten |= {
                number for number, placed in self._placed.items() if number and not placed.live
            }
            self._placed = {
                number: placed for number, placed in self._placed.items() if number not in self._forgotten
            }
            self._generations = {
                number: each for number, each in self._generations.items() if number not in self._forgotten
            }
        if self.dictionary.is_due:  # whatever leaves has been packed, with its texts
            self.dictionary.forget(self._held_words)
        return sent

    def _held_words(self) -> Iterator[I64]:
        """Every word that may be the code of a text."""
        for pending in self._pending.values():
            yield from words_in(pending.snapshot())
        yield from self._graph.held_words()

    def _sent(self, outputs: list[dict[str, Batch]]) -> ShardOutput:
        sent = ShardOutput()
        seen: set[str] = set()  # a query that was replaced goes on with exchanges of the old one
        for placed in self._placed.values():
            for edge, shipper in placed.outgoing:
                if edge.name not in seen and (edge.to is Destination.SAME or self._emits(placed, edge.name)):
                    self._send(edge, shipper, _all(outputs, edge.name), sent)
                seen.add(edge.name)
            for answer, name, shipper, nets in placed.answers:
                batch = _all(outputs, answer)
                if batch is not None and len(batch) and self._emits(placed, name):
                    for piece in _pieces(net(batch) if nets else batch):
                        sent.answers.append((answer, pack_changes(shipper, piece)))
        return sent

    # ------------------------------------------------------------ what comes in

    def _source(
        self,
        edge: Exchange,
        node: Node,
        orders: Orders,
        received: Mapping[str, Sequence[bytes]],
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
            return Batch(released.ts, released.seq_tick, ones(count), np.zeros((1, count), np.int64))
        held = self._pending[edge.name]
        held.add(received.get(edge.name, ()), orders.runs.get(node.name))
        batch = held.release(orders, node.name, ordinals=edge.ordinals)
        return renumber(batch, self._counts.get(edge.name, 0)) if edge.ordinals else batch

    def _relation(self, edge: Exchange, node: Scan, orders: Orders) -> Batch:
        """An outside relation's changes: every shard gets all of them and takes its own."""
        packed = orders.changes.get(node.name)
        if packed is None:
            return empty(0 if edge.instants else len(node.schema))
        return self._own_rows(edge, node, packed)

    # ------------------------------------------------------------ what goes out

    def _send(self, edge: Exchange, shipper: Shipper, batch: Batch | None, sent: ShardOutput) -> None:
        if batch is None or not len(batch):
            return
        if edge.instants:
            batch = Batch(batch.ts, batch.seq_tick, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        match edge.to:
            case Destination.ONE:
                sent.exchanged.append((edge, 0, pack_changes(shipper, batch)))
            case Destination.SAME:
                sent.exchanged.append((edge, self._shard, pack_changes(shipper, batch)))
            case Destination.ALL:
                packed = pack_changes(shipper, batch)
                sent.exchanged += [(edge, shard, packed) for shard in range(self._shards)]
            case Destination.KEY:
                shards = self._keys[edge.name].shards(batch, self._shards)
                for shard in np.unique(shards).tolist():
                    mine = batch.where(shards == shard)
                    sent.exchanged.append((edge, shard, pack_changes(shipper, mine)))

    @property
    def stopped(self) -> list[ResourceError]:
        """Why loops were stopped, if any were."""
        return self._graph.stopped

    @property
    def groups(self) -> int:
        """How many groups the aggregates have."""
        return sum(each.groups for each in self._graph.operators if each is not None)

    def last_instant(self) -> Frontier | None:
        """When what windows hold now will have left them."""
        return self._graph.last_instant()

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, State]:
        marks = [int(self._graph.begun), self.failures.count]
        state: dict[str, State] = {
            "shard": {"marks": np.array(marks, np.int64)},
            "dictionary": self.dictionary.snapshot(),
            **{f"held.{name}": held.snapshot() for name, held in self._pending.items()},
            **{f"step.{step}": each for step, each in self._graph.snapshot().items()},
        }
        if self._has_changed:
            saved = {"parts": self._save_generations(), "counts": self._counts}
            state["live"] = {"json": np.frombuffer(json.dumps(saved).encode(), np.uint8)}
        return state

    def restore(self, state: dict[str, State]) -> None:
        begun, self.failures.count = state["shard"]["marks"].tolist()
        self.dictionary.restore(state["dictionary"])
        if "live" in state:
            self._rebuild_generations(json.loads(state["live"]["json"].tobytes()))
        for name, held in self._pending.items():
            if f"held.{name}" in state:
                held.restore(state[f"held.{name}"])
        prefix = "step."
        steps = {int(key[len(prefix) :]): each for key, each in state.items() if key.startswith(prefix)}
        self._graph.restore(steps, bool(begun))


def _all(outputs: list[dict[str, Batch]], name: str) -> Batch | None:
    """All that was put out under a name."""
    found = [each[name] for each in outputs if name in each]
    return None if not found else found[0] if len(found) == 1 else concat(found, found[0].columns)


def _since(batch: Batch, ts: int) -> Batch:
    """The changes from a time on."""
    return batch if not len(batch) or batch.ts[0] >= ts else batch.where(batch.ts >= ts)


def _pieces(batch: Batch) -> Iterator[Batch]:
    """A batch in pieces that are good to carry."""
    if len(batch) <= _PIECE:
        yield batch
        return
    for first in range(0, len(batch), _PIECE):
        yield batch.take(np.arange(first, min(first + _PIECE, len(batch)), dtype=np.int64))
