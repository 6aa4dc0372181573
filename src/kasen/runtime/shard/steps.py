"""Which steps each generation of queries has in the graph of a shard.

The steps of all generations are in one graph. What remembers nothing is there once for all of them. State
belongs to the generation that came with it, or to the one that replaces that.
"""

from __future__ import annotations

from typing import Any

from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Ref, Scan
from kasen.plan.shard.fragment_use import carried_query, query_read
from kasen.plan.shard.generations import layout_error
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.shared_steps import UNRESOLVED, SharedSteps, StepKey
from kasen.runtime.shard.generation import PlacedGeneration
from kasen.runtime.shard.inputs import ShardInputs


class ShardSteps:
    """Places generations in the graph, and takes their steps out again. They are the users of steps."""

    def __init__(self, graph: Graph, inputs: ShardInputs, shard: int) -> None:
        self.generations: dict[int, PlacedGeneration] = {}
        self.graph = graph
        self.inputs = inputs
        self.shard = shard
        self._shared: SharedSteps[int] = SharedSteps(graph)

    def adopt(self, generation: PlacedGeneration) -> None:
        """Takes over the generation that the graph was made with."""
        generation.has_come = True
        generation.steps = {step.id: step.id for step in generation.plan.steps}
        for stage in generation.plan.stages():
            for step in stage:
                self._shared.use(step, generation.number)
                key = StepKey(generation.node(step), generation.plan.steps[step].inputs)
                if self._can_share(key):
                    self._shared.share(step, key)

    def forget(self, numbers: set[int]) -> None:
        """These generations went, and will not come again."""
        self.generations = {
            number: each for number, each in self.generations.items() if number not in numbers
        }

    # ------------------------------------------------------------ what a generation reads

    def read_root(self, generation: PlacedGeneration, name: str) -> int:
        """The step of a query that a generation reads, or that has replaced one of its own."""
        number, exact = generation.reads[name.lower()]
        return self.generations[number].root(exact)

    def sources(self, generation: PlacedGeneration, step: int) -> tuple[int, ...]:
        """The graph's steps that a step of a generation's plan reads."""
        return tuple(
            self.read_root(generation, name)
            if (name := query_read(generation.plan, step, position)) in generation.replaced
            else generation.steps.get(source, UNRESOLVED)
            for position, source in enumerate(generation.plan.steps[step].inputs)
        )

    def move_inputs(self, generation: PlacedGeneration) -> list[tuple[int, int]]:
        """Steps of a generation read what has replaced their inputs; returns the plan's and the graph's."""
        moved: list[tuple[int, int]] = []
        for step, place in generation.own_steps.items():
            inputs = self.sources(generation, step)
            if inputs != self.graph.inputs(place):
                self._shared.unshare(place)
                self.graph.point(place, inputs)
                moved.append((step, place))
        return moved

    # ------------------------------------------------------------ steps that come

    def place(self, generation: PlacedGeneration) -> list[int]:
        """The steps of a generation that are needed: those that are there already, or new ones.

        Returns the new ones.
        """
        needed = generation.needed
        new_steps: list[int] = []
        for stage in generation.plan.stages():
            if needed.issuperset(stage):
                for step in stage:
                    self._place_step(generation, step, new_steps, is_alone=len(stage) == 1)
                if len(stage) > 1 or stage[0] in generation.plan.steps[stage[0]].inputs:
                    for step in stage:
                        self.graph.point(generation.steps[step], self.sources(generation, step))
        return new_steps

    def _place_step(
        self, generation: PlacedGeneration, step: int, new_steps: list[int], *, is_alone: bool
    ) -> None:
        node = generation.node(step)
        if isinstance(node, Ref):
            generation.steps[step] = self.read_root(generation, node.name)
            return
        key = StepKey(node, self.sources(generation, step))
        is_shared = is_alone and self._can_share(key)
        found = self._shared.find(key) if is_shared else None
        if found is None and generation.generation.replaces is not None:
            found = self._carried(generation, step, key)
        if found is None:
            found = self.graph.add(key.node, key.inputs)
            new_steps.append(found)
            if is_shared:
                self._shared.share(found, key)
        generation.steps[step] = found
        self._shared.use(found, generation.number)

    def _carried(self, generation: PlacedGeneration, step: int, key: StepKey) -> int | None:
        """The step of the replaced query that goes on as a step of the new one, if any."""
        replaces = generation.generation.replaces
        assert replaces is not None
        origins = generation.fragment.origins(self.shard)
        origin = origins[step] if step < len(origins) else None
        old = self.generations.get(replaces.number)
        if old is not None and (origin is None or origin in replaces.carried):
            for place in old.steps.values():
                if self.graph.node(place) == key.node and self.graph.inputs(place) == key.inputs:
                    return place
        if origin in replaces.kept:
            raise layout_error(replaces.name)
        return None

    def _can_share(self, key: StepKey) -> bool:
        """Whether a step remembers nothing, and neither does what it reads, down to a stream from outside."""
        if isinstance(key.node, Scan):
            return self.inputs.are_common(key.node.name)
        return is_stateless(key.node) and all(self._shared.key(source) is not None for source in key.inputs)

    # ------------------------------------------------------------ what leaves, and steps that go

    def name_outputs(self, generation: PlacedGeneration) -> None:
        """The outputs that are needed, under the names by which they leave."""
        needed, exchanges = generation.use.outputs, generation.exchanges
        for name, step in generation.plan.outputs:
            label = name if name in exchanges else generation.generation.answer(name)
            carried = carried_query(generation.generation, name) if name in exchanges else ""
            if name in needed and carried and carried in generation.replaced:
                self.graph.outputs[label] = self.read_root(generation, carried)
            elif name in needed:
                self.graph.outputs[label] = generation.steps[step]
            elif not any(
                name in other.use.outputs
                for other in self.generations.values()
                if other.has_come and other is not generation and name in exchanges
            ):
                self.graph.outputs.pop(label, None)

    def prune(self, generation: PlacedGeneration) -> None:
        """Frees what only queries had that went."""
        self.name_outputs(generation)
        needed = generation.needed
        for step, place in [each for each in generation.steps.items() if each[0] not in needed]:
            del generation.steps[step]
            if not isinstance(generation.node(step), Ref):
                self._shared.release(place, generation.number)
        used = {name for each in self.generations.values() for name in each.use.inputs}
        self.inputs.close_all_but(used)

    # ------------------------------------------------------------ state

    def save(self) -> list[dict[str, Any]]:
        """The generations, and the numbers that their steps have in the graph."""
        return [
            {
                "generation": number,
                "come": each.has_come,
                "live": sorted(each.live),
                "steps": list(each.steps.items()),
                "reads": each.reads,
                "since": each.since,
            }
            for number, each in self.generations.items()
        ]

    def rebuild(self, saved: list[dict[str, Any]]) -> None:
        """The generations as they were when a state was saved."""
        self._shared.clear()
        come: list[PlacedGeneration] = []
        for entry in saved:
            generation = self.generations.get(entry["generation"])
            if generation is None:
                continue  # it is forgotten by now, and will not come any more
            generation.has_come, generation.since = entry["come"], entry["since"]
            generation.live, generation.steps = frozenset(entry["live"]), dict(entry["steps"])
            generation.reads = {name: (number, exact) for name, (number, exact) in entry["reads"].items()}
            for place in generation.own_steps.values():
                self._shared.use(place, generation.number)
            if generation.has_come:
                come.append(generation)
        keys = {
            place: StepKey(each.node(step), self.sources(each, step))
            for each in self.generations.values()
            for step, place in each.own_steps.items()
        }
        self.graph.rebuild({place: (key.node, key.inputs) for place, key in keys.items()})
        for generation in come:
            self.name_outputs(generation)
            for stage in generation.plan.stages():
                found = generation.own_steps.get(stage[0]) if len(stage) == 1 else None
                if found is not None and self._can_share(keys[found]):
                    self._shared.share(found, keys[found])
            self.prune(generation)
        self.graph.settle()
