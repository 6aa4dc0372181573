"""Binding of FROM: its items through their windows, and joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.bind.expr.expression import ExprBinder
from kasen.cql.bind.expr.scope import Item, Scope, UnknownSchema, suggest
from kasen.cql.bind.window import bind_window
from kasen.cql.bound import (
    From,
    Input,
    Join,
    JoinKind,
    Query,
    Select,
    Source,
    Streamify,
    StreamKind,
    Unbounded,
    Window,
)
from kasen.cql.expr import Column
from kasen.types import Schema

if TYPE_CHECKING:
    from kasen.cql.bind.query import QueryBinder


#: A join is a level of a plan, and its conditions see all columns before it.
_MOST_ITEMS = 100


def bind_from(node: exp.Select, scope: Scope, queries: QueryBinder) -> From:
    """The FROM items as a tree of joins; `scope` gets them in order.

    JOIN binds tighter than the comma: ON sees what was joined since the last comma.
    """
    tree: From | None = None
    group: From = _source(node.args["from_"].this, scope, queries)
    for join in node.args.get("joins") or ():
        if len(scope.items) == _MOST_ITEMS:
            fault = f"FROM has more than {_MOST_ITEMS} items"
            raise queries.text.error(fault, join.this, "join some of them in a query of their own")
        if join.args.get("on") is None and join.args.get("kind") is None:
            tree = group if tree is None else Join(JoinKind.CROSS, tree, group, None)
            scope.start = len(scope.items)
            group = _source(join.this, scope, queries)
        else:
            group = _join(group, join, scope, queries)
    scope.start = 0
    return group if tree is None else Join(JoinKind.CROSS, tree, group, None)


def _join(left: From, node: exp.Join, scope: Scope, queries: QueryBinder) -> Join:
    right = _source(node.this, scope, queries)
    on = node.args.get("on")
    if on is None:
        return Join(JoinKind.CROSS, left, right, None)
    kind = JoinKind(node.args.get("side") or "INNER")
    return Join(kind, left, right, ExprBinder(scope, place="in ON").condition(on))


def _source(node: nodes.FromItem, scope: Scope, queries: QueryBinder) -> Source:
    item = _Binder(node, queries).item(scope)
    if item.alias and any(each.alias.lower() == item.alias.lower() for each in scope.items):
        remedy = f"give one of them another name: {item.alias} AS {item.alias}2"
        raise queries.text.error(f"{item.alias!r} stands in FROM twice", node, remedy)
    scope.items.append(item)
    return item.source


class _Binder:
    """Binds one FROM item."""

    def __init__(self, node: nodes.FromItem, queries: QueryBinder) -> None:
        self.node = node
        self.queries = queries
        self.window_node = node.args.get("window")
        self.name = node.this.name if isinstance(node.this, exp.Table) else ""
        alias = node.args.get("alias")
        self.alias: str = alias.name if alias is not None else self.name

    def item(self, scope: Scope) -> Item:
        if not self.name:
            return self._over_query(self.queries.query(self.node.this, scope.closed("a query in FROM")))
        cte = self.queries.ctes.get(self.name.lower())
        if cte is not None:
            return self._over_query(cte.query())
        input_ = self.queries.catalog.input(self.name)
        if input_ is not None:
            return self._over_input(input_)
        return self._over_registered()

    def _over_input(self, input_: Input) -> Item:
        window: Window | None = None
        if not input_.is_relation:
            window = self._window((input_.name, self.alias), input_.schema, input_.timestamp)
        elif self.window_node is not None:
            fault = f"{input_.name!r} is a relation, and a window goes on a stream"
            raise self.queries.text.error(fault, self.window_node, "leave the window out")
        source = Source(self.alias, input_.name, window, input_.schema)
        return Item(source, input_.hidden, input_.timestamp)

    def _over_registered(self) -> Item:
        catalog, text = self.queries.catalog, self.queries.text
        try:
            query = catalog.query(self.name)
        except UnknownSchema:
            return Item(Source(self.alias, self.name, None, Schema(())), unknown=True)
        if query is None:
            remedy = catalog.gone(self.name) or suggest(self.name, catalog.names(), "registered are")
            raise text.error(f"unknown stream or query {self.name!r}", self.node.this, remedy)
        name = catalog.registered_name(self.name)
        if isinstance(query, Streamify):
            window = self._window((name, self.alias), query.schema)
            return Item(Source(self.alias, name, window, query.schema))
        if self.window_node is None:
            return Item(Source(self.alias, name, None, query.schema))
        self._require_monotone(query)
        # A window on a monotone select counts as one on its ISTREAM.
        columns = tuple(Column(f.type, 0, i, f.name) for i, f in enumerate(query.schema))
        inner = Source(name, name, None, query.schema)
        block = Select(query.schema, inner, None, None, (), None, columns, False)
        return self._over_stream(Streamify(StreamKind.ISTREAM, block))

    def _over_query(self, query: Query) -> Item:
        if isinstance(query, Streamify):
            return self._over_stream(query)
        if self.window_node is None:
            return Item(Source(self.alias, query, None, query.schema))
        self._require_monotone(query)
        return self._over_stream(Streamify(StreamKind.ISTREAM, query))

    def _over_stream(self, query: Streamify) -> Item:
        window = self._window((self.name, self.alias), query.schema)
        return Item(Source(self.alias, query, window, query.schema))

    def _window(self, names: tuple[str, ...], schema: Schema, timestamp: int | None = None) -> Window:
        """The window behind the item. A stream without one is unbounded."""
        if self.window_node is None:
            return Unbounded()
        time, text = self.queries.catalog.time, self.queries.text
        return bind_window(self.window_node, names, schema, timestamp, time, text)

    def _require_monotone(self, query: Query) -> None:
        from kasen.cql.bind.query import is_monotone_select

        if not is_monotone_select(query):
            what = repr(self.alias) if self.alias else "this sub-query"
            fault = f"{what} is a relation, and a window goes on a stream"
            remedy = "leave the window out, or make it a stream: ISTREAM(SELECT ...)"
            raise self.queries.text.error(fault, self.window_node, remedy)
