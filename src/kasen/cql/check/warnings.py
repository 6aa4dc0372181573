"""Warnings: things that are legal, and that a user would want to know before a long run."""

from __future__ import annotations

from collections.abc import Iterator

from kasen.cql.bound import (
    JOIN_HINTS,
    Query,
    RegisteredQuery,
    Select,
    SetKind,
    SetOperation,
    Source,
    Streamify,
    StreamKind,
    Unbounded,
)
from kasen.cql.expr import Exists, InQuery, ScalarQuery, conjuncts, walk

# Aggregates that must remember every value; the others remember one result a group.
_REMEMBERING = ("percentile_cont", "percentile_disc")


def unknown_hints(query: RegisteredQuery) -> list[str]:
    """Hints that nobody knows have no effect."""
    known = ", ".join(JOIN_HINTS)
    return [f"{query.name}: no hint {hint}; hints are {known}" for hint in dict.fromkeys(_hints(query.query))]


def _hints(query: Query) -> Iterator[str]:
    match query:
        case Streamify(query=inner):
            yield from _hints(inner)
        case SetOperation(left=left, right=right):
            yield from _hints(left)
            yield from _hints(right)
        case Select():
            if query.hint and query.hint.replace(" ", "_") not in JOIN_HINTS:
                yield query.hint
            for source in query.sources:
                if not isinstance(source.input, str):
                    yield from _hints(source.input)


def unbounded_state(query: RegisteredQuery) -> list[str]:
    """A stream without a window that a stateful operator must remember for ever."""
    return [
        f"{query.name}: {name} is [UNBOUNDED] under {why}, so its state grows for ever; give it a window"
        for name, why in dict.fromkeys(_unbounded(query.query, ""))
    ]


def _unbounded(query: Query, why: str) -> Iterator[tuple[str, str]]:
    """Unbounded streams that are remembered; `why` is what around them remembers, if anything does."""
    match query:
        case Streamify(kind=kind, query=inner):
            # What is around sees the stream through a window, and remembers that.
            yield from _unbounded(inner, "RSTREAM" if kind is StreamKind.RSTREAM else "")
        case SetOperation(kind=kind, all=all_, left=left, right=right):
            stateful = not (kind is SetKind.UNION and all_)
            for side in (left, right):
                yield from _unbounded(side, kind.value if stateful else why)
        case Select():
            yield from _block(query, why)


def _block(block: Select, why: str) -> Iterator[tuple[str, str]]:
    parts = [part for root in (*conjuncts(block.where), *block.items) for part in walk(root)]
    members = [part.query for part in parts if isinstance(part, InQuery | Exists)]
    remembering = [one for one in block.aggregates if one.distinct or one.function in _REMEMBERING]
    if len(block.sources) > 1:
        why = "a join"
    elif members:
        why = "IN or EXISTS"
    elif remembering:
        why = "DISTINCT" if remembering[0].distinct else "a percentile"
    elif block.group_by is not None:
        why = ""  # one row a group is what is remembered
    elif block.distinct:
        why = "DISTINCT"
    for source in block.sources:
        yield from _source(source, why)
    for query in members:
        yield from _unbounded(query, "IN or EXISTS")
    for part in parts:
        if isinstance(part, ScalarQuery):
            yield from _unbounded(part.query, "")


def _source(source: Source, why: str) -> Iterator[tuple[str, str]]:
    if not isinstance(source.input, str):
        yield from _unbounded(source.input, why)
    if why and isinstance(source.window, Unbounded):
        yield source.alias or "the sub-query", why
