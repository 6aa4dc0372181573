"""Typed scalar expressions: what the binder makes of SQL's expressions.

The set of operations is closed (see functions.py), so an engine lowers an expression with one
function per node class and one table of operations. Every coercion is an explicit Cast: an engine
never has to guess a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from kasen.aggregates import UserAggregate
from kasen.types import BOOLEAN, Type

if TYPE_CHECKING:
    from kasen.cql.bound import Query

Value = bool | int | float | str | Decimal | None


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression with its type.

    It knows how many levels and parts it has, as a tree: parts may be the same object in several places,
    and then walking through them all can take for ever.
    """

    type: Type

    levels = 1
    parts = 1


@dataclass(frozen=True, slots=True)
class Compound(Expr):
    """An expression with expressions in it."""

    levels: int = field(init=False, compare=False, repr=False)
    parts: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        levels, parts = 0, 1
        for child in children(self):
            parts += child.parts
            if child.levels > levels:
                levels = child.levels
        object.__setattr__(self, "levels", levels + 1)
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True, slots=True)
class Column(Expr):
    """A column of a FROM item.

    `source` counts the block's FROM items from the left; `outer` says how many blocks further out
    (only 0, or 1 inside EXISTS and IN).
    """

    source: int
    index: int
    # The name is for people: two columns are the same whatever alias they are read through.
    name: str = field(compare=False)
    outer: int = 0


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant. TIMESTAMPs and INTERVALs are int (µs), DECIMALs are Decimal, None is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Call(Compound):
    """An operation of the closed list, by its name there: '+', '=', 'and', 'upper', ..."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Cast(Compound):
    """A conversion to `type`; a value that does not fit becomes NULL."""

    arg: Expr


@dataclass(frozen=True, slots=True)
class Case(Compound):
    """CASE WHEN condition THEN value ... ELSE otherwise END."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class GroupKey(Expr):
    """In the SELECT list or HAVING of an aggregated block: its `index`-th GROUP BY expression."""

    index: int


@dataclass(frozen=True, slots=True)
class AggregateValue(Expr):
    """In the SELECT list or HAVING of an aggregated block: its `index`-th aggregate."""

    index: int


@dataclass(frozen=True, slots=True)
class WindowBound(Expr):
    """window_start() or window_end() of the block's only SLIDE window, FROM item `source`."""

    source: int
    end: bool


@dataclass(frozen=True, slots=True)
class InQuery(Compound):
    """`args IN (query)`, with SQL's three-valued meaning; NOT IN is Call('not', ...)."""

    args: tuple[Expr, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class Exists(Expr):
    """EXISTS (query)."""

    query: Query


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expr):
    """(SELECT aggregate FROM ...): an uncorrelated query that always has exactly one row."""

    query: Query


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows of a group.

    `function` is one of functions.AGGREGATES; `args` is empty for COUNT(*). `parameter` is the p of a
    percentile. `user` is set if it is the user's own, and `function` its name.
    """

    function: str
    args: tuple[Expr, ...]
    distinct: bool
    type: Type
    parameter: float | None = None
    user: UserAggregate | None = None


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions (sub-queries are not entered)."""
    match expr:
        case Call(args=args) | InQuery(args=args):
            return args
        case Cast(arg=arg):
            return (arg,)
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
    return ()


def map_children(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to its direct sub-expressions."""
    match expr:
        case Call(type_, op, args):
            return Call(type_, op, tuple(change(arg) for arg in args))
        case Cast(type_, arg):
            return Cast(type_, change(arg))
        case Case(type_, branches, otherwise):
            changed = tuple((change(test), change(value)) for test, value in branches)
            return Case(type_, changed, change(otherwise))
        case InQuery(type_, args, query):
            return InQuery(type_, tuple(change(arg) for arg in args), query)
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its sub-expressions, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """The parts of a conjunction; none for a missing condition."""
    if expr is None:
        return ()
    if isinstance(expr, Call) and expr.op == "and":
        return tuple(part for arg in expr.args for part in conjuncts(arg))
    return (expr,)


def conjunction(parts: tuple[Expr, ...]) -> Expr | None:
    """The inverse of `conjuncts`."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Call(BOOLEAN, "and", parts)
