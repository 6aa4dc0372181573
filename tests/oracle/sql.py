"""A bound query as one DuckDB statement.

The leaves (what windows and outside relations hold at an instant) are parameters: one list a column,
unnested into a common table expression. Everything relational is then DuckDB's.

In DuckDB, TIMESTAMP and INTERVAL are BIGINT (µs): they compare the same, and no calendar limit gets in.
Every expression is written so that it cannot fail; where CQL says NULL, the SQL says NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kasen.cql.bound import From, JoinKind, Query, Select, SetOperation, Source, Streamify, Unbounded
from kasen.cql.expr import Aggregate, Column, Expr, WindowBound
from kasen.types import Kind, Schema
from tests.oracle.bridges import know_user
from tests.oracle.expressions import duck_type, expression
from tests.oracle.kept import filter_of
from tests.oracle.values import Row
from tests.oracle.windows import Bounds


@dataclass(frozen=True, slots=True)
class Statement:
    """The SQL of a query, the FROM items that feed it, their filters, and whose window bounds it shows."""

    sql: str
    leaves: tuple[Source, ...]
    filters: tuple[frozenset[Expr], ...]
    bounded: frozenset[tuple[int, bool]]

    def parameters(self, rows: Sequence[Sequence[Row]], bounds: Sequence[Bounds | None]) -> dict[str, object]:
        """The statement's parameters, from what each leaf holds and its latest window bounds."""
        found: dict[str, object] = {}
        for number, leaf in enumerate(self.leaves):
            for index in range(len(leaf.schema)):
                found[f"t{number}c{index}"] = [row[index] for row in rows[number]]
        for number, end in self.bounded:
            latest = bounds[number]
            found[_bound_name(number, end)] = None if latest is None else latest[end]
        return found


def _bound_name(leaf: int, end: bool) -> str:
    return f"t{leaf}{'end' if end else 'start'}"


def statement(query: Query) -> Statement:
    writer = _Writer()
    body = writer.query(query, None)
    tables = [_table(number, leaf.schema) for number, leaf in enumerate(writer.leaves)]
    with_ = f"WITH {', '.join(tables)} " if tables else ""
    return Statement(with_ + body, tuple(writer.leaves), tuple(writer.filters), frozenset(writer.bounded))


def _table(number: int, schema: Schema) -> str:
    """unnest of lists of one length, side by side, is a table."""
    columns = [
        f"unnest($t{number}c{index}::{duck_type(one.type)}[]) AS c{index}" for index, one in enumerate(schema)
    ]
    return f"t{number} AS (SELECT {', '.join(columns)})"


def is_leaf(source: Source) -> bool:
    """A FROM item whose content the instant loop provides; other sub-queries are part of the statement."""
    return source.window is not None or isinstance(source.input, str)


def as_relation(query: Query) -> Select | SetOperation:
    """A stream without a window is [UNBOUNDED]."""
    if not isinstance(query, Streamify):
        return query
    source = Source("", query, Unbounded(), query.schema)
    items = tuple(Column(one.type, 0, index, one.name) for index, one in enumerate(query.schema))
    return Select(query.schema, source, None, None, (), None, items, False)


@dataclass(slots=True)
class _Writer:
    leaves: list[Source] = field(default_factory=list)
    filters: list[frozenset[Expr]] = field(default_factory=list)
    bounded: set[tuple[int, bool]] = field(default_factory=set)
    blocks: int = 0

    def query(self, query: Query, outer: _Block | None) -> str:
        relation = as_relation(query)
        if isinstance(relation, SetOperation):
            all_ = " ALL" if relation.all else ""
            left, right = self.query(relation.left, outer), self.query(relation.right, outer)
            return f"({left}) {relation.kind.value}{all_} ({right})"
        self.blocks += 1
        return _Block(self, relation, f"b{self.blocks}", outer).sql()


@dataclass(slots=True)
class _Block:
    """A SELECT block while it is written, and the scope of its expressions."""

    writer: _Writer
    select: Select
    name: str
    outer: _Block | None
    leaf_numbers: dict[int, int] = field(default_factory=dict)
    next_source: int = 0
    is_grouped: bool = False
    used_from_inside: bool = False

    def sql(self) -> str:
        from_ = self._from(self.select.from_)
        where = f" WHERE {self._expr(self.select.where)}" if self.select.where is not None else ""
        if self.select.group_by is not None:
            from_, where = self._grouped(self.select.group_by, f"{from_}{where}")
        distinct = "DISTINCT " if self.select.distinct else ""
        items = ", ".join(
            f"CAST({self._expr(item)} AS {duck_type(one.type)})"
            for item, one in zip(self.select.items, self.select.schema, strict=True)
        )
        return f"SELECT {distinct}{items} FROM {from_}{where}"

    def _expr(self, expr: Expr) -> str:
        return expression(expr, self)

    # ------------------------------------------------------------ FROM

    def _from(self, from_: From) -> str:
        if isinstance(from_, Source):
            return self._source(from_)
        left, right = self._from(from_.left), self._from(from_.right)
        if from_.kind is JoinKind.CROSS:
            return f"({left} CROSS JOIN {right})"
        on = "TRUE" if from_.on is None else self._expr(from_.on)
        return f"({left} {from_.kind.value} JOIN {right} ON {on})"

    def _source(self, source: Source) -> str:
        number, self.next_source = self.next_source, self.next_source + 1
        alias = f"{self.name}s{number}"
        if is_leaf(source):
            self.leaf_numbers[number] = len(self.writer.leaves)
            self.writer.leaves.append(source)
            self.writer.filters.append(filter_of(self.select, number))
            return f"t{self.leaf_numbers[number]} AS {alias}"
        assert not isinstance(source.input, str)
        columns = ", ".join(f"c{index}" for index in range(len(source.schema)))
        # FROM is no further level: inside EXISTS or IN, its sub-queries see the same block outside.
        return f"({self.writer.query(source.input, self.outer)}) AS {alias}({columns})"

    # ------------------------------------------------------------ GROUP BY

    def _grouped(self, group_by: tuple[Expr, ...], rows: str) -> tuple[str, str]:
        """FROM and WHERE of the groups: first each row's keys and arguments, then one row a group.

        Without GROUP BY there is one group, always: SQL's aggregates alone say so.
        """
        aggregates = self.select.aggregates
        given = [f"{self._expr(key)} AS k{index}" for index, key in enumerate(group_by)]
        for number, one in enumerate(aggregates):
            given += [f"{self._expr(arg)} AS x{number}_{index}" for index, arg in enumerate(one.args)]
        keys = [f"k{index}" for index in range(len(group_by))]
        found = [f"{aggregate(one, number)} AS a{number}" for number, one in enumerate(aggregates)]
        having = self.select.having
        self.is_grouped = True
        groups = (
            f"(SELECT {', '.join([*keys, *found, 'count(*) AS size'])}"
            f" FROM (SELECT {', '.join([*given, '1 AS one'])} FROM {rows})"
            f"{' GROUP BY ' + ', '.join(keys) if keys else ''}) AS {self.name}g"
        )
        return groups, "" if having is None else f" WHERE {self._expr(having)}"

    # ------------------------------------------------------------ the scope

    def column(self, column: Column) -> str:
        if column.outer:
            assert column.outer == 1
            assert self.outer is not None
            self.outer.used_from_inside = True
            return self.outer.column(Column(column.type, column.source, column.index, column.name))
        if self.is_grouped:
            return self.group_key(self._key_of(column))
        return f"{self.name}s{column.source}.c{column.index}"

    def _key_of(self, column: Column) -> int:
        """A sub-query in HAVING or SELECT may use a column that is grouped by."""
        for index, key in enumerate(self.select.group_by or ()):
            if isinstance(key, Column) and (key.source, key.index) == (column.source, column.index):
                return index
        raise NotImplementedError(f"{column.name} is not grouped by")

    def group_key(self, index: int) -> str:
        return f"{self.name}g.k{index}"

    def aggregate(self, index: int) -> str:
        return f"{self.name}g.a{index}"

    def window_bound(self, bound: WindowBound) -> str:
        number = self.leaf_numbers[bound.source]
        self.writer.bounded.add((number, bound.end))
        return f"${_bound_name(number, bound.end)}::BIGINT"

    def subquery(self, query: Query) -> tuple[str, bool]:
        before, self.used_from_inside = self.used_from_inside, False
        sql = self.writer.query(query, self)
        correlated, self.used_from_inside = self.used_from_inside, before
        return sql, correlated


# ---------------------------------------------------------------- aggregates


def aggregate(one: Aggregate, number: int) -> str:
    """An aggregate over the columns x<number>_<i>: DuckDB's own where exact, else a list for bridges.py."""
    if one.user is not None:
        return _user(one, number)
    if one.function == "count":
        return _count(one, number)
    x = f"x{number}_0"
    type_ = one.args[0].type
    distinct = "DISTINCT " if one.distinct else ""
    in_order = f"list_sort(list({distinct}{x}) FILTER (WHERE {x} IS NOT NULL))"
    if one.function in ("min", "max"):
        return f"{one.function}({x})"
    if one.function == "percentile_cont":
        return f"CAST(percentile_cont_of({in_order}, {one.parameter}) AS DOUBLE)"
    if one.function == "percentile_disc":
        size = f"len({in_order})"
        return f"({in_order})[CAST(percentile_disc_rank({size}, {one.parameter}) AS BIGINT)]"
    if one.function == "sum" and type_.kind is not Kind.DOUBLE:
        return f"TRY_CAST(sum({distinct}{x}) AS {duck_type(one.type)})"
    if type_.kind is Kind.DOUBLE:
        return f"CAST(exact_{one.function}_double(list({distinct}{x})) AS DOUBLE)"
    return f"CAST(exact_{one.function}_text(list({distinct}CAST({x} AS VARCHAR))) AS DOUBLE)"


def _user(one: Aggregate, number: int) -> str:
    """A list of texts for each argument; the user's own code does the rest."""
    name = know_user(one)
    lists = [f"coalesce(list(CAST(x{number}_{i} AS VARCHAR)), [])" for i in range(len(one.args))]
    return f"CAST(user_aggregate('{name}', [{', '.join(lists)}]) AS {duck_type(one.type)})"


def _count(one: Aggregate, number: int) -> str:
    columns = [f"x{number}_{index}" for index in range(len(one.args))]
    if not columns:
        return "count(*)"
    present = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    counted = f"DISTINCT ({', '.join(columns)})" if one.distinct else "*"
    return f"count({counted}) FILTER (WHERE {present})"
