"""What shards need of a generation's fragments for those of its queries that are live, and who reads what.

A query may be replaced by one of another generation. Then the steps that read it read the new one, and what
only they needed of the old one is not needed any more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from kasen.plan.logical import Node, Project, Ref, Scan
from kasen.plan.physical import Plan
from kasen.plan.shard.generations import Generation


@dataclass(frozen=True, slots=True)
class FragmentUse:
    """What of a level's fragment is needed: its outputs, and the exchanges that it receives."""

    outputs: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def _uses_by_level(
    generation: Generation, live: frozenset[str], replaced: frozenset[str]
) -> tuple[FragmentUse, ...]:
    found: list[FragmentUse] = []
    read: frozenset[str] = frozenset()  # exchanges that later levels receive
    for each in reversed(generation.cut.fragments):
        names = {edge.name for edge in each.outputs}
        plans = (each.first, each.others)
        outputs = frozenset(
            name for plan in plans for name, _ in plan.outputs if name in (read if name in names else live)
        )
        made = {
            name for name in outputs if name not in names or carried_query(generation, name) not in replaced
        }
        inputs = frozenset(
            node.name
            for plan in plans
            for step in steps_behind(plan, made, replaced)
            if isinstance(node := plan.steps[step].node, Scan)
        )
        found.append(FragmentUse(outputs, inputs))
        read |= inputs
    return tuple(reversed(found))


def fragment_use(
    generation: Generation, live: Collection[str], level: int, replaced: Collection[str] = ()
) -> FragmentUse:
    """What is needed at a level for the live queries of a generation.

    `replaced` are its replaced queries, in lower case: their readers read the new ones.
    """
    found = _uses_by_level(generation, frozenset(live), frozenset(replaced))
    return found[level - 1] if level <= len(found) else FragmentUse()


def steps_behind(plan: Plan, outputs: Collection[str], replaced: Collection[str] = ()) -> set[int]:
    """The steps of a fragment's plan from which these outputs are made."""
    todo = [step for name, step in plan.outputs if name in outputs]
    found: set[int] = set()
    while todo:
        step = todo.pop()
        if step not in found:
            found.add(step)
            inputs = enumerate(plan.steps[step].inputs)
            todo += [source for at, source in inputs if query_read(plan, step, at) not in replaced]
    return found


def query_read(plan: Plan, step: int, position: int) -> str:
    """The query of the same plan that a step reads as its input there, in lower case; empty if none."""
    children = plan.steps[step].node.children
    source = plan.steps[plan.steps[step].inputs[position]].node
    child = children[position] if position < len(children) else None
    return child.name.lower() if isinstance(child, Ref) and not isinstance(source, Ref | Scan) else ""


@lru_cache(maxsize=4096)
def _carried_queries(generation: Generation) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    plan = generation.cut.plan
    for (step, _), edge in generation.cut.edges.items():
        source = plan.steps[edge.source].node
        if isinstance(source, Ref | Scan):
            continue
        node: Node | None = plan.steps[step].node
        while node is not None and not isinstance(node, Ref):
            node = next((each for each in node.children if _leads_to(plan, each, edge.source)), None)
        found.setdefault(edge.name, set()).add(node.name.lower() if isinstance(node, Ref) else "")
    return found


def _leads_to(plan: Plan, node: Node, step: int) -> bool:
    """Whether a node reads a step by a query's name, through projections at most."""
    while isinstance(node, Project):
        node = node.child
    return isinstance(node, Ref) and plan.steps[step].node == plan.behind(node)


def carried_query(generation: Generation, exchange: str) -> str:
    """The query of the generation whose answers go along an exchange to its readers, if these are all."""
    found = _carried_queries(generation).get(exchange, set())
    return next(iter(found)) if len(found) == 1 else ""


def carries_others(generation: Generation, exchange: str, name: str) -> bool:
    """Whether an exchange has readers of a query, and others, too."""
    found = _carried_queries(generation).get(exchange, set())
    return name in found and len(found) > 1
