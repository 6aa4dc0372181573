"""What makes the windows of two texts the same: stream, columns, window clause, and filter.

A REPLACE keeps a window of the new text if the old text has the same one (docs/live-queries.md). That is a
matter of the texts alone; whether the plans remember enough to do so is `kept_windows`' to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kasen.cql.bound import (
    From,
    Join,
    JoinKind,
    PartitionRows,
    Query,
    Rows,
    Select,
    SetOperation,
    Streamify,
    Window,
)
from kasen.cql.expr import (
    Column,
    Exists,
    Expr,
    InQuery,
    ScalarQuery,
    WindowBound,
    conjuncts,
    walk,
)
from kasen.plan.build import Names
from kasen.plan.exprs import rebuild
from kasen.types import Schema


@dataclass(frozen=True, slots=True)
class WindowIdentity:
    """A window over a stream with a name, as a text has it. `filter` is over the stream's columns."""

    stream: str
    columns: Schema
    window: Window
    filter: frozenset[Expr]


def windows_of(query: Query) -> frozenset[WindowIdentity]:
    """The windows of a query over streams with names, those of its sub-queries included."""
    return frozenset(found for select in _blocks(query) for found in _windows_in(select))


def windows_below(query: Query, names: Names) -> frozenset[WindowIdentity]:
    """The same, with the windows of the relation queries that it reads: what RSTREAM listens to."""
    found: set[WindowIdentity] = set()
    seen: set[str] = set()
    todo = [query]
    while todo:
        one = todo.pop()
        found |= windows_of(one)
        for select in _blocks(one):
            for source in select.sources:
                if isinstance(source.input, str) and source.window is None and source.input not in seen:
                    seen.add(source.input)
                    relation = names.query(source.input)
                    todo += [] if relation is None else [relation.query]
    return frozenset(found)


def _blocks(query: Query) -> Iterator[Select]:
    """The SELECT blocks of a query, wherever they stand."""
    todo = [query]
    while todo:
        query = todo.pop()
        match query:
            case Streamify(query=inner):
                todo.append(inner)
            case SetOperation(left=left, right=right):
                todo += [left, right]
            case Select():
                yield query
                todo += [source.input for source in query.sources if not isinstance(source.input, str)]
                parts = (part for expr in _expressions(query) for part in walk(expr))
                todo += [part.query for part in parts if isinstance(part, InQuery | Exists | ScalarQuery)]


def _expressions(select: Select) -> Iterator[Expr]:
    arguments = [arg for call in select.aggregates for arg in call.args]
    yield from (*select.items, *arguments, *(select.group_by or ()), *_joined_on(select.from_, *JoinKind))
    yield from (each for each in (select.where, select.having) if each is not None)


def _joined_on(from_: From, *kinds: JoinKind) -> Iterator[Expr]:
    """The conditions of ON, one by one, of joins of these kinds."""
    todo = [from_]
    while todo:
        one = todo.pop()
        if isinstance(one, Join):
            todo += [one.left, one.right]
            if one.kind in kinds:
                yield from conjuncts(one.on)


def _windows_in(select: Select) -> Iterator[WindowIdentity]:
    """The windows in a block's own FROM."""
    conditions = (*conjuncts(select.where), *_joined_on(select.from_, JoinKind.INNER, JoinKind.CROSS))
    for position, source in enumerate(select.sources):
        if source.window is None or not isinstance(source.input, str):
            continue
        # Row windows count tuples before any condition is asked.
        counts = isinstance(source.window, Rows | PartitionRows)
        own = frozenset() if counts else frozenset(_alone(conditions, position))
        yield WindowIdentity(source.input.lower(), source.schema, source.window, own)


def _alone(conditions: tuple[Expr, ...], position: int) -> Iterator[Expr]:
    """The conditions on tuples of one FROM item, over its columns."""

    def leaf(part: Expr) -> Expr:
        return Column(part.type, 0, part.index, part.name) if isinstance(part, Column) else part

    for condition in conditions:
        parts = list(walk(condition))
        others = any(isinstance(part, InQuery | Exists | ScalarQuery | WindowBound) for part in parts)
        read = {(part.source, part.outer) for part in parts if isinstance(part, Column)}
        if read == {(position, 0)} and not others:
            yield rebuild(condition, leaf)
