"""Queries that come while data flows, on shards: those of one change are a generation, with a cut of its own.

The fragments of all generations run side by side in one graph a level and shard. What remembers nothing is
shared with older ones there, and so are the ways of streams from outside, which therefore have the same
names in all generations; everything else is a generation's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from kasen.cql.bound import App, RegisteredQuery
from kasen.plan.changes import LiveCatalog
from kasen.plan.exchange import Exchange
from kasen.plan.fragments import Cut, Fragment, cut_trees
from kasen.plan.logical import Scan
from kasen.plan.lower_joins import JOIN_TREE
from kasen.plan.physical import Plan, plan_query, share


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Queries that came together; number 0 has those of the beginning."""

    number: int
    cut: Cut

    @property
    def queries(self) -> tuple[RegisteredQuery, ...]:
        return self.cut.plan.app.queries

    @property
    def levels(self) -> int:
        return len(self.cut.fragments)

    def fragment(self, level: int) -> Fragment | None:
        return self.cut.fragments[level - 1] if level <= self.levels else None

    def answer(self, name: str) -> str:
        """What a query's answers are called on their way: another generation may have one of its name."""
        return f"#{self.number}|{name}" if self.number else name


@dataclass(frozen=True, slots=True)
class Use:
    """What of a level's fragment is needed: its outputs, and the exchanges that it receives."""

    outputs: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()


def later(
    number: int, app: App, queries: Iterable[RegisteredQuery], catalog: LiveCatalog, first: Cut
) -> Generation:
    """The generation of queries that come together, which `catalog` knows. `first` is generation 0's cut."""
    queries = tuple(queries)
    looped = {one.name for one in queries if catalog.in_loop(one.name)}
    plans = {
        one.name: plan_query(one, catalog, in_loop=one.name in looped, joins=JOIN_TREE) for one in queries
    }
    loops = (tuple(sorted(looped)),) if looped else ()
    plan = share(replace(app, queries=queries, loops=loops, changes=(), prepared=()), plans)
    known = {_way(first.plan, edge): edge.name for edge in first.scanned if _is_common(first.plan, edge)}

    def label(edge: Exchange) -> Exchange:
        if not _is_common(plan, edge):
            return replace(edge, alias=f"#{number}|{edge.source}{edge.way}")
        way = _way(plan, edge)
        return replace(edge, alias=known.get(way, way))

    return Generation(number, cut_trees(plan, label))


def _is_common(plan: Plan, edge: Exchange) -> bool:
    """Whether an exchange is the same for all generations: tuples of a stream from outside, unnumbered."""
    node = plan.steps[edge.source].node
    return isinstance(node, Scan) and node.is_stream and not edge.ordinals and not edge.instants


def _way(plan: Plan, edge: Exchange) -> str:
    node = plan.steps[edge.source].node
    assert isinstance(node, Scan)
    return f">{node.name}{edge.way}"


@lru_cache(maxsize=4096)
def _use(generation: Generation, live: frozenset[str]) -> tuple[Use, ...]:
    found: list[Use] = []
    read: frozenset[str] = frozenset()  # exchanges that later levels receive
    for each in reversed(generation.cut.fragments):
        names = {edge.name for edge in each.outputs}
        outputs = frozenset(
            name
            for plan in (each.first, each.others)
            for name, _ in plan.outputs
            if name in (read if name in names else live)
        )
        inputs = frozenset(
            node.name
            for plan in (each.first, each.others)
            for step in steps_of(plan, outputs)
            if isinstance(node := plan.steps[step].node, Scan)
        )
        found.append(Use(outputs, inputs))
        read |= inputs
    return tuple(reversed(found))


def use(generation: Generation, live: Collection[str], level: int) -> Use:
    """What is needed at a level for those queries of a generation that are still there."""
    found = _use(generation, frozenset(live))
    return found[level - 1] if level <= len(found) else Use()


def steps_of(plan: Plan, outputs: Collection[str]) -> set[int]:
    """The steps of a fragment's plan from which these outputs are made."""
    todo = [step for name, step in plan.outputs if name in outputs]
    found: set[int] = set()
    while todo:
        step = todo.pop()
        if step not in found:
            found.add(step)
            todo += plan.steps[step].inputs
    return found
