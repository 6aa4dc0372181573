"""The physical plan: one graph of steps for all queries, in which equal sub-plans are one step.

A registered query that others read is the step at its root; the edges between queries are resolved
here, and those of loops run through a delay, which `order` knows to cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kasen.cql.bound import App
from kasen.plan.build import build
from kasen.plan.logical import Delay, Node, Ref
from kasen.plan.rewrite import rewrite


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

    def readers(self, step: int) -> list[int]:
        return [other.id for other in self.steps if step in other.inputs]

    def order(self) -> list[int]:
        """An order in which every step comes after its inputs, but for edges into a delay's readers.

        A delay's output belongs to a later instant, so within an instant nothing flows out of it.
        """
        done: list[int] = []
        seen: set[int] = set()

        def visit(step: int) -> None:
            if step in seen:
                return
            seen.add(step)
            for source in self.steps[step].inputs:
                if not isinstance(self.steps[source].node, Delay):
                    visit(source)
            done.append(step)

        for each in self.steps:
            visit(each.id)
        return done


def plan_app(app: App) -> Plan:
    """The control path: bound app, logical plans, rewrites, one shared graph."""
    logical = {name: rewrite(node) for name, node in build(app).items()}
    return share(app, logical)


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
