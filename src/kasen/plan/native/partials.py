"""Pane partials in the JVM: Spark reduces a stream's rows to a row a pane and group before they cross.

COUNT, MIN, MAX and SUM of integers and DECIMALs can be put together from partials without a trace of how the
rows were cut: the answers are those of the rows themselves. A group's row carries the least of its times, so
it lies in its pane and nothing that is complete begins before it. A single row is a group of one, in the same
columns: that is what an epoch with late rows falls back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

from kasen.cql.bound import App, Tick
from kasen.cql.expr import Aggregate, Call, Column, Expr, Literal
from kasen.plan import logical
from kasen.plan.explain.show import brief, show, show_aggregate, show_length
from kasen.plan.logical import Node
from kasen.plan.native.sql import failures, sql
from kasen.plan.native.sql_text import micros, null, quoted, spark_name
from kasen.plan.physical import Input
from kasen.plan.physical_nodes import SlidingAggregate
from kasen.types import BIGINT, BOOLEAN, Field, Kind, Schema, Type

if TYPE_CHECKING:
    from kasen.plan.native.lower import StreamView

#: More aggregates than this in one GROUP BY cost more than the rows they save.
_MOST_AGGREGATES = 24
_FUNCTIONS = ("count", "min", "max", "sum")


class NoPartials(Exception):
    """Why a stream's panes are not reduced natively; empty if nobody asked for it."""


@dataclass(frozen=True, slots=True)
class Partials:
    """The reduction as SQL.

    `base` are columns over the source's, of `types`, called b0 (the time, as a BIGINT), b1, ... Over them,
    `rows` are the residual columns of a single row, `groups` those of a pane's group by `keys`. `sums` are
    pairs of a sum's column and that of its count: a sum that is NULL beside a count did not fit.
    """

    pane: int
    base: tuple[str, ...]
    types: tuple[Type, ...]
    keys: tuple[str, ...]
    rows: tuple[str, ...]
    groups: tuple[str, ...]
    sums: tuple[tuple[int, int], ...]


class Builder:
    """Lays out the columns of one grouping: time, keys, then what each aggregate needs."""

    def __init__(self, input_: Input, keys: tuple[Expr, ...], time: Type) -> None:
        assert input_.timestamp is not None
        self._names = [quoted(field.name) for field in input_.schema]
        moment = self._names[input_.timestamp]
        self.types = [BIGINT]
        self.base = [micros(moment) if time.kind is Kind.TIMESTAMP else moment]
        self._at: dict[Expr, str] = {}
        self.keys = [self._base(key) for key in keys]
        self.fields = [Field("ts", time), *(Field(f"k{i}", key.type) for i, key in enumerate(keys))]
        #: What people call the columns.
        self.names = [input_.schema[input_.timestamp].name, *map(brief, keys)]
        self.rows = ["b0", *self.keys]
        self.groups = ["min(b0)", *self.keys]
        self._columns: dict[tuple[str, Expr | None, Expr | None], int] = {}
        self.sums: list[tuple[int, int]] = []

    def _base(self, expr: Expr) -> str:
        if expr not in self._at:
            self._at[expr] = f"b{len(self.base)}"
            self.base.append(sql(expr, self._names))
            self.types.append(expr.type)
        return self._at[expr]

    def add(self, function: str, arg: Expr | None, condition: Expr | None, type_: Type) -> int:
        """The residual column of one aggregate over the rows that meet a condition."""
        key = (function, arg, condition)
        if key in self._columns:
            return self._columns[key]
        met = self._base(condition) if condition is not None else ""
        value = self._base(arg) if arg is not None else ""
        only = f" FILTER (WHERE {met})" if met else ""
        if function == "count":
            there = " AND ".join(part for part in (met, f"{value} IS NOT NULL" if value else "") if part)
            row = f"CAST(coalesce({there}, FALSE) AS BIGINT)" if there else "1L"
            grouped = f"count({value or '*'}){only}"
        else:
            row = f"IF({met}, {value}, {null(type_)})" if met else value
            row = f"CAST({row} AS {spark_name(type_)})"
            grouped = f"{function}({value}){only}"
        if function == "sum" and type_.kind is Kind.BIGINT:
            grouped = f"try_{grouped}"
        elif function == "sum" and type_.kind is Kind.DECIMAL:
            grouped = f"try_cast({grouped} AS {spark_name(type_)})"
        place = len(self.fields)
        self._columns[key] = place
        self.fields.append(Field(f"a{place}", type_))
        where = "" if condition is None else f" FILTER (WHERE {brief(condition)})"
        self.names.append(f"{function.upper()}({'*' if arg is None else brief(arg)}){where}")
        self.rows.append(row)
        self.groups.append(grouped)
        if function == "sum" and type_.kind is not Kind.DOUBLE:
            self.sums.append((place, self.add("count", arg, condition, BIGINT)))
        return place


@dataclass(frozen=True, slots=True)
class Grouping:
    """One GROUP BY for all sliding aggregates over a stream, and how each is put together from it."""

    partials: Partials
    schema: Schema
    names: tuple[str, ...]
    notes: tuple[str, ...]
    #: For each aggregate: the column that counts its rows, and one for each of its calls.
    places: dict[SlidingAggregate, tuple[int, tuple[int, ...]]]
    filtered: frozenset[SlidingAggregate]

    def combine(self, node: SlidingAggregate, scan: Node) -> Node:
        """The aggregate over partials instead of rows."""
        count, places = self.places[node]
        child = scan
        if node in self.filtered:
            some = Call(BOOLEAN, ">", (self._column(count), Literal(BIGINT, 0)))
            child = logical.Filter(scan.schema, scan, some)
        wanted = [*range(1, 1 + node.keys), *dict.fromkeys(places)]
        items = tuple(map(self._column, wanted))
        fields = tuple(Field(f"a{index}", item.type) for index, item in enumerate(items))
        child = logical.Project(Schema(fields), child, items)
        calls = tuple(
            Aggregate(
                "sum" if call.function == "count" else call.function,
                (replace(self._column(at), index=wanted.index(at, node.keys)),),
                False,
                call.type,
            )
            for call, at in zip(node.aggregates, places, strict=True)
        )
        combined = SlidingAggregate(node.schema, child, node.window, node.keys, calls)
        return combined if node.keys else _counts_of_nothing(combined, node.aggregates)

    def _column(self, at: int) -> Column:
        is_time_or_key = at <= len(self.partials.keys)
        name = self.names[at] if is_time_or_key else f"native({self.names[at]})"
        return Column(self.schema[at].type, 0, at, name)


def _counts_of_nothing(node: SlidingAggregate, calls: tuple[Aggregate, ...]) -> Node:
    """Without keys there is a row for the empty window too: its counts are 0, where a sum is NULL."""
    items: list[Expr] = []
    for index, call in enumerate(calls):
        column = Column(call.type, 0, index, show_aggregate(call))
        zero = Literal(BIGINT, 0)
        items.append(Call(BIGINT, "coalesce", (column, zero)) if call.function == "count" else column)
    return logical.Project(node.schema, node, tuple(items))


def group(input_: Input, readers: Sequence[tuple[SlidingAggregate, StreamView]], app: App) -> Grouping:
    """The grouping that serves all readers of a stream, or Refused with the reason."""
    _check(input_, readers, app)
    first, view = readers[0]
    builder = Builder(input_, view.items[: first.keys], app.time)
    pane = 0
    places: dict[SlidingAggregate, tuple[int, tuple[int, ...]]] = {}
    for node, view in readers:
        pane = gcd(pane, node.window.length, node.window.slide)
        count = builder.add("count", None, view.condition, BIGINT)
        found = []
        for call in node.aggregates:
            arg = view.items[_index(call.args[0])] if call.args else None
            found.append(builder.add(call.function, arg, view.condition, call.type))
        places[node] = (count, tuple(found))
    if len(builder.fields) > _MOST_AGGREGATES + 1 + first.keys:
        raise NoPartials(f"{len(builder.fields)} columns cost more than the rows they save")
    keys = ", ".join(show(item) for item in view.items[: first.keys])
    panes = f"one row per pane of {show_length(pane, app.time)}{f' and {keys}' if keys else ''}"
    note = f"Spark reduces to {panes}: {', '.join(builder.names[1 + first.keys :])}"
    partials = Partials(
        pane,
        tuple(builder.base),
        tuple(builder.types),
        tuple(builder.keys),
        tuple(builder.rows),
        tuple(builder.groups),
        tuple(builder.sums),
    )
    filtered = frozenset(node for node, each in readers if each.conditions)
    schema = Schema(tuple(builder.fields))
    return Grouping(partials, schema, tuple(builder.names), (note,), places, filtered)


def _check(input_: Input, readers: Sequence[tuple[SlidingAggregate, StreamView]], app: App) -> None:
    if sum(not other.is_static for other in app.inputs) > 1:
        raise NoPartials("several streams are one scan, and the others' rows are needed")
    if input_.tick is Tick.TUPLE or input_.timestamp is None:
        raise NoPartials("every tuple is an instant of its own")
    first, view = readers[0]
    keys = view.items[: first.keys]
    names = [quoted(field.name) for field in input_.schema]
    for node, each in readers:
        if each.items[: node.keys] != keys:
            raise NoPartials("the queries group by different keys")
        exprs = (*each.items, *each.conditions)
        if any(failures(expr, names) is not None for expr in exprs):
            raise NoPartials("an expression may fail, which is counted row by row")
        for call in node.aggregates:
            _check_call(call, app)


def _check_call(call: Aggregate, app: App) -> None:
    if call.function not in _FUNCTIONS or call.distinct:
        raise NoPartials(f"{show_aggregate(call)} needs the values themselves")
    is_double = call.function == "sum" and call.type.kind is Kind.DOUBLE
    if is_double and app.setting("float_sums") != "fast":
        raise NoPartials("a sum of DOUBLEs is exact in the kernels only (SET float_sums = fast)")


def _index(expr: Expr) -> int:
    assert isinstance(expr, Column), "lowering left a computed argument"
    return expr.index
