"""Which windows a REPLACE keeps: docs/live-queries.md, "What REPLACE keeps", turned into code.

A window is known by its stream, the stream's columns, its clause and its filter. A window of the new text
that the old text has, too, holds what it held there; every other one starts empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kasen.cql.bound import From, Join, JoinKind, PartitionRows, Rows, Select, Source, Window
from kasen.cql.expr import (
    Column,
    Exists,
    Expr,
    InQuery,
    ScalarQuery,
    WindowBound,
    conjuncts,
    map_children,
    walk,
)
from kasen.types import Schema

_NOT_OF_ONE_TUPLE = (Exists, InQuery, ScalarQuery, WindowBound)


@dataclass(frozen=True, slots=True)
class WindowIdentity:
    """What makes windows of two texts the same."""

    stream: str
    columns: Schema
    window: Window
    filter: frozenset[Expr]


def identity(source: Source, filter_: frozenset[Expr]) -> WindowIdentity | None:
    """None for what is not a window over a stream with a name."""
    if source.window is None or not isinstance(source.input, str):
        return None
    counts = isinstance(source.window, Rows | PartitionRows)
    return WindowIdentity(
        source.input.lower(), source.schema, source.window, frozenset() if counts else filter_
    )


def filter_of(select: Select, position: int) -> frozenset[Expr]:
    """The conditions that WHERE, and ON of inner joins, put on one FROM item alone."""
    conditions = [*conjuncts(select.where), *_joined_on(select.from_)]
    return frozenset(_unplaced(one) for one in conditions if _is_about(one, position))


def _joined_on(from_: From) -> Iterator[Expr]:
    if isinstance(from_, Join):
        if from_.kind in (JoinKind.INNER, JoinKind.CROSS):
            yield from conjuncts(from_.on)
        yield from _joined_on(from_.left)
        yield from _joined_on(from_.right)


def _is_about(condition: Expr, position: int) -> bool:
    """Whether a condition is one on the tuples of a single FROM item."""
    parts = list(walk(condition))
    read = {(part.source, part.outer) for part in parts if isinstance(part, Column)}
    return read == {(position, 0)} and not any(isinstance(part, _NOT_OF_ONE_TUPLE) for part in parts)


def _unplaced(condition: Expr) -> Expr:
    """The condition wherever its FROM item stands."""
    if isinstance(condition, Column):
        return replace(condition, source=0)
    return map_children(condition, _unplaced)
