"""From bound queries to logical plans, step by step and without cleverness: the rewrites come after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from kasen.cql import bound, expr
from kasen.cql.bind.query import is_monotone_select
from kasen.cql.bound import App, JoinKind, Query, Select, Source, StreamKind
from kasen.cql.expr import Call, Column, Expr, conjunction, conjuncts, walk
from kasen.plan import logical
from kasen.plan.explain.show import brief, show_aggregate
from kasen.plan.exprs import rebuild
from kasen.plan.logical import Node, SemiKind
from kasen.types import Field, Schema, Type


class Names(Protocol):
    """Where names are looked up: an app, or the catalog of a running pipeline."""

    @property
    def time(self) -> Type: ...

    def input(self, name: str) -> bound.Input | None: ...

    def query(self, name: str) -> bound.RegisteredQuery | None: ...


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the plans of queries."""

    app: Names

    def query(self, query: Query) -> Node:
        match query:
            case Select():
                return self._select(query)
            case bound.SetOperation():
                left, right = self.query(query.left), self.query(query.right)
                return logical.SetOp(query.schema, left, right, query.kind, query.all)
            case bound.Streamify():
                return self._streamify(query)
        raise AssertionError(f"no plan for {type(query).__name__}")

    def _streamify(self, query: bound.Streamify) -> Node:
        child = self.query(query.query)
        fires = query.kind is StreamKind.RSTREAM and query.every is None
        leaves = tuple(dict.fromkeys(self._leaves(child))) if fires else ()
        stream: Node = logical.Streamify(query.schema, child, query.kind, query.every, leaves)
        if query.delay is not None:
            stream = logical.Delay(query.schema, stream, query.delay, query.inserted)
        return stream

    def _leaves(self, node: Node) -> Iterator[Node]:
        """The windows and outside relations below a relation, looking through named relations once each.

        Without recursion, as relations may read one another in long chains.
        """
        seen: set[str] = set()
        todo = [node]
        while todo:
            match node := todo.pop():
                case logical.WindowNode(child=child, window=window):
                    yield logical.WindowActivity(Schema(()), child, window)
                case logical.Scan():
                    yield logical.WindowActivity(Schema(()), node, None)
                case logical.Ref(name=name) if name.lower() not in seen:
                    seen.add(name.lower())
                    query = self.app.query(name)
                    assert query is not None
                    todo.append(self.query(query.query))
                case logical.Ref() | logical.WindowReports():
                    pass  # Reports move with the sliding window they belong to, which is a leaf itself
                case _:
                    todo += node.children[::-1]

    def _select(self, select: Select) -> Node:
        block = _Block(self, select)
        node = block.with_bounds(block.from_(select.from_), block.bounds_below)
        node = block.where(node, conjuncts(select.where))
        if select.group_by is None:
            node, items = block.scalars(node, tuple(block.localise(item) for item in select.items))
        else:
            node, items = block.aggregate(node)
        node = logical.Project(select.schema, node, items)
        return logical.Distinct(select.schema, node) if select.distinct else node

    def source(self, source: Source) -> Node:
        """A FROM item seen through its window."""
        node = self.stream(source)
        return node if source.window is None else logical.WindowNode(node.schema, node, source.window)

    def stream(self, source: Source) -> Node:
        """What a FROM item's window is put on."""
        return self._named(source.input) if isinstance(source.input, str) else self.query(source.input)

    def _named(self, name: str) -> Node:
        input_ = self.app.input(name)
        if input_ is not None:
            return logical.Scan(input_.schema, input_.name, input_.is_relation)
        query = self.app.query(name)
        assert query is not None, name
        monotone = not query.is_stream and is_monotone_select(query.query)
        return logical.Ref(query.schema, query.name, query.is_stream, monotone)


class _Block:
    """Where a SELECT block's columns lie once its FROM items stand side by side."""

    def __init__(self, builder: Builder, select: Select) -> None:
        self.builder = builder
        self.select = select
        self.offsets: list[int] = []
        width = 0
        for source in select.sources:
            self.offsets.append(width)
            width += len(source.schema)
        # The sliding windows whose bounds are read per row, and those read beside aggregates.
        below = [*conjuncts(select.where), *(select.group_by or ())]
        below += [arg for call in select.aggregates for arg in call.args]
        above = [*select.items, *([select.having] if select.having is not None else [])]
        if select.group_by is None:
            below, above = [*below, *above], []
        self.bounds_below = _bound_sources(below)
        self.bounds_above = _bound_sources(above)
        self.places = {source: width + 2 * rank for rank, source in enumerate(self.bounds_below)}

    # ------------------------------------------------------------ FROM

    def from_(self, from_: bound.From) -> Node:
        if isinstance(from_, Source):
            return self.builder.source(from_)
        left, right = self.from_(from_.left), self.from_(from_.right)
        schema = side_by_side(left, right)
        on = self._join_condition(from_)
        if from_.kind in (JoinKind.CROSS, JoinKind.INNER):
            return logical.InnerJoin(schema, (left, right), (), on, self.select.hint)
        return logical.OuterJoin(schema, left, right, from_.kind, (), on)

    def _position(self, source: Source) -> int:
        """Which FROM item this is; by identity, as two items may be equal."""
        return next(i for i, each in enumerate(self.select.sources) if each is source)

    def _join_condition(self, join: bound.Join) -> Expr | None:
        if join.on is None:
            return None
        # A join inside a tree sees its own inputs' columns only: shift to its leftmost one.
        first = next(iter(bound.sources_of(join)))
        base = self.offsets[self._position(first)]

        def leaf(part: Expr) -> Expr:
            if isinstance(part, Column):
                return Column(part.type, 0, self.offsets[part.source] + part.index - base, self._name(part))
            return part

        return rebuild(join.on, leaf)

    def localise(self, whole: Expr) -> Expr:
        """An expression over FROM items as one over the joined row."""

        def leaf(part: Expr) -> Expr:
            match part:
                case Column(type_, source, index, _, outer) if not outer:
                    return Column(type_, 0, self.offsets[source] + index, self._name(part))
                case expr.WindowBound(type_, source, end):
                    return Column(type_, 0, self.places[source] + end, _bound_name(end))
            return part

        return rebuild(whole, leaf)

    def with_bounds(self, node: Node, sources: tuple[int, ...]) -> Node:
        """The node with the bounds of the given sliding windows as further columns."""
        for source in sources:
            item = self.select.sources[source]
            assert isinstance(item.window, bound.Slide)
            time = self.builder.app.time
            schema = Schema((Field("window_start", time), Field("window_end", time)))
            reports = logical.WindowReports(schema, self.builder.stream(item), item.window)
            node = logical.InnerJoin(side_by_side(node, reports), (node, reports), (), None)
        return node

    def _name(self, part: Column) -> str:
        alias = self.select.sources[part.source].alias
        return f"{alias}.{part.name}" if alias and len(self.select.sources) > 1 else part.name

    # ------------------------------------------------------------ WHERE

    def where(self, node: Node, parts: Iterable[Expr]) -> Node:
        """The parts of a condition in their order; plain ones that follow one another are one filter."""
        for plain, group in groupby(parts, key=_is_plain):
            if plain:
                condition = conjunction(tuple(self.localise(part) for part in group))
                assert condition is not None
                node = logical.Filter(node.schema, node, condition)
            else:
                for part in group:
                    node = self._where(node, part)
        return node

    def _where(self, node: Node, part: Expr) -> Node:
        """A semi-join for IN and EXISTS, or a filter that reads values of queries."""
        negated = isinstance(part, Call) and part.op == "not"
        inner = part.args[0] if isinstance(part, Call) and negated else part
        if isinstance(inner, expr.Exists):
            return self._semi(node, inner.query, (), SemiKind.ANTI if negated else SemiKind.SEMI)
        if isinstance(inner, expr.InQuery):
            args = tuple(self.localise(arg) for arg in inner.args)
            return self._semi(node, inner.query, args, SemiKind.NULL_AWARE_ANTI if negated else SemiKind.SEMI)
        width = len(node.schema)
        joined, (condition,) = self.scalars(node, (self.localise(part),))
        filtered: Node = logical.Filter(joined.schema, joined, condition)
        return filtered if joined is node else _first_columns(filtered, width)

    def _semi(self, node: Node, query: Query, args: tuple[Expr, ...], kind: SemiKind) -> Node:
        right, values, correlated = self._inner(query)
        keys = tuple(zip(args, values, strict=True)) if args else ()
        residual = None
        if correlated:
            width = len(node.schema)
            residual = conjunction(tuple(self._beside(part, width) for part in correlated))
        return logical.SemiJoin(node.schema, node, right, kind, keys, residual)

    def _inner(self, query: Query) -> tuple[Node, tuple[Expr, ...], tuple[Expr, ...]]:
        """The right side of a semi-join: its plan, its columns' values, its correlated conjuncts."""
        plain = isinstance(query, Select) and query.group_by is None and not query.distinct
        if not plain or not isinstance(query, Select):
            node = self.builder.query(query)
            return node, tuple(Column(f.type, 0, i, f.name) for i, f in enumerate(node.schema)), ()
        query = _unwrapped(query)
        block = _Block(self.builder, query)
        node = block.with_bounds(block.from_(query.from_), block.bounds_below)
        correlated, own = [], []
        for part in conjuncts(query.where):
            if any(isinstance(leaf, Column) and leaf.outer for leaf in walk(part)):
                correlated.append(block.localise(part))
            else:
                own.append(part)
        node = block.where(node, own)
        node, items = block.scalars(node, tuple(block.localise(item) for item in query.items))
        return node, items, tuple(correlated)

    def _beside(self, part: Expr, width: int) -> Expr:
        """A correlated conjunct over the left row followed by the right row."""

        def leaf(each: Expr) -> Expr:
            if not isinstance(each, Column):
                return each
            if each.outer:
                return self.localise(Column(each.type, each.source, each.index, each.name))
            return Column(each.type, 0, each.index + width, each.name)

        return rebuild(part, leaf)

    def scalars(self, node: Node, exprs: tuple[Expr, ...]) -> tuple[Node, tuple[Expr, ...]]:
        """Joins in the one-row relations of scalar sub-queries and puts their columns in their places."""
        found: dict[expr.ScalarQuery, Column] = {}
        for whole in exprs:
            for part in walk(whole):
                if isinstance(part, expr.ScalarQuery) and part not in found:
                    right = self.builder.query(part.query)
                    found[part] = Column(part.type, 0, len(node.schema), f"query.{right.schema[0].name}")
                    node = logical.InnerJoin(side_by_side(node, right), (node, right), (), None)

        def leaf(part: Expr) -> Expr:
            return found[part] if isinstance(part, expr.ScalarQuery) else part

        return node, tuple(rebuild(whole, leaf) for whole in exprs)

    # ------------------------------------------------------------ GROUP BY

    def aggregate(self, node: Node) -> tuple[Node, tuple[Expr, ...]]:
        """The aggregated block below its SELECT list, and the list over it."""
        select = self.select
        keys = tuple(self.localise(key) for key in select.group_by or ())
        calls = [
            replace(call, args=tuple(self.localise(arg) for arg in call.args)) for call in select.aggregates
        ]
        names = [_key_name(key, position) for position, key in enumerate(keys)]
        fields = [Field(name, key.type) for name, key in zip(names, keys, strict=True)]
        fields += [Field(call.function, call.type) for call in calls]
        node = logical.Aggregate(Schema(tuple(fields)), node, keys, tuple(calls))
        first_bound = len(node.schema)
        node = self.with_bounds(node, self.bounds_above)
        places = {source: first_bound + 2 * rank for rank, source in enumerate(self.bounds_above)}

        def leaf(part: Expr) -> Expr:
            match part:
                case expr.GroupKey(type_, index):
                    return Column(type_, 0, index, brief(keys[index]))
                case expr.AggregateValue(type_, index):
                    return Column(type_, 0, len(keys) + index, show_aggregate(calls[index]))
                case expr.WindowBound(type_, source, end):
                    return Column(type_, 0, places[source] + end, _bound_name(end))
            return part

        if select.having is not None:
            width = len(node.schema)
            joined, (having,) = self.scalars(node, (rebuild(select.having, leaf),))
            filtered: Node = logical.Filter(joined.schema, joined, having)
            shown = [*map(brief, keys), *map(show_aggregate, calls)]
            node = filtered if joined is node else _first_columns(filtered, width, shown)
        return self.scalars(node, tuple(rebuild(item, leaf) for item in select.items))


def _bound_sources(exprs: list[Expr]) -> tuple[int, ...]:
    """The FROM items whose window_start() or window_end() the expressions read."""
    parts = (part for whole in exprs for part in walk(whole))
    return tuple(sorted({part.source for part in parts if isinstance(part, expr.WindowBound)}))


def _is_plain(part: Expr) -> bool:
    """Whether a condition reads the row alone, and no query."""
    return not any(isinstance(each, expr.InQuery | expr.Exists | expr.ScalarQuery) for each in walk(part))


def _bound_name(end: bool) -> str:
    return "window_end" if end else "window_start"


def _unwrapped(select: Select) -> Select:
    """A block that only casts the columns of a plain sub-query, as that sub-query with the casts.

    The binder casts IN's sub-query this way; the columns of the query around stay in its inner WHERE.
    """
    inner = select.from_.input if isinstance(select.from_, Source) else None
    if (
        not isinstance(inner, Select)
        or inner.group_by is not None
        or inner.distinct
        or select.where is not None
    ):
        return select
    assert isinstance(select.from_, Source)
    if select.from_.window is not None:
        return select

    def leaf(part: Expr) -> Expr:
        return inner.items[part.index] if isinstance(part, Column) and not part.outer else part

    items = tuple(rebuild(item, leaf) for item in select.items)
    return _unwrapped(replace(inner, items=items, schema=select.schema))


def side_by_side(left: Node, right: Node) -> Schema:
    return Schema((*left.schema.fields, *right.schema.fields))


def _first_columns(node: Node, width: int, names: Sequence[str] = ()) -> Node:
    """The first columns of a node; `names` are what people call the first of these."""
    schema = Schema(node.schema.fields[:width])
    shown = (*names, *schema.names[len(names) :])
    items = tuple(Column(field.type, 0, i, shown[i]) for i, field in enumerate(schema))
    return logical.Project(schema, node, items)


def _key_name(key: Expr, position: int) -> str:
    return key.name if isinstance(key, Column) else f"key{position}"


def build(app: App) -> dict[str, Node]:
    """The logical plan of every query, by name, before any rewrite."""
    builder = Builder(app)
    return {query.name: builder.query(query.query) for query in app.queries}
