"""Binding of queries: WITH, set operations, streamify operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from kasen.aggregates import UserAggregate
from kasen.cql import nodes
from kasen.cql.bind.block import bind_block
from kasen.cql.bind.expr.expression import too_large
from kasen.cql.bind.expr.scope import Scope, UnknownSchema
from kasen.cql.bind.set_operation import bind_set_operation
from kasen.cql.bound import (
    Delay,
    Input,
    Query,
    Select,
    Source,
    Streamify,
    StreamKind,
    Unbounded,
)
from kasen.cql.check.extent import extent_of
from kasen.cql.expr import Exists, InQuery, ScalarQuery, conjuncts, walk
from kasen.cql.parse import literals
from kasen.cql.text import Text
from kasen.types import Type


class Catalog(Protocol):
    """What binding a query needs to know of the app around it."""

    @property
    def time(self) -> Type: ...

    @property
    def user(self) -> Mapping[str, UserAggregate]: ...

    def input(self, name: str) -> Input | None: ...

    def query(self, name: str) -> Query | None:
        """A registered query as bound so far, or None if there is no such name.

        Raises UnknownSchema while the query exists but its columns are not known yet.
        """
        ...

    def registered_name(self, name: str) -> str:
        """A registered query's name as it was registered: names are compared without case."""
        ...

    def names(self) -> list[str]: ...

    def gone(self, name: str) -> str:
        """What became of a name that was registered once, as a remedy; empty if it never was."""
        ...


@dataclass(slots=True)
class Cte:
    """A query of WITH, bound once in the scope it was written in; it may read what is not known yet."""

    bound: Query | UnknownSchema

    @staticmethod
    def of(node: exp.Expr, binder: QueryBinder) -> Cte:
        try:
            return Cte(binder.query(node))
        except UnknownSchema as unknown:
            return Cte(unknown)

    def query(self) -> Query:
        if isinstance(self.bound, UnknownSchema):
            raise self.bound
        return self.bound


@dataclass(frozen=True, slots=True)
class QueryBinder:
    """Binds queries against a catalog. `ctes` are the WITH names in sight."""

    catalog: Catalog
    text: Text
    ctes: dict[str, Cte] = field(default_factory=dict)

    def query(self, node: exp.Expr, parent: Scope | None = None) -> Query:
        """Any query. Only a top-level query or a FROM item may be a stream.

        `parent` is the block around a sub-query in WHERE, whose columns it may use.
        """
        with_ = node.args.get("with_")
        binder = self if with_ is None else self._with(with_)
        return self.measured(binder._body(node, parent), node)

    def measured(self, bound: Query, node: exp.Expr) -> Query:
        """The query, if it is neither too deep nor too large to be planned."""
        extent = extent_of(bound)
        if extent.is_too_deep or extent.is_too_large:
            raise too_large(extent.is_too_large, node, self.text)
        return bound

    def _body(self, node: exp.Expr, parent: Scope | None) -> Query:
        match node:
            case nodes.Streamify():
                return self._streamify(node)
            case exp.Select():
                return self._select(node, parent)
            case exp.SetOperation():
                return bind_set_operation(node, parent, self)
            case exp.Subquery():
                return self.query(node.this, parent)
        raise AssertionError(f"no query: {type(node).__name__}")

    def relation(self, node: exp.Expr, parent: Scope | None = None) -> Query:
        """A query that must be a relation."""
        bound = self.query(node, parent)
        if isinstance(bound, Streamify):
            fault = f"{bound.kind.value} makes a stream, but a relation is needed here"
            raise self.text.error(fault, node, f"leave {bound.kind.value} out, or put a window on it in FROM")
        return bound

    def scalar(self, node: exp.Expr, scope: Scope) -> Query:
        """A query used as a value: it must have exactly one row at every instant."""
        bound = self.relation(node, scope.closed("a query used as a value"))
        if not isinstance(bound, Select) or bound.group_by != () or bound.having is not None:
            raise self.text.error(
                "a query used as a value must always have exactly one row",
                node,
                "an aggregate without GROUP BY does, such as (SELECT MAX(a) FROM s [NOW]); else join in FROM",
            )
        return bound

    def _with(self, node: exp.Expr) -> QueryBinder:
        """A query of WITH sees those before it, and what was in sight around.

        They are bound in their order, as one that reads the next would be bound by recursion otherwise.
        """
        binder = self
        names: set[str] = set()
        for cte in node.expressions:
            name = cte.alias.lower()
            if name in names:
                fault = f"{cte.alias!r} is defined twice in WITH"
                raise self.text.error(fault, cte.args["alias"], "give one of them another name")
            names.add(name)
            ctes = {**binder.ctes, name: Cte.of(cte.this, binder)}
            binder = QueryBinder(self.catalog, self.text, ctes)
        return binder

    def _streamify(self, node: nodes.Streamify) -> Streamify:
        kind = StreamKind(node.args["kind"])
        return Streamify(kind, self.relation(node.this), self._every(node), self._delay(node))

    def _every(self, node: exp.Expr) -> int | None:
        every = node.args.get("every")
        if every is None:
            return None
        return literals.duration(every, self.catalog.time, self.text, least=1)

    def _delay(self, node: nodes.Streamify) -> Delay | None:
        spec = node.args.get("delay")
        if spec is None:
            return None
        length = spec.args.get("this")
        if length is None:
            return Delay(None)
        remedy = "write <Now> for the next tick of the same time"
        return Delay(literals.duration(length, self.catalog.time, self.text, least=1, remedy=remedy))

    def _select(self, node: exp.Select, parent: Scope | None) -> Query:
        stream = node.expressions[0]
        if not isinstance(stream, nodes.StreamItems):
            return bind_block(node, list(node.expressions), parent, self)
        block = bind_block(node, list(stream.expressions), parent, self)
        return Streamify(StreamKind(stream.args["kind"]), block, self._every(stream))


def is_monotone_select(query: Query) -> bool:
    """Select and project over one unbounded stream: rows only ever enter, so it is as good as its ISTREAM."""
    if not isinstance(query, Select) or query.group_by is not None or query.distinct:
        return False
    if not isinstance(query.from_, Source) or not isinstance(query.from_.window, Unbounded):
        return False
    # What a sub-query says may change, and take rows back.
    parts = (*conjuncts(query.where), *query.items)
    return not any(isinstance(each, Exists | InQuery | ScalarQuery) for part in parts for each in walk(part))
