"""The queries of a shard: which steps each generation has in its graph, and how a change is spliced in.

The steps of all generations are in one graph. What remembers nothing is there once for all of them. A change
takes effect between two runs of the graph; see plan/shard/generations.py for what a generation is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kasen.engine.batch import Batch, Frontier, concat, empty, ones, orderings
from kasen.engine.failures import Failures
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import QueryError
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Delay, Node, Ref, Scan, Streamify
from kasen.plan.lower.instantiate import Context
from kasen.plan.lower.lower import is_net
from kasen.plan.physical import Plan
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragments import Fragment, FragmentPlan, travelling
from kasen.plan.shard.generations import (
    FragmentUse,
    Generation,
    carries,
    carries_more,
    lies_alike,
    lies_elsewhere,
    read_by,
    steps_of,
    use,
)
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.contents import Contents, at, bag, difference
from kasen.runtime.shard.clock import SplicePoint
from kasen.runtime.shard.shipment import CHANGE, KeyHash, Shipper, unpack_changes
from kasen.runtime.shard.tuples import PLACED, PendingTuples

#: Where a step of a loop reads one that is still to be placed.
_UNRESOLVED = -1
#: Before an exchange's name: what its source held before a change, for steps that are new.
BEFORE = "="

#: What a step is, and the steps that it reads.
_StepKey = tuple[Node, tuple[int, ...]]


@dataclass(slots=True)
class PlacedGeneration:
    """What a generation does here: its fragment, the steps that it has in the graph, and for which queries.

    `steps` has the graph's step for each of the fragment's; it is empty until the generation comes. `reads`
    tells where the older queries are that it reads, which may be replaced.
    """

    generation: Generation
    fragment: Fragment
    plan: Plan
    live: frozenset[str]
    outgoing: list[tuple[Exchange, Shipper]]
    answers: list[tuple[str, str, Shipper, bool]]
    is_placed: bool = False
    since: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    reads: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, int]:
        return dict(self.plan.outputs)

    @property
    def replaced(self) -> frozenset[str]:
        """Its own queries that were replaced: those that read them read the new ones."""
        return frozenset(self.reads.keys() - self.generation.reads.keys())

    def use(self, level: int) -> FragmentUse:
        return use(self.generation, self.live, level, self.replaced)


@dataclass(slots=True)
class SpliceOutput:
    """What is put out at a change besides what the graph does: by output; along exchanges to new steps there,
    of what was before; and of what queries go over from and to."""

    outputs: dict[str, Batch] = field(default_factory=dict)
    contents_before: list[tuple[Exchange, Shipper, Batch]] = field(default_factory=list)
    transitions: list[tuple[str, Shipper, Batch]] = field(default_factory=list)


class ShardQueries:
    """The queries of one fragment's level on one shard: their steps in one graph, and how these change."""

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
        max_ticks = int(app.setting("max_ticks", "1000000"))
        fragment = cut.fragments[level - 1] if level <= len(cut.fragments) else None
        plan = Plan(app, (), ()) if fragment is None else fragment.plan(shard)
        context = Context(self.dictionary, self.failures)
        self._graph = Graph(plan, context, max_ticks)
        self._splicing: SplicePoint | None = None
        self._contents = Contents(self._graph, context, self._own_table_rows)
        self._placed: dict[int, PlacedGeneration] = {}
        #: Every exchange that comes here, by name, with its source.
        self._sources: dict[str, tuple[Exchange, Node]] = {}
        self._pending: dict[str, PendingTuples] = {}
        self._shippers: dict[str, Shipper] = {}
        self._orders: dict[str, ValueOrder] = {}
        self._keys: dict[str, KeyHash] = {}
        #: The steps that generations may share, by what they are, and the other way round.
        self._shared: dict[_StepKey, int] = {}
        self._keys_of: dict[int, _StepKey] = {}
        #: The generations that have a step.
        self._users: dict[int, set[int]] = {}
        #: How many tuples a stream had before the queries came that number them, by exchange.
        self._counts: dict[str, int] = {}
        #: What relations held before the change that replaces them, by generation and name.
        self._initial: dict[tuple[int, str], Batch] = {}
        self._generations: dict[int, Generation] = {}
        self._has_changed = False
        self._forgotten: set[int] = set()
        self.announce([Generation(0, cut), *generations])
        if fragment is not None:
            self._adopt(self._placed[0])

    def _adopt(self, placed: PlacedGeneration) -> None:
        """The generation that the graph was made with."""
        placed.is_placed = True
        placed.steps = {step.id: step.id for step in placed.plan.steps}
        for stage in placed.plan.stages():
            for step in stage:
                node, inputs = placed.plan.steps[step].node, placed.plan.steps[step].inputs
                self._users[step] = {0}
                if self._can_share(node, inputs):
                    self._share((node, inputs), step)

    def announce(self, generations: Iterable[Generation]) -> None:
        """Queries will come: from now on the tuples that they need are kept."""
        for each in generations:
            if each.number not in self._forgotten:
                self._generations[each.number] = each
            fragment = each.fragment(self._level)
            if each.number in self._placed or each.number in self._forgotten or fragment is None:
                continue
            plan = fragment.plan(self._shard)
            nodes = [step.node for step in each.cut.plan.steps]
            here, names = dict(plan.outputs), {edge.name for edge in fragment.outputs}
            outgoing = [
                (edge, Shipper(travelling(nodes[edge.source].schema, edge), self.dictionary, CHANGE))
                for edge in fragment.outputs
                if edge.name in here
            ]
            answers = [
                (
                    each.answer(name),
                    name,
                    Shipper(node.schema, self.dictionary, CHANGE),
                    not node.is_stream and not is_net(node),
                )
                for name, node in ((name, plan.steps[step].node) for name, step in here.items())
                if name not in names
            ]
            live = frozenset(query.name for query in each.queries)
            placed = PlacedGeneration(each, fragment, plan, live, outgoing, answers, reads=dict(each.reads))
            self._placed[each.number] = placed
            for edge in fragment.inputs:
                self._open(edge, nodes[edge.source])
            for edge in (*fragment.inputs, *fragment.outputs):
                if edge.to is Destination.KEY and edge.name not in self._keys:
                    self._keys[edge.name] = self._keys[BEFORE + edge.name] = KeyHash(
                        edge.keys, self.dictionary
                    )

    def _open(self, edge: Exchange, node: Node) -> None:
        """What it takes to read one of the exchanges that come here."""
        if edge.name in self._sources:
            return
        self._sources[edge.name] = (edge, node)
        if not isinstance(node, Scan):
            schema = travelling(node.schema, edge)
            self._shippers[edge.name] = Shipper(schema, self.dictionary, CHANGE)
            if node.is_stream and not edge.instants:
                # A query's tuples are in the order of values within an instant, wherever they come from.
                self._orders[edge.name] = ValueOrder(orderings(schema), self.dictionary)
        elif node.relation:
            self._shippers[edge.name] = Shipper(node.schema, self.dictionary, CHANGE)
        elif not edge.instants:
            self._pending[edge.name] = PendingTuples(
                len(node.schema), Shipper(node.schema, self.dictionary, PLACED)
            )

    # ------------------------------------------------------------ queries that come and go

    def _splice(
        self, splice: SplicePoint, sources: dict[str, Batch], received: Mapping[str, Sequence[bytes]]
    ) -> SpliceOutput:
        """A change takes effect, between two instants. What relations hold then enters among the sources."""
        self._graph.save_loops()
        self._splicing = splice
        self._initial = {}
        output = SpliceOutput()
        for number in splice.comes:
            generation = self._generations[number]
            was = self._retract_replaced(generation, output) if splice.begun and generation.replaces else None
            placed = self._placed.get(number)
            if placed is not None:
                self._place_generation(placed, sources, received, output)
            if generation.replaces is not None:
                self._move_readers(generation, was, output)
        for number, name in splice.goes:
            placed = self._placed.get(number)
            if placed is not None and name in placed.live:
                placed.live -= {name}
                self._prune(placed)
        self._graph.settle()
        self._has_changed = True
        return output

    def _place_generation(
        self,
        placed: PlacedGeneration,
        sources: dict[str, Batch],
        received: Mapping[str, Sequence[bytes]],
        output: SpliceOutput,
    ) -> None:
        splice = self._splicing
        assert splice is not None
        placed.is_placed, placed.since = True, splice.at
        needed = self._needed(placed)
        held = {
            step.id: at(self._holds(placed, step.node), Frontier(splice.at))
            for step in placed.plan.steps
            if splice.begun and step.id in needed and isinstance(step.node, Ref) and not step.node.is_stream
        }
        stages = [stage for stage in placed.plan.stages() if needed.issuperset(stage)]
        fresh = [step for stage in stages for step in self._place_stage(placed, stage)]
        self._name_outputs(placed)
        self._graph.settle()
        if not splice.begun:
            return
        is_new = {node.name for step in fresh if isinstance(node := self._graph.node(step), Scan)}
        for edge in placed.fragment.inputs:
            node = self._sources[edge.name][1]
            if isinstance(node, Scan) and edge.ordinals and edge.name in is_new:
                self._counts[edge.name] = splice.counts.get(node.name, 0)
                sources[edge.name] = renumber(sources[edge.name], self._counts[edge.name])
        if placed.generation.replaces is not None:
            self._prime(placed, fresh, received, output)
            return
        for edge in placed.fragment.inputs:
            node = self._sources[edge.name][1]
            if isinstance(node, Scan) and node.relation and node.name in splice.contents:
                holds = self._own_rows(edge, node, splice.contents[node.name])
                sources[edge.name] = concat((holds, sources[edge.name]), holds.columns)
        self._inject(placed, held, output)
        if not self._graph.begun:
            self._graph.begin(Frontier(splice.at))
            return
        self._graph.begin_steps(fresh, Frontier(splice.at))
        self._graph.share(fresh, Frontier(splice.at))

    def _inject(self, placed: PlacedGeneration, held: dict[int, Batch], output: SpliceOutput) -> None:
        """What older queries hold, or how they change, enters what reads them, here and elsewhere."""
        for step in placed.plan.steps:
            for position, source in enumerate(step.inputs):
                if source in held and step.id in placed.steps:
                    self._graph.inject(placed.steps[step.id], position, held[source])
        output.outputs |= {name: held[step] for name, step in placed.plan.outputs if step in held}

    def _holds(self, placed: PlacedGeneration, ref: Ref) -> Batch:
        """What an older relation query holds at the change, as far as it will not come by itself."""
        number, name = placed.reads[ref.name.lower()]
        if (number, name) in self._initial:
            return self._initial[number, name]
        assert self._splicing is not None
        if self._placed[number].since == self._splicing.at:
            return empty(len(ref.schema))
        return self._contents.of(self._step_read(placed, ref))

    def _step_read(self, placed: PlacedGeneration, ref: Ref) -> int:
        """The step of an older query."""
        number, name = placed.reads[ref.name.lower()]
        found = self._placed[number]
        return found.steps[found.outputs[name]]

    def _own_table_rows(self, name: str) -> Batch:
        """What an outside relation holds of this shard's rows, now that a change takes effect."""
        assert self._splicing is not None
        edge, node = self._sources.get(name, (None, None))
        if edge is not None and isinstance(node, Scan) and node.name in self._splicing.contents:
            return self._own_rows(edge, node, self._splicing.contents[node.name])
        if node is not None and not isinstance(node, Scan):
            fault = "this change would need rows that came from other shards, and are kept nowhere"
            raise QueryError(fault, remedy="DROP and REGISTER the queries together, or give --place driver")
        step = self._graph.scan(name)
        assert step is not None
        return empty(len(self._graph.node(step).schema))

    def _own_rows(self, edge: Exchange, node: Scan, packed: bytes) -> Batch:
        if edge.to is Destination.ONE and self._shard:
            return empty(0 if edge.instants else len(node.schema))
        batch = unpack_changes(self._shippers[edge.name], [packed])
        if edge.instants:
            return Batch(batch.ts, batch.seq_tick, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        if edge.to is Destination.KEY:
            batch = batch.where(self._keys[edge.name].shards(batch, self._shards) == self._shard)
        return batch

    def _emits(self, placed: PlacedGeneration, name: str) -> bool:
        """Of what every shard has, the first one's counts."""
        return not (name in placed.fragment.everywhere and self._shard)

    # ------------------------------------------------------------ queries that are replaced

    def _retract_replaced(self, generation: Generation, output: SpliceOutput) -> Batch | None:
        """What a relation held that is replaced, if it is here; its answer goes over from there."""
        assert generation.replaces is not None
        assert self._splicing is not None
        number, name = generation.replaces.number, generation.replaces.name
        old, new = self._placed.get(number), generation.queries[0]
        if old is None or name not in old.outputs:
            return None
        was = old.generation.query(name)
        if was.is_stream or new.is_stream or was.schema.types != new.schema.types:
            return None
        holds = self._contents.of(old.steps[old.outputs[name]])
        if self._emits(old, name):
            gone = at(Batch(holds.ts, holds.seq_tick, -holds.diff, holds.data), Frontier(self._splicing.at))
            output.transitions.append((generation.answer(new.name), self._shipper(old, name), gone))
        return holds

    def _shipper(self, placed: PlacedGeneration, name: str) -> Shipper:
        return next(shipper for _, query, shipper, _ in placed.answers if query == name)

    def _prime(
        self,
        placed: PlacedGeneration,
        fresh: list[int],
        received: Mapping[str, Sequence[bytes]],
        output: SpliceOutput,
    ) -> None:
        """A query goes on: its new steps take in what was before, in silence, and its answer goes over."""
        splice, generation = self._splicing, placed.generation
        assert splice is not None
        assert generation.replaces is not None
        if not self._graph.begun:
            self._graph.begin(Frontier(splice.at - 1))
        before = _ContentsBefore(self, placed, set(fresh), splice, received)
        remembering = [
            step
            for stage in placed.plan.stages()
            for step in stage
            if placed.steps.get(step) in before.fresh and not is_stateless(placed.plan.steps[step].node)
        ]
        for step in remembering:
            before.holds(step)
        query = generation.queries[0]
        if query.name in placed.outputs and not query.is_stream:
            initial = bag(before.holds(placed.outputs[query.name]))
            self._initial[generation.number, query.name] = initial
            if self._emits(placed, query.name):
                told = at(initial, Frontier(splice.at))
                output.transitions.append(
                    (generation.answer(query.name), self._shipper(placed, query.name), told)
                )
        for edge, shipper in placed.outgoing:
            if edge.name in generation.replaces.primes and (
                edge.to is Destination.SAME or self._emits(placed, edge.name)
            ):
                output.contents_before.append((edge, shipper, before.holds(placed.outputs[edge.name])))
        self._graph.share([placed.steps[step] for step in remembering], None)

    def _move_readers(self, generation: Generation, was: Batch | None, output: SpliceOutput) -> None:
        """Whoever read the query that is replaced reads the new one, and sees it go over."""
        assert generation.replaces is not None
        assert self._splicing is not None
        old, new = (generation.replaces.number, generation.replaces.name), generation.queries[0]
        placed, there = self._placed.get(generation.number), (generation.number, new.name)
        if not lies_alike(self._generations[old[0]], generation, new.name):
            return
        change: Batch | None = None
        if was is not None:
            change = difference(self._initial[there], was, Frontier(self._splicing.at))
        for number, reader in self._placed.items():
            names = [name for name, where in reader.reads.items() if where == old]
            if number == old[0]:
                names.append(old[1].lower())
            for name in names:
                reader.reads[name] = there
                if placed is not None and new.name in placed.outputs and reader.is_placed:
                    self._move_reader(reader, name, placed.steps[placed.outputs[new.name]], change, output)
            if names and reader.is_placed:
                self._name_outputs(reader)

    def _move_reader(
        self, reader: PlacedGeneration, name: str, root: int, change: Batch | None, output: SpliceOutput
    ) -> None:
        for step in reader.plan.steps:
            if isinstance(step.node, Ref) and step.node.name.lower() == name and step.id in reader.steps:
                reader.steps[step.id] = root
                if change is not None:
                    self._inject(reader, {step.id: change}, output)
        for step in reader.plan.steps:
            place = reader.steps.get(step.id)
            if place is None or isinstance(step.node, Ref):
                continue
            inputs = self._reads(reader, step.id)
            if inputs == self._graph.inputs(place):
                continue
            if place in self._keys_of:
                del self._shared[self._keys_of.pop(place)]
            self._graph.point(place, inputs)
            for position in range(len(inputs)):
                if change is not None and read_by(reader.plan, step.id, position) == name:
                    self._graph.inject(place, position, change)
        for edge, _ in reader.outgoing:
            if carries_more(reader.generation, edge.name, name):
                raise lies_elsewhere(name)
            if change is not None and carries(reader.generation, edge.name) == name:
                output.outputs[edge.name] = change

    def _reads(self, placed: PlacedGeneration, step: int) -> tuple[int, ...]:
        """The graph's steps that one of a generation's reads."""
        return tuple(
            self._replacement_step(placed, name)
            if (name := read_by(placed.plan, step, position)) in placed.replaced
            else placed.steps.get(source, _UNRESOLVED)
            for position, source in enumerate(placed.plan.steps[step].inputs)
        )

    def _replacement_step(self, placed: PlacedGeneration, name: str) -> int:
        """The step of the query that has replaced one of a generation's own."""
        number, exact = placed.reads[name]
        found = self._placed[number]
        return found.steps[found.outputs[exact]]

    # ------------------------------------------------------------ steps

    def _place_stage(self, placed: PlacedGeneration, stage: tuple[int, ...]) -> list[int]:
        """The steps of a stage: those that are there already, or new ones, which are returned."""
        fresh: list[int] = []
        replaces = placed.generation.replaces
        old = self._placed.get(replaces.number) if replaces is not None else None
        origins = placed.fragment.origins(self._shard)
        for step in stage:
            node = placed.plan.steps[step].node
            if isinstance(node, Ref):
                placed.steps[step] = self._step_read(placed, node)
                continue
            reads = self._reads(placed, step)
            is_shared = len(stage) == 1 and self._can_share(node, reads)
            found = self._shared.get((node, reads)) if is_shared else None
            if found is None and replaces is not None:
                found = self._carried(placed, step, reads, old) if old is not None else None
                if found is None and step < len(origins) and origins[step] in replaces.kept:
                    raise lies_elsewhere(replaces.name)
            if found is None:
                found = self._graph.add(node, reads)
                fresh.append(found)
                if is_shared:
                    self._share((node, reads), found)
            placed.steps[step] = found
            self._users.setdefault(found, set()).add(placed.generation.number)
        for step in stage if len(stage) > 1 or stage[0] in placed.plan.steps[stage[0]].inputs else ():
            self._graph.point(placed.steps[step], self._reads(placed, step))
        return fresh

    def _carried(
        self, placed: PlacedGeneration, step: int, reads: tuple[int, ...], old: PlacedGeneration
    ) -> int | None:
        """The step of the query that is replaced that goes on as a step of the new one, if any."""
        assert placed.generation.replaces is not None
        origins = placed.fragment.origins(self._shard)
        if step < len(origins) and origins[step] not in placed.generation.replaces.carried:
            return None
        node = placed.plan.steps[step].node
        for place in old.steps.values():
            if self._graph.node(place) == node and self._graph.inputs(place) == reads:
                return place
        return None

    def _can_share(self, node: Node, inputs: tuple[int, ...]) -> bool:
        """Whether a step remembers nothing, and neither does what it reads, down to a stream from outside."""
        if isinstance(node, Scan):
            return node.name in self._pending and not self._sources[node.name][0].ordinals
        return is_stateless(node) and all(source in self._keys_of for source in inputs)

    def _share(self, key: _StepKey, step: int) -> None:
        self._shared[key] = step
        self._keys_of[step] = key

    def _name_outputs(self, placed: PlacedGeneration) -> None:
        """The outputs that are needed, under the names by which they leave."""
        needed = placed.use(self._level).outputs
        exchanges = {edge.name for edge in placed.fragment.outputs}
        for name, step in placed.plan.outputs:
            key = name if name in exchanges else placed.generation.answer(name)
            moved = carries(placed.generation, name) if name in exchanges else ""
            if name in needed and moved and moved in placed.replaced:
                self._graph.outputs[key] = self._replacement_step(placed, moved)
            elif name in needed:
                self._graph.outputs[key] = placed.steps[step]
            elif not any(
                name in each.use(self._level).outputs
                for each in self._placed.values()
                if each.is_placed and each is not placed and name in exchanges
            ):
                self._graph.outputs.pop(key, None)

    def _needed(self, placed: PlacedGeneration) -> set[int]:
        """The steps of a generation that somebody reads on this shard, or whose answers are wanted."""
        exchanges = {edge.name for edge in placed.fragment.outputs}
        made = {
            name
            for name in placed.use(self._level).outputs
            if name not in exchanges or carries(placed.generation, name) not in placed.replaced
        }
        return steps_of(placed.plan, made, placed.replaced)

    def _prune(self, placed: PlacedGeneration) -> None:
        """Frees what only queries had that went."""
        self._name_outputs(placed)
        needed = self._needed(placed)
        number = placed.generation.number
        for step in [each for each in placed.steps if each not in needed]:
            place = placed.steps.pop(step)
            if isinstance(placed.plan.steps[step].node, Ref):
                continue
            self._users[place].discard(number)
            if not self._users[place]:
                del self._users[place]
                if place in self._keys_of:
                    del self._shared[self._keys_of.pop(place)]
                self._graph.remove(place)
        used = {name for each in self._placed.values() for name in each.use(self._level).inputs}
        for name in self._sources.keys() - used:
            del self._sources[name]
            self._pending.pop(name, None)

    # ------------------------------------------------------------ state

    def _save_generations(self) -> list[dict[str, Any]]:
        """The generations, and the numbers that their steps have in the graph."""
        return [
            {
                "generation": number,
                "come": placed.is_placed,
                "live": sorted(placed.live),
                "steps": list(placed.steps.items()),
                "reads": placed.reads,
                "since": placed.since,
            }
            for number, placed in self._placed.items()
        ]

    def _rebuild_generations(self, state: dict[str, Any]) -> None:
        """The generations as they were when a state was saved."""
        self._has_changed = True
        self._counts, saved = state["counts"], state["parts"]
        steps: dict[int, tuple[Node, tuple[int, ...]]] = {}
        self._users, self._shared, self._keys_of = {}, {}, {}
        # Some may be forgotten by now, which will not come any more.
        saved = [entry for entry in saved if entry["generation"] in self._placed]
        for entry in saved:
            placed = self._placed[entry["generation"]]
            placed.is_placed, placed.live, placed.since = (
                entry["come"],
                frozenset(entry["live"]),
                entry["since"],
            )
            placed.steps = dict(entry["steps"])
            placed.reads = {name: (number, exact) for name, (number, exact) in entry["reads"].items()}
            for step, place in placed.steps.items():
                if isinstance(placed.plan.steps[step].node, Ref):
                    continue
                self._users.setdefault(place, set()).add(placed.generation.number)
        for placed in self._placed.values():
            for step, place in placed.steps.items():
                if not isinstance(placed.plan.steps[step].node, Ref):
                    steps[place] = (placed.plan.steps[step].node, self._reads(placed, step))
        self._graph.rebuild(steps)
        for number in (entry["generation"] for entry in saved if entry["come"]):
            placed = self._placed[number]
            self._name_outputs(placed)
            for stage in placed.plan.stages():
                for step in stage:
                    is_ref = isinstance(placed.plan.steps[step].node, Ref)
                    if step in placed.steps and len(stage) == 1 and not is_ref:
                        node, reads = steps[placed.steps[step]]
                        if self._can_share(node, reads):
                            self._share((node, reads), placed.steps[step])
            self._prune(placed)
        self._graph.settle()


class _ContentsBefore:
    """What a query that goes on sees at its steps before the change. Its new steps take that in."""

    def __init__(
        self,
        shard: ShardQueries,
        placed: PlacedGeneration,
        fresh: set[int],
        splice: SplicePoint,
        received: Mapping[str, Sequence[bytes]],
    ) -> None:
        self.fresh = fresh
        self._shard = shard
        self._placed = placed
        self._start, self._end = Frontier(splice.at - 1), Frontier(splice.at)
        self._received = received
        self._seen: dict[int, Batch] = {}

    def holds(self, step: int) -> Batch:
        """Windows of its own that remember nothing are empty, also if other queries have the same ones."""
        if step not in self._seen:
            self._seen[step] = self._computed(step)
        return self._seen[step]

    def _computed(self, step: int) -> Batch:
        node, graph = self._placed.plan.steps[step].node, self._shard._graph
        nothing = empty(len(node.schema))
        if isinstance(node, Ref):
            return nothing if node.is_stream else at(self._shard._holds(self._placed, node), self._start)
        if isinstance(node, Scan):
            return nothing if node.is_stream else at(self._scanned(node), self._start)
        place = self._placed.steps[step]
        remembers = not is_stateless(node)
        if remembers and place not in self.fresh:
            return nothing if node.is_stream else at(self._shard._contents.of(place), self._start)
        if isinstance(node, Delay):
            return nothing  # what was on its way before the change is never delivered
        inputs = [self.holds(source) for source in self._placed.plan.steps[step].inputs]
        if remembers:
            graph.begin_steps([place], self._start)
        changes = graph.operator(place).process(inputs, self._end)
        # A stream within a query that goes on does not tell again what its relation held before.
        return nothing if isinstance(node, Streamify) else changes

    def _scanned(self, node: Scan) -> Batch:
        edge, source = self._shard._sources.get(node.name, (None, None))
        if edge is None or edge.instants:
            return empty(len(node.schema))
        if isinstance(source, Scan):
            return self._shard._own_table_rows(node.name)
        packed = self._received.get(BEFORE + node.name, ())
        return unpack_changes(self._shard._shippers[node.name], packed)


def renumber(batch: Batch, before: int) -> Batch:
    """Tuples with ordinals from those on that were before."""
    if not before or not len(batch):
        return batch
    data = batch.data.copy()
    data[-2] -= before
    return Batch(batch.ts, batch.seq_tick, batch.diff, data)
