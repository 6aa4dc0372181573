"""The physical plan: one graph of steps for all queries, in which equal sub-plans are one step.

A registered query that others read is the step at its root; the edges between queries are resolved
here, and those of loops run through a delay, which `order` knows to cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kasen.cql.bound import App, Input
from kasen.plan.logical import Delay, Node, Ref, Scan
from kasen.plan.lower import lower
from kasen.plan.rewrite import rewrite_app

__all__ = ["App", "Input", "Plan", "Step", "plan_app", "share"]


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the graph; `inputs` are the ids of the steps it reads."""

    id: int
    node: Node
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps by id, and which step each query's answers come from."""

    app: App
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]

    @property
    def fingerprint(self) -> str:
        """What a state belongs to: the app's inputs, queries and settings as text."""
        inputs = [f"{one.name} {one.schema} {one.connector}" for one in self.app.inputs]
        queries = [f"{query.name}: {query.text}" for query in self.app.queries]
        return "\n".join([*inputs, *queries, str(self.app.settings)])

    @property
    def scans(self) -> dict[str, int]:
        """The step that stands for each input."""
        return {step.node.name: step.id for step in self.steps if isinstance(step.node, Scan)}

    def stages(self) -> list[tuple[int, ...]]:
        """The steps in an order in which inputs come first; the steps of a loop are one stage.

        Within a loop's stage the order is that of one instant: a delay comes before its readers and does
        not wait for its input, because what enters it now leaves it later.
        """
        done: list[tuple[int, ...]] = []
        for component in self._components():
            if len(component) == 1 and component[0] not in self.steps[component[0]].inputs:
                done.append(component)
            else:
                done.append(self._instant_order(component))
        return done

    def read_outside(self, stage: tuple[int, ...]) -> tuple[int, ...]:
        """The steps of a stage that other stages read, or that are queries."""
        members = set(stage)
        wanted = {step for _, step in self.outputs}
        for step in self.steps:
            if step.id not in members:
                wanted.update(step.inputs)
        return tuple(sorted(members & wanted))

    def downstream(self, stage: tuple[int, ...]) -> tuple[int, ...]:
        """The steps of a stage and all that read them, directly or not."""
        reached = set(stage)
        for each in self.stages():
            if any(source in reached for step in each for source in self.steps[step].inputs):
                reached.update(each)
        return tuple(sorted(reached))

    def _components(self) -> list[tuple[int, ...]]:
        """Strongly connected components, inputs first (Tarjan's algorithm, without recursion)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        found: list[tuple[int, ...]] = []
        for root in range(len(self.steps)):
            if root in index:
                continue
            work = [(root, 0)]
            while work:
                step, edge = work.pop()
                if edge == 0:
                    index[step] = low[step] = len(index)
                    stack.append(step)
                    on_stack.add(step)
                inputs = self.steps[step].inputs
                if edge < len(inputs):
                    work.append((step, edge + 1))
                    if inputs[edge] not in index:
                        work.append((inputs[edge], 0))
                    elif inputs[edge] in on_stack:
                        low[step] = min(low[step], index[inputs[edge]])
                    continue
                if low[step] == index[step]:
                    cut = stack.index(step)
                    found.append(tuple(sorted(stack[cut:])))
                    on_stack.difference_update(stack[cut:])
                    del stack[cut:]
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[step])
        return found

    def _instant_order(self, component: tuple[int, ...]) -> tuple[int, ...]:
        members = set(component)
        order: list[int] = []

        def visit(step: int) -> None:
            if step in order or step not in members:
                return
            if not isinstance(self.steps[step].node, Delay):
                for source in self.steps[step].inputs:
                    visit(source)
            order.append(step)

        for step in component:
            visit(step)
        return tuple(order)


def plan_app(app: App, joins: str = "") -> Plan:
    """The control path: bound app, logical plans, rewrites, lowering, one shared graph.

    `joins` is a method for all joins, whatever their hints say.
    """
    return share(app, {name: lower(node, joins) for name, node in rewrite_app(app).items()})


def share(app: App, plans: dict[str, Node]) -> Plan:
    """One step for each different node. Nodes are values, so sharing is looking them up."""
    ids: dict[Node, int] = {}
    order: list[Node] = []
    for plan in plans.values():
        for node in _bottom_up(plan):
            if node not in ids and not isinstance(node, Ref):
                ids[node] = len(order)
                order.append(node)
    by_name = {name.lower(): plan for name, plan in plans.items()}

    def resolve(node: Node) -> int:
        """The step behind a node; a reference may lead to another reference, but never in a circle."""
        while isinstance(node, Ref):
            node = by_name[node.name.lower()]
        return ids[node]

    steps = tuple(Step(ids[node], node, tuple(resolve(child) for child in node.children)) for node in order)
    return Plan(app, steps, tuple((name, resolve(plan)) for name, plan in plans.items()))


def _bottom_up(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield from _bottom_up(child)
    yield node
