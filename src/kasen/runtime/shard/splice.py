"""A change of queries takes effect on a shard, between two runs of the graph.

It cannot be refused any more: the driver has tried it (`runtime/live/dry_run.py`). See
`plan/shard/generations.py` for what a generation is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kasen.engine.batch import Batch, Frontier, concat, empty
from kasen.errors import QueryError
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.lower.instantiate import Context
from kasen.plan.shard.exchange import Destination
from kasen.plan.shard.fragment_use import carried_query, carries_others, query_read
from kasen.plan.shard.generations import (
    Generation,
    has_same_layout,
    layout_error,
)
from kasen.runtime.live.contents import Contents, at, bag, difference
from kasen.runtime.live.contents_before import ContentsBefore
from kasen.runtime.shard.clock import SplicePoint
from kasen.runtime.shard.generation import PlacedGeneration, SpliceOutput
from kasen.runtime.shard.inputs import BEFORE, Received
from kasen.runtime.shard.steps import ShardSteps


class ShardSplice:
    """One change on one shard. `generations` are all that the shard knows, also those with no step here."""

    def __init__(
        self,
        point: SplicePoint,
        generations: Mapping[int, Generation],
        steps: ShardSteps,
        context: Context,
    ) -> None:
        self._point = point
        self._generations = generations
        self._steps = steps
        self._output = SpliceOutput()
        #: What relations held before the change that replaces them, by generation and name.
        self._initial: dict[tuple[int, str], Batch] = {}
        self.at = Frontier(point.at)
        self.graph = steps.graph
        self.inputs = steps.inputs
        self.contents = Contents(self.graph, context, self.table)

    def run(self, sources: dict[str, Batch], received: Received) -> SpliceOutput:
        """Makes the change. What outside relations hold then enters among the sources."""
        self.graph.save_loops()
        for number in self._point.comes:
            generation = self._generations[number]
            held = self._retract_replaced(generation) if self._point.begun and generation.replaces else None
            placed = self._steps.generations.get(number)
            if placed is not None:
                self._place(placed, sources, received)
            if generation.replaces is not None:
                self._move_readers(generation, held)
        for number, name in self._point.goes:
            placed = self._steps.generations.get(number)
            if placed is not None and name in placed.live:
                placed.live -= {name}
                self._steps.prune(placed)
        self.graph.settle()
        return self._output

    # ------------------------------------------------------------ queries that come

    def _place(self, placed: PlacedGeneration, sources: dict[str, Batch], received: Received) -> None:
        placed.has_come, placed.since = True, self._point.at
        held = self._read_relations(placed) if self._point.begun else {}
        new_steps = self._steps.place(placed)
        self._steps.name_outputs(placed)
        self.graph.settle()
        if not self._point.begun:
            return
        new_scans = {node.name for step in new_steps if isinstance(node := self.graph.node(step), Scan)}
        for edge in placed.fragment.inputs:
            _, node = self.inputs[edge.name]
            if isinstance(node, Scan) and edge.ordinals and edge.name in new_scans:
                before = self._point.counts.get(node.name, 0)
                sources[edge.name] = self.inputs.number_from(edge.name, before, sources[edge.name])
        if placed.generation.replaces is not None:
            self._prime(placed, new_steps, received)
            return
        for edge in placed.fragment.inputs:
            _, node = self.inputs[edge.name]
            if isinstance(node, Scan) and node.relation and node.name in self._point.contents:
                rows = self.inputs.own_rows(edge, node, self._point.contents[node.name])
                sources[edge.name] = concat((rows, sources[edge.name]), rows.columns)
        self._inject(placed, held)
        if not self.graph.begun:
            self.graph.begin(self.at)
            return
        self.graph.begin_steps(new_steps, self.at)
        self.graph.share(new_steps, self.at)

    def _read_relations(self, placed: PlacedGeneration) -> dict[int, Batch]:
        """What the older relations hold that a generation reads, by its plan's steps."""
        refs = {step: placed.node(step) for step in placed.needed}
        return {
            step: at(self.relation(placed, ref), self.at)
            for step, ref in refs.items()
            if isinstance(ref, Ref) and not ref.is_stream
        }

    def _inject(self, placed: PlacedGeneration, held: Mapping[int, Batch]) -> None:
        """What older queries hold, or how they change, enters what reads them, here and on other shards."""
        for step in placed.plan.steps:
            for position, source in enumerate(step.inputs):
                if source in held and step.id in placed.steps:
                    self.graph.inject(placed.steps[step.id], position, held[source])
        self._output.outputs |= {name: held[step] for name, step in placed.plan.outputs if step in held}

    # ------------------------------------------------------------ what was before

    def relation(self, placed: PlacedGeneration, ref: Ref) -> Batch:
        """What an older relation query holds at the change, as far as it will not come by itself."""
        number, name = placed.reads[ref.name.lower()]
        if (number, name) in self._initial:
            return self._initial[number, name]
        if self._steps.generations[number].since == self._point.at:
            return empty(len(ref.schema))
        return self.contents.of(self._steps.read_root(placed, ref.name))

    def table(self, name: str) -> Batch:
        """What an outside relation holds of this shard's rows at the change."""
        edge, node = self.inputs.find(name)
        if edge is not None and isinstance(node, Scan) and node.name in self._point.contents:
            return self.inputs.own_rows(edge, node, self._point.contents[node.name])
        if node is not None and not isinstance(node, Scan):
            fault = "this change would need rows that came from other shards, and are kept nowhere"
            raise QueryError(fault, remedy="DROP and REGISTER the queries together, or give --place driver")
        step = self.graph.scan(name)
        assert step is not None
        return empty(len(self.graph.node(step).schema))

    # ------------------------------------------------------------ queries that are replaced

    def _retract_replaced(self, generation: Generation) -> Batch | None:
        """What a replaced relation held, if it is here. The new answer begins by retracting it."""
        assert generation.replaces is not None
        number, name = generation.replaces.number, generation.replaces.name
        old, new = self._steps.generations.get(number), generation.queries[0]
        if old is None or name not in old.outputs:
            return None
        query = old.generation.query(name)
        if query.is_stream or new.is_stream or query.schema.types != new.schema.types:
            return None
        held = self.contents.of(old.root(name))
        if old.emits(name, self._steps.shard):
            gone = at(Batch(held.ts, held.seq_tick, -held.diff, held.data), self.at)
            self._output.transitions.append((generation.answer(new.name), old.shipper(name), gone))
        return held

    def _prime(self, placed: PlacedGeneration, new_steps: Iterable[int], received: Received) -> None:
        """New steps of a query that replaces another one take in what was before, in silence."""
        generation = placed.generation
        assert generation.replaces is not None
        if not self.graph.begun:
            self.graph.begin(Frontier(self._point.at - 1))
        before = _FragmentBefore(self, placed, set(new_steps), received)
        remembering = [
            step
            for stage in placed.plan.stages()
            for step in stage
            if placed.steps.get(step) in before.new_steps and not is_stateless(placed.node(step))
        ]
        for step in remembering:
            before.contents(step)
        query = generation.queries[0]
        if query.name in placed.outputs and not query.is_stream:
            initial = bag(before.contents(placed.outputs[query.name]))
            self._initial[generation.number, query.name] = initial
            if placed.emits(query.name, self._steps.shard):
                emitted = generation.answer(query.name), placed.shipper(query.name), at(initial, self.at)
                self._output.transitions.append(emitted)
        for edge, shipper in placed.outgoing:
            if edge.name in generation.replaces.primes and (
                edge.to is Destination.SAME or placed.emits(edge.name, self._steps.shard)
            ):
                rows = before.contents(placed.outputs[edge.name])
                self._output.contents_before.append((edge, shipper, rows))
        self.graph.share([placed.steps[step] for step in remembering], None)

    def _move_readers(self, generation: Generation, held: Batch | None) -> None:
        """Whoever read the replaced query reads the new one, and sees its relation change."""
        assert generation.replaces is not None
        old, new = (generation.replaces.number, generation.replaces.name), generation.queries[0]
        placed, there = self._steps.generations.get(generation.number), (generation.number, new.name)
        if not has_same_layout(self._generations[old[0]], generation, new.name):
            return
        change = None if held is None else difference(self._initial[there], held, self.at)
        for number, reader in self._steps.generations.items():
            names = [name for name, where in reader.reads.items() if where == old]
            if number == old[0]:
                names.append(old[1].lower())
            for name in names:
                reader.reads[name] = there
                if placed is not None and new.name in placed.outputs and reader.has_come:
                    self._move_reader(reader, name, placed.root(new.name), change)
            if names and reader.has_come:
                self._steps.name_outputs(reader)

    def _move_reader(self, reader: PlacedGeneration, name: str, root: int, change: Batch | None) -> None:
        for step in reader.plan.steps:
            if isinstance(step.node, Ref) and step.node.name.lower() == name and step.id in reader.steps:
                reader.steps[step.id] = root
                if change is not None:
                    self._inject(reader, {step.id: change})
        for step_id, place in self._steps.move_inputs(reader):
            for position in range(len(self.graph.inputs(place))):
                if change is not None and query_read(reader.plan, step_id, position) == name:
                    self.graph.inject(place, position, change)
        for edge, _ in reader.outgoing:
            if carries_others(reader.generation, edge.name, name):
                raise layout_error(name)
            if change is not None and carried_query(reader.generation, edge.name) == name:
                self._output.outputs[edge.name] = change


class _FragmentBefore(ContentsBefore[int]):
    """What a query that replaces another one sees before the change at the steps of its fragment."""

    def __init__(
        self, splice: ShardSplice, placed: PlacedGeneration, new_steps: set[int], received: Received
    ) -> None:
        super().__init__(splice.graph, new_steps, Frontier(splice.at.ts - 1), splice.at)
        self._splice = splice
        self._placed = placed
        self._received = received

    def _node(self, plan_step: int) -> Node:
        return self._placed.node(plan_step)

    def _step(self, plan_step: int) -> int:
        return self._placed.steps[plan_step]

    def _inputs(self, plan_step: int) -> list[Batch]:
        return [self.contents(source) for source in self._placed.plan.steps[plan_step].inputs]

    def _relation(self, node: Ref | Scan) -> Batch:
        if isinstance(node, Ref):
            return self._splice.relation(self._placed, node)
        inputs = self._splice.inputs
        edge, source = inputs.find(node.name)
        if edge is None or edge.instants:
            return empty(len(node.schema))
        if isinstance(source, Scan):
            return self._splice.table(node.name)
        return inputs.unpack(node.name, self._received.get(BEFORE + node.name, ()))

    def _held(self, step: int) -> Batch:
        return self._splice.contents.of(step)
