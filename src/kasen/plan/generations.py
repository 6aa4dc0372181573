"""Queries that come while data flows, on shards: those of one change are a generation, with a cut of its own.

The fragments of all generations run side by side in one graph a level and shard. What remembers nothing is
shared with older ones there, and so are the ways of streams from outside, which therefore have the same
names in all generations; everything else is a generation's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kasen.cql.bound import App, RegisteredQuery, StreamKind
from kasen.errors import QueryError
from kasen.operators.base import Holder
from kasen.operators.dictionary import Dictionary
from kasen.operators.failures import Failures
from kasen.plan.changes import LiveCatalog
from kasen.plan.exchange import Exchange
from kasen.plan.fragments import Cut, Fragment, cut_plan
from kasen.plan.instantiate import Context, instantiate
from kasen.plan.logical import Node, Ref, Scan, Streamify, Touches, WindowNode, walk
from kasen.plan.physical import Plan, plan_query, share
from kasen.plan.split import Split, all_columns

_TOGETHER = (
    "register both in one change, put a window on the stream that it reads, or run it with --place driver"
)


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Queries that came together; number 0 has those of the beginning."""

    number: int
    cut: Cut
    #: The older queries that it reads, in lower case, each with its generation's number and its name.
    reads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def queries(self) -> tuple[RegisteredQuery, ...]:
        return self.cut.plan.app.queries

    def query(self, name: str) -> RegisteredQuery:
        return next(one for one in self.queries if one.name == name)

    @property
    def levels(self) -> int:
        return len(self.cut.fragments)

    def fragment(self, level: int) -> Fragment | None:
        return self.cut.fragments[level - 1] if level <= self.levels else None

    def root(self, name: str) -> int:
        """The step of the plan that a query's answers come from."""
        return dict(self.cut.plan.outputs)[name]

    def lies(self, name: str) -> tuple[int, Split]:
        """At which level a query's answers are made, and how they lie on shards then."""
        level = next(each.level for each in self.cut.fragments if name in dict(each.first.outputs))
        split = self.cut.splits[self.root(name)]
        if split is None:
            # It is an input's own rows, which come by all columns.
            split = Split(all_columns(self.cut.plan.steps[self.root(name)].node.schema))
        return level, split

    def answer(self, name: str) -> str:
        """What a query's answers are called on their way: another generation may have one of its name."""
        return f"#{self.number}|{name}" if self.number else name


@dataclass(frozen=True, slots=True)
class Use:
    """What of a level's fragment is needed: its outputs, and the exchanges that it receives."""

    outputs: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()


def later(
    number: int,
    app: App,
    queries: Iterable[RegisteredQuery],
    catalog: LiveCatalog,
    first: Cut,
    older: Mapping[str, tuple[Generation, str]],
) -> Generation:
    """The generation of queries that come together, which `catalog` knows. `first` is generation 0's cut.

    `older` are the queries that are there then, in lower case, each with its generation and its name.
    """
    queries = tuple(queries)
    looped = {one.name for one in queries if catalog.in_loop(one.name)}
    plans = {one.name: plan_query(one, catalog, in_loop=one.name in looped, shards=True) for one in queries}
    loops = (tuple(sorted(looped)),) if looped else ()
    plan = share(replace(app, queries=queries, loops=loops, changes=(), prepared=()), plans)
    known = {_way(first.plan, edge): edge.name for edge in first.scanned if _is_common(first.plan, edge)}

    def label(_: tuple[int, int] | None, edge: Exchange) -> Exchange:
        if not _is_common(plan, edge):
            return replace(edge, alias=f"#{number}|{edge.source}{edge.way}")
        way = _way(plan, edge)
        return replace(edge, alias=known.get(way, way))

    refs = [step.node.name for step in plan.steps if isinstance(step.node, Ref)]
    read = {name: older[name.lower()] for name in refs}
    lying = {name: each.lies(exact) for name, (each, exact) in read.items()}
    reads = {name.lower(): (each.number, exact) for name, (each, exact) in read.items()}
    return Generation(number, cut_plan(plan, label, lying), reads)


def keeps_contents(generations: Mapping[int, Generation], number: int, name: str) -> None:
    """Refuses to tell what a relation query holds, if its shards cannot say it by themselves."""
    generation = generations[number]
    level = generation.lies(name)[0]
    fragment = generation.cut.fragments[level - 1]
    inner = {edge.name for edge in fragment.inputs if not _is_outside(generation.cut.plan, edge)}

    def visit(plan: Plan, step: int) -> None:
        node = plan.steps[step].node
        match node:
            case Scan(name=edge) if edge in inner and not node.is_stream:
                fault = f"the rows of {name} are made of such as come from other shards, and are kept nowhere"
                raise QueryError(f"{fault}: no query can begin over it on executors", remedy=_TOGETHER)
            case Scan() | Streamify() | Touches():
                return
            case Ref(name=read):
                keeps_contents(generations, *generation.reads[read.lower()])
                return
        if node.is_stream or is_holder(node):
            return
        if isinstance(node, WindowNode) or any(child.is_stream for child in node.children):
            fault = f"the rows so far of {name} are kept nowhere, and a query that begins over it needs them"
            raise QueryError(f"{fault} on executors", remedy=_TOGETHER)
        for source in plan.steps[step].inputs:
            visit(plan, source)

    visit(fragment.first, dict(fragment.first.outputs)[name])


def check_whole(one: RegisteredQuery, plan: Plan) -> None:
    """RSTREAM over an older relation query would fire when that one's windows move, which it cannot see."""
    for node in walk(plan.steps[dict(plan.outputs)[one.name]].node):
        if not isinstance(node, Streamify) or node.kind is not StreamKind.RSTREAM or node.every is not None:
            continue
        for each in walk(node.child):
            if isinstance(each, Ref) and not each.is_stream and plan.has_step(each):
                fault = (
                    f"RSTREAM cannot begin over {each.name} now: it fires when windows of {each.name} move"
                )
                remedy = f"register both together, or write RSTREAM[d] or ISTREAM over {each.name}"
                raise QueryError(fault, remedy=remedy)


def is_holder(node: Node) -> bool:
    """Whether a step's operator can tell what its relation holds."""
    return isinstance(instantiate(node, Context(Dictionary(), Failures())), Holder)


def _is_outside(plan: Plan, edge: Exchange) -> bool:
    return isinstance(plan.steps[edge.source].node, Scan)


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
