"""Binding of WHERE: a conjunction whose parts may be IN (query), EXISTS, or comparisons with ALL and ANY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.bind_expr import ExprBinder, cast
from kasen.cql.bound import Select, Source
from kasen.cql.expr import Call, Case, Cast, Column, Exists, Expr, InQuery, Literal, WindowBound, conjunction
from kasen.cql.scope import Item, Scope
from kasen.types import BOOLEAN, Field, Schema, common_type

if TYPE_CHECKING:
    from kasen.cql.bind_query import QueryBinder


def bind_where(node: exp.Expr | None, scope: Scope, queries: QueryBinder) -> Expr | None:
    """The condition of a WHERE clause (None if there is none)."""
    if node is None:
        return None
    parts: list[Expr] = []
    for part in _conjuncts(node.this):
        bound = _conjunct(part, scope, queries)
        flat = isinstance(bound, Call) and bound.op == "and"
        parts.extend(bound.args if flat and isinstance(bound, Call) else (bound,))
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


def _conjunct(node: exp.Expr, scope: Scope, queries: QueryBinder) -> Expr:
    inner, negated = _strip_not(node)
    bound: Expr | None = None
    if isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Expr):
        bound = Exists(BOOLEAN, queries.relation(inner.this, scope))
    elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
        bound = _in_query(inner, scope, queries)
    elif isinstance(inner, exp.Binary) and isinstance(inner.expression, exp.All | exp.Any):
        return _quantified(inner, negated, scope, queries)
    if bound is None:
        return ExprBinder(scope, subquery=queries._scalar, place="in WHERE").condition(node)
    return Call(BOOLEAN, "not", (bound,)) if negated else bound


def _strip_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


def _in_query(node: exp.In, scope: Scope, queries: QueryBinder) -> Expr:
    query_node = node.args["query"]
    query_node = query_node.this if isinstance(query_node, exp.Subquery) else query_node
    query = queries.relation(query_node, scope)
    values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    binder = ExprBinder(scope, place="in WHERE")
    args = [binder.bind(value) for value in values]
    if len(args) != len(query.schema):
        fault = f"IN compares {len(args)} values with {len(query.schema)} columns"
        raise scope.text.error(fault, node, "select as many columns as stand before IN")
    common = []
    for arg, field_ in zip(args, query.schema, strict=True):
        type_ = common_type(arg.type, field_.type)
        if type_ is None:
            fault = f"IN compares {arg.type} with {field_.type}"
            raise scope.text.error(fault, node, "CAST one side")
        common.append(Field(field_.name, type_))
    from kasen.cql.bind_query import _as_types

    typed = tuple(cast(arg, field_.type) for arg, field_ in zip(args, common, strict=True))
    return InQuery(BOOLEAN, typed, _as_types(query, Schema(tuple(common))))


def _quantified(node: exp.Expr, negated: bool, scope: Scope, queries: QueryBinder) -> Expr:
    """x < ALL (q): no row of q makes it false or unknown. x < ANY (q): some row makes it true."""
    if negated:
        fault = "NOT cannot stand before a comparison with ALL or ANY"
        raise scope.text.error(fault, node, "turn the comparison around: NOT a < ALL (q) is a >= ANY (q)")
    quantifier = node.expression
    query = queries.relation(_query_of(quantifier, scope), None)
    if len(query.schema) != 1:
        raise scope.text.error("a query after ALL or ANY must have one column", node)
    source = Source("_each", query, None, query.schema)
    inside = Scope(scope.text, scope.time, [Item(source)], scope)
    value = _further_out(ExprBinder(scope, place="in WHERE").bind(node.this))
    row = Column(query.schema[0].type, 0, 0, query.schema[0].name)
    binder = ExprBinder(inside)
    test = binder.call(_comparison(node, scope), (value, row), node)
    if isinstance(quantifier, exp.Any):
        return Exists(BOOLEAN, _rows_where(source, test))
    unknown = Call(BOOLEAN, "is_null", (test,))
    failing = Call(BOOLEAN, "or", (Call(BOOLEAN, "not", (test,)), unknown))
    return Call(BOOLEAN, "not", (Exists(BOOLEAN, _rows_where(source, failing)),))


def _query_of(quantifier: exp.Expr, scope: Scope) -> exp.Expr:
    query = quantifier.this
    while isinstance(query, exp.Paren | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Query):
        raise scope.text.error("ALL and ANY need a query in parentheses", quantifier)
    return query


def _comparison(node: exp.Expr, scope: Scope) -> str:
    from kasen.cql.bind_expr import _BINARY

    op = _BINARY.get(type(node), "")
    if op not in ("=", "<>", "<", "<=", ">", ">="):
        raise scope.text.error("ALL and ANY need a comparison", node, "such as a >= ALL (SELECT ...)")
    return op


def _rows_where(source: Source, where: Expr) -> Select:
    column = Column(source.schema[0].type, 0, 0, source.schema[0].name)
    return Select(source.schema, source, where, None, (), None, (column,), False)


def _further_out(expr: Expr) -> Expr:
    """The expression as seen from a block inside."""
    match expr:
        case Column(type_, source, index, name, outer):
            return Column(type_, source, index, name, outer + 1)
        case Call(type_, op, args):
            return Call(type_, op, tuple(_further_out(arg) for arg in args))
        case Cast(type_, arg):
            return Cast(type_, _further_out(arg))
        case Case(type_, branches, otherwise):
            moved = tuple((_further_out(test), _further_out(value)) for test, value in branches)
            return Case(type_, moved, _further_out(otherwise))
        case Literal() | WindowBound():
            return expr
    return expr
