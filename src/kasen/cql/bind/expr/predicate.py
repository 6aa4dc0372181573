"""Binding of WHERE: a conjunction whose parts may be IN (query), EXISTS, or comparisons with ALL and ANY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.bind.expr.call import call
from kasen.cql.bind.expr.coerce import as_types, cast, column_type, with_items
from kasen.cql.bind.expr.expression import BINARY, ExprBinder
from kasen.cql.bind.expr.scope import Item, Scope
from kasen.cql.bound import Query, Select, Source
from kasen.cql.expr import (
    Call,
    Column,
    Exists,
    Expr,
    InQuery,
    ScalarQuery,
    WindowBound,
    conjunction,
    map_children,
    walk,
)
from kasen.types import BOOLEAN, Field, Schema, common_type

if TYPE_CHECKING:
    from kasen.cql.bind.query import QueryBinder


def bind_where(node: exp.Expr | None, scope: Scope, queries: QueryBinder) -> Expr | None:
    """The condition of a WHERE clause (None if there is none)."""
    if node is None:
        return None
    parts: list[Expr] = []
    for part in _conjuncts(node.this):
        bound = _Conjunct(part, scope, queries).bind()
        parts.extend(bound.args if isinstance(bound, Call) and bound.op == "and" else (bound,))
    return conjunction(tuple(parts))


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts of an AND chain, in order, without recursion (chains can be long)."""
    parts: list[exp.Expr] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, exp.And):
            stack += [current.expression, current.this]
        elif isinstance(current, exp.Paren) and isinstance(current.this, exp.And):
            stack.append(current.this)
        else:
            parts.append(current)
    return parts


class _Conjunct:
    """One part of the conjunction."""

    def __init__(self, node: exp.Expr, scope: Scope, queries: QueryBinder) -> None:
        self.node = node
        self.scope = scope
        self.queries = queries
        self.binder = ExprBinder(scope, subquery=queries.scalar, place="in WHERE", allow_outer=True)

    def bind(self) -> Expr:
        node, negated = _strip_not(self.node)
        if isinstance(node, exp.Exists):
            bound: Expr = Exists(BOOLEAN, _as_set(self.queries.relation(node.this, self.scope)))
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            bound = self._in_query(node)
        elif isinstance(node, exp.Binary) and isinstance(node.expression, exp.All | exp.Any):
            return self._quantified(node, negated)
        else:
            bound, negated = self.binder.condition(self.node), False
        if _uses_outer(bound) and any(isinstance(part, InQuery | ScalarQuery) for part in walk(bound)):
            fault = "a column of the query around cannot stand in one condition with a further query"
            raise self.binder.error(fault, self.node, "join the two in FROM instead")
        return Call(BOOLEAN, "not", (bound,)) if negated else bound

    def _in_query(self, node: exp.In) -> Expr:
        query = _as_set(self.queries.relation(node.args["query"], self.scope))
        values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        args = [ExprBinder(self.scope, place="before IN", allow_outer=True).bind(value) for value in values]
        if len(args) != len(query.schema):
            fault = f"IN compares {_many(len(args), 'value')} with {_many(len(query.schema), 'column')}"
            raise self.binder.error(fault, node, "select as many columns as stand before IN")
        common = []
        for index, (arg, field) in enumerate(zip(args, query.schema, strict=True)):
            type_ = common_type(arg.type, column_type(query, index))
            if type_ is None:
                fault = f"IN compares {arg.type} with {field.type}"
                raise self.binder.error(fault, node, "CAST one side to the other's type")
            common.append(Field(field.name, field.type if type_.is_null else type_))
        typed = tuple(cast(arg, field.type) for arg, field in zip(args, common, strict=True))
        return InQuery(BOOLEAN, typed, as_types(query, Schema(tuple(common))))

    def _quantified(self, node: exp.Expr, negated: bool) -> Expr:
        """x < ALL (q): no row of q makes it false or unknown. x < ANY (q): some row makes it true."""
        error = self.binder.error
        quantifier = node.expression
        word = "ALL" if isinstance(quantifier, exp.All) else "ANY"
        if negated:
            remedy = f"turn the comparison around: NOT a < {word} (q) is a >= {_OTHER[word]} (q)"
            raise error(f"NOT cannot stand before a comparison with {word}", node, remedy)
        query = self.queries.relation(quantifier.this)
        if len(query.schema) != 1:
            fault = f"a query after {word} must have one column, this has {len(query.schema)}"
            raise error(fault, quantifier, "select the column to compare with")
        value = ExprBinder(self.scope, place=f"before {word}").bind(node.this)
        if any(isinstance(part, WindowBound) for part in walk(value)):
            fault = f"the bounds of a window cannot be compared with {word}"
            raise error(fault, node, "select them in a sub-query in FROM first")
        if column_type(query, 0).is_null and not value.type.is_null:
            query = as_types(query, Schema((Field(query.schema[0].name, value.type),)))
        source = Source("_each", query, None, query.schema)
        inside = ExprBinder(
            Scope(self.scope.text, self.scope.time, [Item(source)], self.scope, user=self.scope.user)
        )
        row = Column(query.schema[0].type, 0, 0, query.schema[0].name)
        test = call(inside, BINARY[type(node)], (_further_out(value), row), node)
        if isinstance(quantifier, exp.Any):
            return Exists(BOOLEAN, _rows_where(source, test))
        unknown = Call(BOOLEAN, "is_null", (test,))
        failing = Call(BOOLEAN, "or", (Call(BOOLEAN, "not", (test,)), unknown))
        return Call(BOOLEAN, "not", (Exists(BOOLEAN, _rows_where(source, failing)),))


_OTHER = {"ALL": "ANY", "ANY": "ALL"}


def _strip_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _as_set(query: Query) -> Query:
    """For membership, rows met twice are as good as rows met once."""
    if isinstance(query, Select) and query.distinct:
        return with_items(query, query.schema, query.items, distinct=False)
    return query


def _rows_where(source: Source, where: Expr) -> Select:
    column = Column(source.schema[0].type, 0, 0, source.schema[0].name)
    return Select(source.schema, source, where, None, (), None, (column,), False)


def _uses_outer(expr: Expr) -> bool:
    return any(isinstance(part, Column) and part.outer for part in walk(expr))


def _further_out(expr: Expr) -> Expr:
    """The expression as seen from a block inside."""
    if isinstance(expr, Column):
        return Column(expr.type, expr.source, expr.index, expr.name, expr.outer + 1)
    return map_children(expr, _further_out)
