"""Loops among queries: each must hold a delay, or its definition would contradict itself.

An edge runs from what is read to its reader. It is *cut* if a delay stands between the place of
reading and the reader's output: what flows along it arrives later, so it ends the instant's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from kasen.cql.bound import (
    Delay,
    From,
    Join,
    PartitionRows,
    Query,
    RegisteredQuery,
    Rows,
    Select,
    SetKind,
    SetOperation,
    Source,
    Streamify,
    StreamKind,
    Window,
)
from kasen.cql.expr import Exists, Expr, InQuery, ScalarQuery, walk

_MOST_LOOPS = 20
_MOST_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class ReadEdge:
    """A query reads the input or query called `name`, through `window`; `cut` if a delay follows."""

    name: str
    window: Window | None
    cut: bool


def readings(query: Query, cut: bool = False) -> Iterator[ReadEdge]:
    """Everything a query reads by name, sub-queries included."""
    match query:
        case Streamify(query=inner, delay=delay):
            yield from readings(inner, cut or delay is not None)
        case SetOperation(left=left, right=right):
            yield from readings(left, cut)
            yield from readings(right, cut)
        case Select(from_=from_, where=where, having=having, items=items):
            yield from _from_readings(from_, cut)
            for expr in (where, having, *items):
                for inner in _queries_in(expr):
                    yield from readings(inner, cut)


def _from_readings(from_: From, cut: bool) -> Iterator[ReadEdge]:
    if isinstance(from_, Join):
        yield from _from_readings(from_.left, cut)
        yield from _from_readings(from_.right, cut)
    elif isinstance(from_.input, str):
        yield ReadEdge(from_.input, from_.window, cut)
    else:
        yield from readings(from_.input, cut)


def _queries_in(expr: Expr | None) -> Iterator[Query]:
    if expr is not None:
        for part in walk(expr):
            if isinstance(part, InQuery | Exists | ScalarQuery):
                yield part.query


def has_stream(query: Query) -> bool:
    """Whether a streamified query is among a query's parts."""
    match query:
        case Streamify():
            return True
        case SetOperation(left=left, right=right):
            return has_stream(left) or has_stream(right)
    parts = [source.input for source in query.sources if not isinstance(source.input, str)]
    parts += [inner for expr in (query.where, query.having, *query.items) for inner in _queries_in(expr)]
    return any(has_stream(part) for part in parts)


def find_loops(queries: tuple[RegisteredQuery, ...], *, cut: bool) -> list[tuple[str, ...]]:
    """The loops among the queries.

    With `cut` the loops that hold a delay count too. At most a screenful: a dense graph has
    exponentially many.
    """
    order = {query.name: position for position, query in enumerate(queries)}
    edges = _edges(queries, cut)
    loops: list[tuple[str, ...]] = []
    for group in circles(edges):
        members = sorted(group, key=order.__getitem__)
        before = len(loops)
        for index, start in enumerate(members):
            allowed = set(members[index:])
            loops += islice(_loops_from(start, edges, allowed), _MOST_LOOPS - len(loops))
        if len(loops) == before:
            loops.append(tuple(members))  # too many paths to follow: name all of them
    loops.sort(key=lambda loop: order[loop[0]])
    return [_from_hub(loop, loops, order) for loop in loops]


def _edges(queries: tuple[RegisteredQuery, ...], cut: bool) -> dict[str, list[str]]:
    """For each query, its readers, in the order of registration."""
    by_key = {query.name.lower(): query.name for query in queries}
    edges: dict[str, list[str]] = {query.name: [] for query in queries}
    for query in queries:
        for reading in readings(query.query):
            source = by_key.get(reading.name.lower())
            if source is not None and (cut or not reading.cut) and edges[source][-1:] != [query.name]:
                edges[source].append(query.name)
    return edges


def circles(edges: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The groups of queries that reach each other (Tarjan's strongly connected components).

    Most apps have none, and then no path needs to be followed. Without recursion, as chains can be long.
    """
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: dict[str, None] = {}
    groups: list[list[str]] = []
    for root in edges:
        work = [(root, iter(edges[root]))] if root not in number else []
        while work:
            name, targets = work[-1]
            if name not in number:
                number[name] = low[name] = len(number)
                stack[name] = None
            target = next((each for each in targets if each not in number or each in stack), None)
            if target is None:
                work.pop()
                for caller, _ in work[-1:]:
                    low[caller] = min(low[caller], low[name])
                if low[name] == number[name]:
                    group = [stack.popitem()[0]]
                    while group[-1] != name:
                        group.append(stack.popitem()[0])
                    group.reverse()
                    if len(group) > 1 or name in edges[name]:
                        groups.append(group)
            elif target not in number:
                work.append((target, iter(edges[target])))
            else:
                low[name] = min(low[name], number[target])
    return groups


def _from_hub(loop: tuple[str, ...], loops: list[tuple[str, ...]], order: dict[str, int]) -> tuple[str, ...]:
    """The loop told from the query that most loops share, so that several loops read alike."""
    hub = min(loop, key=lambda name: (-sum(name in other for other in loops), order[name]))
    start = loop.index(hub)
    return loop[start:] + loop[:start]


def _loops_from(start: str, edges: dict[str, list[str]], allowed: set[str]) -> Iterator[tuple[str, ...]]:
    """All simple paths from `start` back to it that use only `allowed` queries."""
    reachable = _leading_to(start, edges, allowed)
    stack: list[tuple[str, ...]] = [(start,)]
    for _ in range(_MOST_STEPS):
        if not stack:
            return
        path = stack.pop()
        for target in reversed(edges[path[-1]]):
            if target == start:
                yield path
            elif target in reachable and target not in path:
                stack.append((*path, target))


def _leading_to(goal: str, edges: dict[str, list[str]], allowed: set[str]) -> set[str]:
    """The allowed queries from which `goal` can be reached: prunes paths that can never close."""
    sources: dict[str, list[str]] = {name: [] for name in allowed}
    for name in allowed:
        for target in edges[name]:
            if target in allowed:
                sources[target].append(name)
    found = {goal}
    todo = [goal]
    while todo:
        new = [name for name in sources[todo.pop()] if name not in found]
        found.update(new)
        todo += new
    return found


def show(loop: tuple[str, ...]) -> str:
    return " → ".join((*loop, loop[0]))


def non_monotone_parts(queries: tuple[RegisteredQuery, ...], loops: list[tuple[str, ...]]) -> list[str]:
    """The operators in the loops that can take back what they said: why a delay is needed."""
    members = {name for loop in loops for name in loop}
    return [
        part for query in queries if query.name in members for part in _non_monotone(query.query, query.name)
    ]


def _non_monotone(query: Query, owner: str) -> Iterator[str]:
    match query:
        case Streamify(kind=kind, query=inner):
            if kind is StreamKind.DSTREAM:
                yield f"DSTREAM in {owner}"
            yield from _non_monotone(inner, owner)
        case SetOperation(kind=kind, left=left, right=right):
            if kind is SetKind.EXCEPT:
                yield f"EXCEPT in {owner}"
            yield from _non_monotone(left, owner)
            yield from _non_monotone(right, owner)
        case Select():
            if query.group_by is not None:
                yield f"aggregate in {owner}"
            for source in query.sources:
                yield from _window_parts(source, owner)


def _window_parts(source: Source, owner: str) -> Iterator[str]:
    if isinstance(source.window, Rows | PartitionRows):
        name = source.input if isinstance(source.input, str) else source.alias
        yield f"{name} {source.window} in {owner}"
    if not isinstance(source.input, str):
        yield from _non_monotone(source.input, owner)


def insert_delays(
    queries: tuple[RegisteredQuery, ...],
) -> tuple[tuple[RegisteredQuery, ...], list[str]]:
    """Put <Now> behind as few streamified queries as greedily cut all loops; returns the chosen names.

    Of those that cut equally many, the one with the fewest readers outside the loops, as these hear it later.
    """
    chosen: list[str] = []
    readers = _edges(queries, cut=True)
    while loops := find_loops(queries, cut=False):
        members = {name for loop in loops for name in loop}
        candidates = [
            query.name
            for query in queries
            if isinstance(query.query, Streamify) and query.query.delay is None and query.name in members
        ]
        if not candidates:
            break
        best = max(
            candidates,
            key=lambda name: (
                sum(name in loop for loop in loops),
                -sum(reader not in members for reader in readers[name]),
            ),
        )
        chosen.append(best)
        queries = tuple(_delayed(query) if query.name == best else query for query in queries)
    return queries, chosen


def _delayed(query: RegisteredQuery) -> RegisteredQuery:
    assert isinstance(query.query, Streamify)
    return replace(query, query=replace(query.query, delay=Delay(None), inserted=True))
