"""Expressions, aggregates, windows and times of plans as text, in the words that a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from kasen.cql.bound import PartitionRows, Range, Slide, Window
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
)
from kasen.text_values import timestamp_text
from kasen.types import BIGINT, Kind, Type

_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">="}
#: An expression of more parts than this is no name for a column.
_MOST_PARTS = 30


def brief(expr: Expr) -> str:
    """What a column that holds the expression's value is called."""
    return show(expr) if expr.parts <= _MOST_PARTS else "(...)"


def show(expr: Expr) -> str:
    """The expression as text, in CQL as far as CQL has it."""
    match expr:
        case Column(name=name, index=index):
            return name or f"column {index + 1}"
        case Literal(type_, value):
            return _show_value(value, type_.kind)
        case Call(op="ts_add", args=(moment, Literal(value=int() as length))):
            sign = "-" if length < 0 else "+"
            return f"{_wrap(moment)} {sign} {_show_interval(abs(length))}"
        case Call(op="ts_diff", args=(one, other)):
            return f"{_wrap(one)} - {_wrap(other)}"
        case Call(op="is_distinct", args=(one, other)):
            return f"{_wrap(one)} IS DISTINCT FROM {_wrap(other)}"
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


_COMPOUND = {*_INFIX, "and", "or", "not", "is_null", "is_distinct", "like", "in", "ts_add", "ts_diff"}


def _wrap(expr: Expr) -> str:
    text = show(expr)
    return f"({text})" if isinstance(expr, Call) and expr.op in _COMPOUND else text


def _show_value(value: object, kind: Kind) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if kind is Kind.INTERVAL and isinstance(value, int):
        return _show_interval(value)
    if kind is Kind.TIMESTAMP and isinstance(value, int):
        return f"TIMESTAMP '{timestamp_text(value)}'"
    return str(value) if isinstance(value, Decimal) else repr(value)


_UNITS = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def _in_units(micros: int) -> tuple[str, str]:
    """A length of time as a number, and the largest unit in which it is a whole one."""
    for unit, size in _UNITS:
        if micros and micros % size == 0:
            return str(micros // size), unit
    return (str(micros // 1000), "MILLISECOND") if micros % 1000 == 0 else (str(micros), "MICROSECOND")


def _show_interval(micros: int) -> str:
    number, unit = _in_units(micros)
    return f"INTERVAL '{number}' {unit}"


def show_length(length: int, time: Type) -> str:
    """A length of time as a user writes it."""
    if time == BIGINT:
        return str(length)
    number, unit = _in_units(length)
    return f"{number} {unit}{'' if number == '1' else 'S'}"


def show_instant(ts: int, time: Type) -> str:
    """A point in time as a user writes it."""
    return str(ts) if time == BIGINT else timestamp_text(ts) or str(ts)


def show_window(window: Window, time: Type, columns: Sequence[str] = ()) -> str:
    """A window as a user writes it; `columns` are the names of the stream's."""
    match window:
        case Range(length):
            return f"[RANGE {show_length(length, time)}]"
        case Slide(length, slide):
            return f"[RANGE {show_length(length, time)} SLIDE {show_length(slide, time)}]"
        case PartitionRows(keys, count):
            return f"[PARTITION BY {', '.join(columns[key] for key in keys)} ROWS {count}]"
    return str(window)


def show_aggregate(call: Aggregate) -> str:
    """An aggregate as text."""
    inside = ", ".join(brief(arg) for arg in call.args) or "*"
    if call.parameter is not None:
        inside += f", {call.parameter:g}"
    return f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{inside})"
