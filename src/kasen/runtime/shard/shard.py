"""One fragment of the plan on one shard: rows and orders in, rows for other shards and answers out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, concat
from kasen.engine.failures import Failures
from kasen.engine.operator import State
from kasen.engine.stream.net import net
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import ResourceError
from kasen.plan.lower.instantiate import Context
from kasen.plan.physical import Plan
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import Generation
from kasen.runtime.graph.graph import Graph, below
from kasen.runtime.shard.clock import Orders, SplicePoint
from kasen.runtime.shard.generation import PlacedGeneration, SpliceOutput
from kasen.runtime.shard.inputs import BEFORE, Received, ShardInputs, instants
from kasen.runtime.shard.shipment import Shipper, pack_changes
from kasen.runtime.shard.splice import ShardSplice
from kasen.runtime.shard.steps import ShardSteps

#: So many changes at most are packed together.
_PIECE = 1 << 17


@dataclass(slots=True)
class ShardOutput:
    """What a shard did in an epoch: packed changes for (exchange, shard), and packed answers by query."""

    exchanged: list[tuple[Exchange, int, bytes]] = field(default_factory=list)
    answers: list[tuple[str, bytes]] = field(default_factory=list)


class Shard:
    """Runs epoch after epoch; every epoch's orders come exactly once."""

    def __init__(
        self, cut: FragmentPlan, level: int, shard: int, shards: int, generations: Sequence[Generation] = ()
    ) -> None:
        """`generations` are those of queries that came later or will; see `announce`."""
        self._level = level
        self._shard = shard
        self._shards = shards
        app = cut.plan.app
        self.dictionary = Dictionary(app.max_text_bytes)
        self.failures = Failures()
        fragment = cut.fragments[level - 1] if level <= len(cut.fragments) else None
        plan = Plan(app, (), ()) if fragment is None else fragment.plan(shard)
        self._context = Context(self.dictionary, self.failures)
        self._graph = Graph(plan, self._context, int(app.setting("max_ticks", "1000000")))
        self._inputs = ShardInputs(shard, shards, self.dictionary)
        self._steps = ShardSteps(self._graph, self._inputs, shard)
        #: Those that the shard may need, also if they have no fragment at this level.
        self._generations: dict[int, Generation] = {}
        self._forgotten: set[int] = set()
        self._has_changed = False
        self.announce([Generation(0, cut), *generations])
        if fragment is not None:
            self._steps.adopt(self._steps.generations[0])

    def announce(self, generations: Iterable[Generation]) -> None:
        """Queries will come: from now on the tuples that they need are kept."""
        for generation in generations:
            number = generation.number
            if number in self._forgotten:
                continue
            self._generations[number] = generation
            fragment = generation.fragment(self._level)
            if number in self._steps.generations or fragment is None:
                continue
            self._steps.generations[number] = PlacedGeneration.of(
                generation, fragment, self._shard, self.dictionary
            )
            for edge in fragment.inputs:
                self._inputs.open(edge, generation.cut.plan.steps[edge.source].node)
            for edge in (*fragment.inputs, *fragment.outputs):
                self._inputs.hash_keys(edge)

    def run(self, orders: Orders, received: Received) -> ShardOutput:
        """One epoch. `received` has by exchange what came for this shard."""
        if orders.closing:
            self._graph.end_input()
        sources = self._inputs.read(orders, received)
        begin = orders.begin
        outputs: list[dict[str, Batch]] = []
        splice_outputs: list[SpliceOutput] = []
        for point in orders.splices:
            if begin is not None and point.begun:
                self._graph.begin(begin)
                begin = None
            if self._graph.begun:
                before = {name: below(batch, Frontier(point.at)) for name, batch in sources.items()}
                outputs.append(self._graph.run(before, Frontier(point.at)))
            # What is not there yet sees nothing of what was before it.
            sources = {name: _since(batch, point.at) for name, batch in sources.items()}
            splice_outputs.append(self._splice(point, sources, received))
            outputs.append(splice_outputs[-1].outputs)
        if begin is not None:
            self._graph.begin(begin)
        if self._graph.begun:
            outputs.append(self._graph.run(sources, orders.upto))
        sent = self._sent(outputs)
        for output in splice_outputs:
            for edge, shipper, batch in output.contents_before:
                self._send(replace(edge, alias=BEFORE + edge.name), shipper, batch, sent)
            sent.answers += [
                (label, pack_changes(shipper, batch)) for label, shipper, batch in output.transitions
            ]
        if orders.splices:
            self._forget_generations()
        if self.dictionary.is_due:  # whatever leaves has been packed, with its texts
            self.dictionary.forget(self._held_words)
        return sent

    def _splice(self, point: SplicePoint, sources: dict[str, Batch], received: Received) -> SpliceOutput:
        self._has_changed = True
        splice = ShardSplice(point, self._generations, self._steps, self._context)
        return splice.run(sources, received)

    def _forget_generations(self) -> None:
        """Those whose queries are all gone will not come again."""
        placed = self._steps.generations
        self._forgotten |= {number for number, each in placed.items() if number and not each.live}
        self._steps.forget(self._forgotten)
        for number in self._forgotten & self._generations.keys():
            del self._generations[number]

    def _held_words(self) -> Iterator[I64]:
        """Every word that may be the code of a text."""
        yield from self._inputs.held_words()
        yield from self._graph.held_words()

    # ------------------------------------------------------------ what goes out

    def _sent(self, outputs: list[dict[str, Batch]]) -> ShardOutput:
        sent = ShardOutput()
        seen: set[str] = set()  # a query that replaces another one goes on with the exchanges of that
        for placed in self._steps.generations.values():
            for edge, shipper in placed.outgoing:
                if edge.name not in seen and (
                    edge.to is Destination.SAME or placed.emits(edge.name, self._shard)
                ):
                    self._send(edge, shipper, _all(outputs, edge.name), sent)
                seen.add(edge.name)
            for answer in placed.answers:
                batch = _all(outputs, answer.label)
                if batch is not None and len(batch) and placed.emits(answer.query, self._shard):
                    for piece in _pieces(net(batch) if answer.is_netted else batch):
                        sent.answers.append((answer.label, pack_changes(answer.shipper, piece)))
        return sent

    def _send(self, edge: Exchange, shipper: Shipper, batch: Batch | None, sent: ShardOutput) -> None:
        if batch is None or not len(batch):
            return
        if edge.instants:
            batch = instants(batch.ts, batch.seq_tick)
        match edge.to:
            case Destination.ONE:
                sent.exchanged.append((edge, 0, pack_changes(shipper, batch)))
            case Destination.SAME:
                sent.exchanged.append((edge, self._shard, pack_changes(shipper, batch)))
            case Destination.ALL:
                packed = pack_changes(shipper, batch)
                sent.exchanged += [(edge, shard, packed) for shard in range(self._shards)]
            case Destination.KEY:
                shards = self._inputs.shards(edge, batch)
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
            **self._inputs.snapshot(),
            **{f"step.{step}": each for step, each in self._graph.snapshot().items()},
        }
        if self._has_changed:
            saved = {"parts": self._steps.save(), "counts": self._inputs.counts}
            state["live"] = {"json": np.frombuffer(json.dumps(saved).encode(), np.uint8)}
        return state

    def restore(self, state: dict[str, State]) -> None:
        begun, self.failures.count = state["shard"]["marks"].tolist()
        self.dictionary.restore(state["dictionary"])
        if "live" in state:
            saved = json.loads(state["live"]["json"].tobytes())
            self._inputs.counts = saved["counts"]
            self._steps.rebuild(saved["parts"])
            self._has_changed = True
        self._inputs.restore(state)
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
