"""The meaning of a logical plan at one instant, as one DuckDB query: a rewrite must not change it.

A stream is a table with two further columns, `ts` and `pos` (its place in the source), a window the part
of it that is alive at the instant. What a streamified query puts out is modelled as if it all came at the
instant; it has no places, so a window orders it by value. That is enough to tell whether a window saw it
filtered or narrowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from kasen.cql.bound import (
    JoinKind,
    Now,
    PartitionRows,
    Query,
    Range,
    Rows,
    Slide,
    Unbounded,
    Window,
)
from kasen.cql.expr import Aggregate, Call, Column, Expr, WindowBound
from kasen.plan import logical
from kasen.plan.exprs import shift
from kasen.plan.logical import Node, SemiKind
from kasen.types import BOOLEAN
from tests.oracle.expressions import duck_type, expression
from tests.oracle.sql import aggregate
from tests.oracle.values import Key, Row, canonical_row, order_key

#: A stream's tuples as (ts, row), in order; a relation's rows have no meaning for ts.
Tables = Mapping[str, Sequence[tuple[int, Row]]]


def bag(duck: duckdb.DuckDBPyConnection, plan: Node, plans: Mapping[str, Node], now: int) -> Counter[Key]:
    """What a relation holds at `now`, or all that a stream has put out. Tables are named in_<name>."""
    meaning = Meaning(plans, now)
    columns = ", ".join(f"c{index}" for index in range(len(plan.schema))) or "1"
    sql = meaning.stream(plan) if plan.is_stream else meaning.relation(plan)
    rows = duck.execute(f"SELECT {columns} FROM ({sql})").fetchall()
    return Counter(order_key(canonical_row(row)) for row in rows)


def arrivals(
    duck: duckdb.DuckDBPyConnection, plan: Node, plans: Mapping[str, Node], now: int
) -> list[tuple[int, int]]:
    """When a stream's tuples come, and in which order: all that a leaf of an RSTREAM is about."""
    sql = Meaning(plans, now).stream(plan)
    return [
        (int(ts), int(rank))
        for ts, rank in duck.execute(
            f"SELECT ts, row_number() OVER (ORDER BY ts, pos) AS rank FROM ({sql}) ORDER BY rank"
        ).fetchall()
    ]


def load(duck: duckdb.DuckDBPyConnection, plan: Node, tables: Tables) -> None:
    """Creates the tables that the plan's scans read."""
    for node in logical.walk(plan):
        if isinstance(node, logical.Scan):
            columns = [f"c{index} {duck_type(one.type)}" for index, one in enumerate(node.schema)]
            duck.execute(
                f"CREATE OR REPLACE TABLE in_{node.name} ({', '.join([*columns, 'ts BIGINT', 'pos BIGINT'])})"
            )
            for position, (ts, row) in enumerate(tables[node.name]):
                marks = ", ".join("?" for _ in range(len(row) + 2))
                duck.execute(f"INSERT INTO in_{node.name} VALUES ({marks})", [*row, ts, position])


class _Columns:
    """Expressions over a table whose columns are c0, c1, ...; `prefix` names the table."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def column(self, column: Column) -> str:
        return f"{self.prefix}c{column.index}"

    def group_key(self, index: int) -> str:
        raise AssertionError("a group key in a plan")

    def aggregate(self, index: int) -> str:
        raise AssertionError("an aggregate value in a plan")

    def window_bound(self, bound: WindowBound) -> str:
        raise AssertionError("a window bound in a plan")

    def subquery(self, query: Query) -> tuple[str, bool]:
        raise AssertionError("a sub-query in a plan")


def _sql(expr: Expr) -> str:
    return expression(expr, _Columns())


def _list(items: Sequence[str], more: str = "") -> str:
    """Named c0, c1, ...; SQL knows no table without columns, hence the one."""
    return (
        ", ".join([*(f"{item} AS c{index}" for index, item in enumerate(items)), *([more] if more else [])])
        or "1"
    )


@dataclass(frozen=True, slots=True)
class Meaning:
    plans: Mapping[str, Node]
    now: int

    # ------------------------------------------------------------ streams

    def stream(self, node: Node) -> str:
        """The tuples so far, with ts and pos."""
        match node:
            case logical.Scan(name=name):
                return f"SELECT * FROM in_{name}"
            case logical.Ref(name=name):
                return self.stream(self.plans[name])
            case logical.Filter(child=child, condition=condition):
                return f"SELECT * FROM ({self.stream(child)}) WHERE {_sql(condition)}"
            case logical.Project(child=child, items=items):
                return (
                    f"SELECT {_list([_sql(item) for item in items], 'ts, pos')} FROM ({self.stream(child)})"
                )
            case logical.Delay(child=child):
                return self.stream(child)
            case logical.Streamify(child=child):
                return f"SELECT {self._all(child)}, {self.now} AS ts, 0 AS pos FROM ({self.relation(child)})"
        raise AssertionError(f"{type(node).__name__} is no stream")

    def window(self, window: Window, child: Node) -> str:
        """The relation that the window over a stream holds."""
        boundary, alive = 0, "TRUE"
        match window:
            case Unbounded():
                pass
            case Now():
                alive = f"ts = {self.now}"
            case Range(length):
                alive = f"ts >= {self.now - length}"
            case Slide(length, slide):
                boundary = self.now // slide * slide
                alive = f"ts >= {boundary - length} AND ts < {boundary}"
            case Rows(count, slide):
                reached = f"(size // {slide} * {slide})"
                alive = f"rank <= {reached} AND rank > {reached} - {count}"
            case PartitionRows(_, count):
                alive = f"rank > size - {count}"
        keys = [f"c{key}" for key in window.keys] if isinstance(window, PartitionRows) else []
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        order = ", ".join(["ts", "pos", *(f"c{index} NULLS FIRST" for index in range(len(child.schema)))])
        ranked = (
            f"SELECT *, row_number() OVER ({by}ORDER BY {order}) AS rank, count(*) OVER ({by}) AS size"
            f" FROM ({self.stream(child)})"
        )
        return f"SELECT * EXCLUDE (ts, pos, rank, size), 1 AS one FROM ({ranked}) WHERE {alive}"

    def reports(self, window: Slide, stream: str) -> str:
        """The bounds of the latest report, if there was one: see latest_bounds of the oracle's windows."""
        length, slide, boundary = window.length, window.slide, self.now // window.slide * window.slide
        first, last = f"(ts // {slide} * {slide} + {slide})", f"((ts + {length}) // {slide} * {slide})"
        seen = f"least({boundary}, {last} + {slide})"
        latest = f"(SELECT max({seen}) FROM ({stream}) WHERE {first} <= {last} AND {seen} >= {first})"
        return f"SELECT latest - {length} AS c0, latest AS c1 FROM (SELECT {latest} AS latest)"

    # ------------------------------------------------------------ relations

    def relation(self, node: Node) -> str:
        match node:
            case logical.Scan(name=name):
                return f"SELECT * EXCLUDE (ts, pos) FROM in_{name}"
            case logical.Ref(name=name):
                return self.relation(self.plans[name])
            case logical.WindowNode(child=child, window=window):
                return self.window(window, child)
            case logical.WindowReports(child=child, window=window):
                return self.reports(window, self.stream(child))
            case logical.Filter(child=child, condition=condition):
                return f"SELECT * FROM ({self.relation(child)}) WHERE {_sql(condition)}"
            case logical.Project(child=child, items=items):
                return f"SELECT {_list([_sql(item) for item in items])} FROM ({self.relation(child)})"
            case logical.InnerJoin(inputs=inputs):
                return self._inner(node, [self.relation(child) for child in inputs])
            case logical.WindowJoin(inputs=inputs, windows=windows):
                return self._inner(node, list(map(self.window, windows, inputs)))
            case logical.OuterJoin():
                return self._outer(node)
            case logical.SemiJoin():
                return self._semi(node)
            case logical.Aggregate(child=child, keys=keys, aggregates=calls):
                return self._grouped(self.relation(child), None, keys, calls)
            case logical.WindowAggregate(child=child, keys=keys, aggregates=calls, condition=condition):
                return self._grouped(self.window(node.window, child), condition, keys, calls)
            case logical.Distinct(child=child):
                return f"SELECT DISTINCT {self._all(child)} FROM ({self.relation(child)})"
            case logical.SetOp(left=left, right=right, kind=kind, all=all_):
                sides = [f"(SELECT {self._all(side)} FROM ({self.relation(side)}))" for side in (left, right)]
                return f" {kind.value}{' ALL' if all_ else ''} ".join(sides)
        raise AssertionError(f"no meaning for {type(node).__name__}")

    @staticmethod
    def _all(node: Node) -> str:
        return ", ".join(f"c{index}" for index in range(len(node.schema)))

    @staticmethod
    def _side(child: Node, sql: str, name: str, start: int) -> str:
        """A join's input with its columns where they are in the joined row."""
        columns = [f"c{index} AS c{start + index}" for index in range(len(child.schema))]
        return f"(SELECT {', '.join([*columns, f'1 AS one_{name}'])} FROM ({sql})) AS {name}"

    def _inner(self, node: logical.InnerJoin | logical.WindowJoin, tables: list[str]) -> str:
        sides: list[str] = []
        starts: list[int] = []
        width = 0
        for position, (child, sql) in enumerate(zip(node.inputs, tables, strict=True)):
            starts.append(width)
            sides.append(self._side(child, sql, f"i{position}", width))
            width += len(child.schema)
        conditions = [] if node.residual is None else [node.residual]
        for each in node.classes:
            keys = [shift(key, starts[position]) for position, key in each]
            conditions += [Call(BOOLEAN, "=", (keys[0], key)) for key in keys[1:]]
        where = " AND ".join(_sql(condition) for condition in conditions) or "TRUE"
        return f"SELECT {_list([f'c{i}' for i in range(width)])} FROM {', '.join(sides)} WHERE {where}"

    def _matching(self, node: logical.OuterJoin | logical.SemiJoin) -> list[str]:
        width = len(node.left.schema)
        return [_sql(Call(BOOLEAN, "=", (left, shift(right, width)))) for left, right in node.keys]

    def _sides(self, node: logical.OuterJoin | logical.SemiJoin) -> tuple[str, str]:
        left = self._side(node.left, self.relation(node.left), "l", 0)
        return left, self._side(node.right, self.relation(node.right), "r", len(node.left.schema))

    def _outer(self, node: logical.OuterJoin) -> str:
        assert node.kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
        left, right = self._sides(node)
        conditions = self._matching(node) + ([] if node.residual is None else [_sql(node.residual)])
        on = " AND ".join(conditions) or "TRUE"
        columns = _list([f"c{index}" for index in range(len(node.schema))])
        return f"SELECT {columns} FROM {left} {node.kind.value} JOIN {right} ON {on}"

    def _semi(self, node: logical.SemiJoin) -> str:
        left, right = self._sides(node)
        equal = " AND ".join(self._matching(node)) or "TRUE"
        residual = "TRUE" if node.residual is None else _sql(node.residual)
        fits = f"({equal})"
        if node.kind is SemiKind.NULL_AWARE_ANTI:
            fits = f"(({equal}) OR (({equal}) IS NULL))"
        not_ = "" if node.kind is SemiKind.SEMI else "NOT "
        columns = _list([f"c{index}" for index in range(len(node.schema))])
        return (
            f"SELECT {columns} FROM {left}"
            f" WHERE {not_}EXISTS (SELECT 1 FROM {right} WHERE {fits} AND {residual})"
        )

    @staticmethod
    def _grouped(rows: str, condition: Expr | None, keys: Sequence[Expr], calls: Sequence[Aggregate]) -> str:
        given = [f"{_sql(key)} AS k{index}" for index, key in enumerate(keys)]
        for number, call in enumerate(calls):
            given += [f"{_sql(arg)} AS x{number}_{index}" for index, arg in enumerate(call.args)]
        where = "" if condition is None else f" WHERE {_sql(condition)}"
        found = [*(f"k{index}" for index in range(len(keys)))]
        grouped = [*found, *(aggregate(call, number) for number, call in enumerate(calls))]
        by = f" GROUP BY {', '.join(found)}" if found else ""
        return (
            f"SELECT {_list(grouped, 'count(*) AS size')}"
            f" FROM (SELECT {', '.join([*given, '1 AS one'])} FROM ({rows}){where}){by}"
        )
