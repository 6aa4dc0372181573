"""Working on expressions inside plans: moving columns, finding which inputs they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kasen.cql.expr import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    walk,
)

T = TypeVar("T")


def rebuild(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The expression with every leaf and sub-query replaced by what `leaf` makes of it."""
    match expr:
        case Call(type_, op, args):
            return Call(type_, op, tuple(rebuild(arg, leaf) for arg in args))
        case Cast(type_, arg):
            return Cast(type_, rebuild(arg, leaf))
        case Case(type_, branches, otherwise):
            moved = tuple((rebuild(test, leaf), rebuild(value, leaf)) for test, value in branches)
            return Case(type_, moved, rebuild(otherwise, leaf))
    return leaf(expr)


def column(index: int, like: Expr, name: str = "") -> Column:
    return Column(like.type, 0, index, name)


def columns_used(expr: Expr) -> set[int]:
    """The input columns an expression of a plan reads."""
    return {part.index for part in walk(expr) if isinstance(part, Column)}


def split(parts: Iterable[T], belongs: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The parts that belong, and the others, in their order.

    Parts are not looked up among one another: to tell long conditions apart takes their square.
    """
    mine: list[T] = []
    rest: list[T] = []
    for part in parts:
        (mine if belongs(part) else rest).append(part)
    return mine, rest


def shift(expr: Expr, by: int) -> Expr:
    """The expression over an input that starts `by` columns further right."""

    def move(leaf: Expr) -> Expr:
        return Column(leaf.type, 0, leaf.index + by, leaf.name) if isinstance(leaf, Column) else leaf

    return rebuild(expr, move)


def remap(expr: Expr, places: dict[int, int]) -> Expr:
    """The expression with each column moved to its new place."""

    def move(leaf: Expr) -> Expr:
        return Column(leaf.type, 0, places[leaf.index], leaf.name) if isinstance(leaf, Column) else leaf

    return rebuild(expr, move)


def substitute(expr: Expr, items: tuple[Expr, ...]) -> Expr:
    """The expression over a projection, as one over the projection's input."""
    return rebuild(expr, lambda leaf: items[leaf.index] if isinstance(leaf, Column) else leaf)
