"""Working on expressions inside plans: moving columns, finding which inputs they use, printing them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from kasen.cql.expr import (
    Aggregate,
    AggregateValue,
    Call,
    Case,
    Cast,
    Column,
    Exists,
    Expr,
    GroupKey,
    InQuery,
    Literal,
    ScalarQuery,
    WindowBound,
    walk,
)
from kasen.types import Kind


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


_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">="}


def show(expr: Expr) -> str:
    """The expression as text for EXPLAIN."""
    match expr:
        case Column(name=name, index=index):
            return name or f"#{index}"
        case Literal(type_, value):
            return _show_value(value, type_.kind)
        case Call(op=op, args=args) if op in _INFIX:
            return f" {op} ".join(_wrap(arg) for arg in args)
        case Call(op="and" | "or" as op, args=args):
            return f" {op.upper()} ".join(_wrap(arg) for arg in args)
        case Call(op="not", args=(arg,)):
            return f"NOT {_wrap(arg)}"
        case Call(op="is_null", args=(arg,)):
            return f"{_wrap(arg)} IS NULL"
        case Call(op="neg", args=(arg,)):
            return f"-{_wrap(arg)}"
        case Call(op="like", args=(text, pattern)):
            return f"{_wrap(text)} LIKE {show(pattern)}"
        case Call(op="in", args=(value, *choices)):
            return f"{_wrap(value)} IN ({', '.join(show(choice) for choice in choices)})"
        case Call(op=op, args=args):
            return f"{op.upper()}({', '.join(show(arg) for arg in args)})"
        case Cast(type_, arg):
            return f"CAST({show(arg)} AS {type_})"
        case Case(branches=branches, otherwise=otherwise):
            cases = " ".join(f"WHEN {show(test)} THEN {show(value)}" for test, value in branches)
            return f"CASE {cases} ELSE {show(otherwise)} END"
        case GroupKey(index=index):
            return f"key {index}"
        case AggregateValue(index=index):
            return f"aggregate {index}"
        case WindowBound(end=end):
            return "WINDOW_END()" if end else "WINDOW_START()"
        case InQuery() | Exists() | ScalarQuery():
            return "(query)"
    raise AssertionError(f"no text for {type(expr).__name__}")


def _wrap(expr: Expr) -> str:
    text = show(expr)
    compound = isinstance(expr, Call) and expr.op in (*_INFIX, "and", "or", "not", "is_null", "like", "in")
    return f"({text})" if compound else text


def _show_value(value: object, kind: Kind) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if kind is Kind.INTERVAL:
        return f"INTERVAL {value} µs"
    return str(value) if isinstance(value, Decimal) else repr(value)


def show_aggregate(call: Aggregate) -> str:
    """An aggregate as text for EXPLAIN."""
    inside = ", ".join(show(arg) for arg in call.args) or "*"
    if call.parameter is not None:
        inside += f", {call.parameter:g}"
    return f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{inside})"
