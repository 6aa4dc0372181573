"""Queries that come while data flows, on shards: those of one change are a generation, with a cut of its own.

The fragments of all generations run side by side, in one graph per level and shard. They share what remembers
nothing, and the exchanges of streams from outside, which therefore have the same names in all generations.
Everything else belongs to one generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kasen.cql.bound import App, RegisteredQuery
from kasen.errors import QueryError
from kasen.plan.changes import LiveCatalog
from kasen.plan.exprs import rebuild
from kasen.plan.keep.kept_windows import QueryInCatalog, carried, keep
from kasen.plan.keep.rstream import cannot_begin, relations_below_rstream
from kasen.plan.logical import Node, Ref, Scan, walk
from kasen.plan.physical import Plan, plan_query, share
from kasen.plan.shard.exchange import Exchange, nameless
from kasen.plan.shard.fragments import Fragment, FragmentPlan, Pin, cut_plan
from kasen.plan.shard.split import Need, Split, all_columns

_IN_DRIVER = "or run it with --place driver"


@dataclass(frozen=True, slots=True)
class Replacement:
    """What becomes of the query that a generation's only query replaces.

    `kept` steps of the plan go on with their state. `carried` steps, these among them, are the same steps as
    before. Steps in `pins` stay where they are. The answer keeps the layout of the old one, `split`, if it
    can. The exchanges in `primes` bring new steps what was there before.
    """

    number: int
    name: str
    kept: frozenset[int]
    carried: frozenset[int]
    pins: Mapping[int, Pin]
    split: Split
    primes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Queries that came together; number 0 has those of the beginning."""

    number: int
    cut: FragmentPlan
    #: The older queries that it reads, in lower case, each with its generation's number and its name.
    reads: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    replaces: Replacement | None = None

    @property
    def queries(self) -> tuple[RegisteredQuery, ...]:
        return self.cut.plan.app.queries

    def query(self, name: str) -> RegisteredQuery:
        return next(query for query in self.queries if query.name == name)

    @property
    def levels(self) -> int:
        return len(self.cut.fragments)

    def fragment(self, level: int) -> Fragment | None:
        return self.cut.fragments[level - 1] if level <= self.levels else None

    def root(self, name: str) -> int:
        """The step of the plan that a query's answers come from."""
        return dict(self.cut.plan.outputs)[name]

    def layout(self, name: str) -> tuple[int, Split]:
        """At which level a query's answers are made, and how they are split between shards."""
        level = next(each.level for each in self.cut.fragments if name in dict(each.first.outputs))
        split = self.cut.splits[self.root(name)]
        if split is None:
            # It is an input's own rows, which come by all columns.
            split = Split(all_columns(self.cut.plan.steps[self.root(name)].node.schema))
        return level, split

    def answer(self, name: str) -> str:
        """What a query's answers are called on their way: another generation may have a query of its name."""
        return f"#{self.number}|{name}" if self.number else name


@dataclass(frozen=True, slots=True)
class EarlierQueries:
    """The queries that are there when others come: the catalog, and where each is, by name in lower case."""

    catalog: LiveCatalog
    where: Mapping[str, tuple[Generation, str]]
    #: The cut of generation 0, whose exchanges have no names of their own.
    first: FragmentPlan


def plan_generation(
    number: int,
    app: App,
    queries: Sequence[RegisteredQuery],
    names: LiveCatalog,
    older: EarlierQueries,
    replaces: Replacement | None = None,
) -> Generation:
    """The generation of queries that come together; `names` knows them, and all that they read.

    `replaces` is what `plan_replacement` has found out before.
    """
    looped = {query.name for query in queries if names.in_loop(query.name)}
    plans = {
        query.name: plan_query(query, names, in_loop=query.name in looped, shards=True) for query in queries
    }
    loops = (tuple(sorted(looped)),) if looped else ()
    plan = share(replace(app, queries=tuple(queries), loops=loops, changes=(), prepared=()), plans)
    return _cut(number, plan, older, replaces)


def plan_replacement(
    number: int, app: App, query: RegisteredQuery, names: LiveCatalog, older: EarlierQueries
) -> Generation:
    """The generation of a query that replaces one. QueryError if what it keeps would lie elsewhere."""
    old, name = older.where[query.name.lower()]
    if names.in_loop(query.name) or older.catalog.in_loop(name):
        raise QueryError(
            f"{name} is in a loop, and cannot be replaced on executors",
            remedy="DROP and REGISTER the loop, or run it with --place driver",
        )
    texts = QueryInCatalog(old.query(name), older.catalog), QueryInCatalog(query, names)
    refusal = keep(
        texts[0], plan_query(texts[0].query, older.catalog), texts[1], plan_query(query, names)
    ).refusal
    if refusal is not None:
        raise refusal
    replaced = old.cut.plan.steps[old.root(name)].node
    new = plan_query(query, names, shards=True)
    found_here = keep(texts[0], replaced, texts[1], new)
    if found_here.refusal is not None or found_here.rebuilt:
        fault = f"{name} cannot be replaced on executors: windows that it keeps would need other steps there"
        raise QueryError(fault, remedy=f"DROP QUERY {name}, and register it in a second change; {_IN_DRIVER}")
    kept = found_here.steps
    same = carried(new, set(walk(replaced)), kept)
    plan = share(replace(app, queries=(query,), loops=(), changes=(), prepared=()), {query.name: new})
    ids = {step.node: step.id for step in plan.steps}
    found = Replacement(
        old.number,
        name,
        frozenset(ids[node] for node in kept if node in ids),
        frozenset(ids[node] for node in same if node in ids),
        _pins(old, plan, {node: ids[node] for node in same if node in ids}),
        old.layout(name)[1],
    )
    cut = _cut(number, plan, older, found).cut
    primes = {
        edge.name
        for (step, _), edge in cut.edges.items()
        if step not in found.kept
        and not isinstance(source := plan.steps[edge.source].node, Scan)
        and not source.is_stream
        and not edge.instants
    }
    return _cut(number, plan, older, replace(found, primes=frozenset(primes)))


def _pins(old: Generation, plan: Plan, same: Mapping[Node, int]) -> dict[int, Pin]:
    """Steps that go on stay where they are, with the exchanges that they have."""
    ids = {step.node: step.id for step in plan.steps}
    levels = {step: each.level for each in old.cut.fragments for step in each.steps[0]}
    pins: dict[int, Pin] = {}
    for step in old.cut.plan.steps:
        split = old.cut.splits[step.id]
        if step.node not in same or split is None or isinstance(step.node, Ref):
            continue
        # A window that a join has in itself comes to it by exchanges of its own.
        edge = old.cut.edges.get((step.id, 0))
        level = levels.get(step.id, edge.level if edge is not None else 0)
        if not level:
            continue
        inputs = plan.steps[same[step.node]].inputs
        last = max((at for where, at in old.cut.edges if where == step.id), default=0)
        edges: list[Exchange | None] = []
        for at in range(max(len(inputs), last + 1)):
            edge = old.cut.edges.get((step.id, at))
            if edge is not None:
                is_read = at < len(inputs) and isinstance(plan.steps[inputs[at]].node, Ref)
                source = inputs[at] if is_read else ids[old.cut.plan.steps[edge.source].node]
                edge = replace(edge, source=source, alias=edge.name)
            edges.append(edge)
        pins[same[step.node]] = Pin(level, split, tuple(edges))
    return pins


def layout_error(name: str) -> QueryError:
    fault = f"{name} cannot be replaced on executors: what it keeps lies on shards otherwise for the new text"
    return QueryError(fault, remedy=f"DROP QUERY {name}, and register it in a second change; {_IN_DRIVER}")


def _cut(number: int, plan: Plan, older: EarlierQueries, replaces: Replacement | None) -> Generation:
    first = older.first
    common = {
        _common_name(first.plan, edge): edge.name for edge in first.scanned if _is_common(first.plan, edge)
    }

    def label(edge: Exchange) -> Exchange:
        if _is_common(plan, edge):
            name = _common_name(plan, edge)
            return replace(edge, alias=common.get(name, name))
        return edge if edge.alias else replace(edge, alias=f"#{number}|{edge.source}{edge.way}")

    refs = {step.id: step.node.name for step in plan.steps if isinstance(step.node, Ref)}
    read = {name: older.where[name.lower()] for name in refs.values()}
    pins = {step: Pin(*read[name][0].layout(read[name][1])) for step, name in refs.items()}
    wants: dict[int, Need] = {}
    if replaces is not None:
        pins |= replaces.pins
        wants[plan.outputs[0][1]] = Need(replaces.split.keys, why=replaces.split.why)
    reads = {name.lower(): (each.number, exact) for name, (each, exact) in read.items()}
    return Generation(number, cut_plan(plan, label, pins, wants), reads, replaces)


def has_same_layout(generation: Generation, other: Generation, name: str) -> bool:
    """Whether the answers of a query lie on shards in the same way in two generations."""
    (level, split), (other_level, other_split) = generation.layout(name), other.layout(name)
    ways, other_ways = (
        [repr([rebuild(key, nameless) for key in way]) for way in each.ways] for each in (split, other_split)
    )
    same = ways == other_ways and split.everywhere == other_split.everywhere
    return level == other_level and same and bool(split.why) == bool(other_split.why)


def check_rstream(query: RegisteredQuery, plan: Plan) -> None:
    """Refuses RSTREAM over an older relation query: RSTREAM cannot see that query's windows move."""
    for ref in relations_below_rstream(plan.steps[dict(plan.outputs)[query.name]].node):
        if plan.has_step(ref):
            raise cannot_begin(ref.name)


def _is_common(plan: Plan, edge: Exchange) -> bool:
    """Whether an exchange is the same for all generations: tuples of a stream from outside, unnumbered."""
    node = plan.steps[edge.source].node
    return isinstance(node, Scan) and node.is_stream and not edge.ordinals and not edge.instants


def _common_name(plan: Plan, edge: Exchange) -> str:
    node = plan.steps[edge.source].node
    assert isinstance(node, Scan)
    return f">{node.name}{edge.way}"
