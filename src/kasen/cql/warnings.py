"""Warnings: things that are legal, and that a user would want to know before a long run."""

from __future__ import annotations

from collections.abc import Iterator

from kasen.cql.bound import (
    Query,
    RegisteredQuery,
    Select,
    SetKind,
    SetOperation,
    Source,
    Streamify,
    Unbounded,
)


def unbounded_state(query: RegisteredQuery) -> list[str]:
    """A stream without a window that a stateful operator must remember for ever."""
    return [
        f"{query.name}: {name} is [UNBOUNDED] under {why}, so its state grows for ever; give it a window"
        for name, why in dict.fromkeys(_unbounded(query.query, ""))
    ]


def _unbounded(query: Query, why: str) -> Iterator[tuple[str, str]]:
    match query:
        case Streamify(query=inner):
            yield from _unbounded(inner, why)
        case SetOperation(kind=kind, all=all_, left=left, right=right):
            stateful = not (kind is SetKind.UNION and all_)
            for side in (left, right):
                yield from _unbounded(side, kind.value if stateful else why)
        case Select(sources=sources, distinct=distinct):
            reason = "a join" if len(sources) > 1 else "DISTINCT" if distinct else why
            for source in sources:
                yield from _source(source, reason)


def _source(source: Source, why: str) -> Iterator[tuple[str, str]]:
    if not isinstance(source.input, str):
        yield from _unbounded(source.input, why)
    if why and isinstance(source.window, Unbounded):
        yield source.alias or str(source.input), why
