"""Binding of aggregates that users write in Python (kasen.aggregates)."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from kasen.aggregates import UserAggregate
from kasen.cql.bind.expr.aggregates import AGGREGATE_NAMES, unwrap_distinct
from kasen.cql.bind.expr.coerce import cast
from kasen.cql.bind.expr.scope import Scope
from kasen.cql.expr import Aggregate
from kasen.cql.functions import SCALARS
from kasen.cql.parse.cursor import Cursor
from kasen.cql.parse.literals import cql_type
from kasen.cql.parse.tokenizer import tokenize
from kasen.cql.parse.type_name import data_type
from kasen.cql.parse.words import RESERVED
from kasen.cql.text import Text
from kasen.errors import QueryError
from kasen.types import Type, common_type


def by_name(aggregates: Iterable[UserAggregate]) -> dict[str, UserAggregate]:
    """The user's aggregates, checked: their names are free and their types are types."""
    found: dict[str, UserAggregate] = {}
    for one in aggregates:
        if one.name in AGGREGATE_NAMES or one.name in SCALARS or one.name.upper() in RESERVED:
            raise QueryError(f"{one.name.upper()} is CQL's own", remedy="give the aggregate another name")
        if found.setdefault(one.name, one) != one:
            raise QueryError(f"there are two aggregates called {one.name}", remedy="rename one of them")
        for text in (*one.arguments, one.returns):
            _type(one, text)
    return found


def bind_user(user: UserAggregate, args: list[exp.Expr], node: exp.Expr, scope: Scope) -> Aggregate:
    """A call of the user's aggregate: as many arguments as it has, of types that widen to its own."""
    from kasen.cql.bind.expr.expression import (
        ExprBinder,  # expressions hold aggregates, aggregates hold expressions
    )

    binder = ExprBinder(scope, place="inside another aggregate")
    name = user.name.upper()
    usage = f"its arguments are {name}({', '.join(user.arguments)})"
    args, distinct = unwrap_distinct(args)
    if distinct:
        remedy = "aggregate a sub-query with SELECT DISTINCT"
        raise scope.text.error(f"{name} does not take DISTINCT", node, remedy)
    if len(args) != len(user.arguments):
        raise scope.text.error(f"{name} has the wrong number of arguments, {len(args)}", node, usage)
    bound = []
    for arg, text in zip(args, user.arguments, strict=True):
        value, wanted = binder.bind(arg), _type(user, text)
        if common_type(value.type, wanted) != wanted:
            raise scope.text.error(f"{name} does not take {value.type} here", arg, f"{usage}: CAST to that")
        bound.append(cast(value, wanted))
    return Aggregate(user.name, tuple(bound), False, _type(user, user.returns), user=user)


def _type(aggregate: UserAggregate, written: str) -> Type:
    text = Text(written)
    try:
        cursor = Cursor(text, tokenize(text))
        found = cql_type(data_type(cursor, "a type"), text)
    except QueryError as error:
        fault = f"aggregate {aggregate.name}: {written!r} is no type"
        raise QueryError(fault, remedy=error.remedy) from None
    if not cursor.at_end:
        raise QueryError(f"aggregate {aggregate.name}: {written!r} is more than a type")
    return found
