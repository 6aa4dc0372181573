"""Binding of set operations: types common to all sides, and chains as balanced trees.

A chain of UNION or INTERSECT may be thousands of queries long, and whoever plans and runs it works by
recursion. Both are associative, so a chain becomes a tree whose height is the logarithm of its length. The
columns get the types that they would get from left to right, in the same steps: a cast can lose a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.bind.expr.coerce import as_types, column_type
from kasen.cql.bind.expr.scope import Scope, UnknownSchema
from kasen.cql.bound import Query, Select, SetKind, SetOperation
from kasen.cql.expr import walk
from kasen.cql.text import Text
from kasen.types import NULL, VARCHAR, Field, Schema, Type, common_type

if TYPE_CHECKING:
    from kasen.cql.bind.query import QueryBinder


@dataclass(slots=True)
class _Side:
    """A query of the chain, and the operation that joins it to those before."""

    query: Query
    node: exp.Expr
    kind: SetKind = SetKind.UNION
    all: bool = True

    @property
    def operation(self) -> tuple[SetKind, bool]:
        return self.kind, self.all


def bind_set_operation(node: exp.SetOperation, parent: Scope | None, queries: QueryBinder) -> Query:
    """Both operands and what joins them, or all those of a chain."""
    sides = _sides(node, parent, queries)
    schemas = _schemas(sides, queries.text)
    while len(sides) > 1:
        count = _run(sides)
        made = queries.measured(_joined(sides[:count], schemas[:count]), sides[count - 1].node)
        sides = [_Side(made, sides[0].node), *sides[count:]]
        schemas = schemas[count - 1 :]
    return sides[0].query


def _sides(node: exp.SetOperation, parent: Scope | None, queries: QueryBinder) -> list[_Side]:
    """The chain from left to right; while the schemas of a loop are being found, some may be unknown."""
    chain: list[exp.SetOperation] = []
    first: exp.Expr = node
    while isinstance(first, exp.SetOperation):
        chain.append(first)
        first = first.this
    sides: list[_Side] = []
    operations: list[exp.SetOperation | None] = [None, *reversed(chain)]
    for operation in operations:
        operand = first if operation is None else operation.expression
        try:
            query = queries.relation(operand, parent)
        except UnknownSchema:
            continue
        if parent is not None and is_correlated(query):
            fault = "columns of the query around cannot be used in a set operation"
            raise queries.text.error(fault, operand, "write one EXISTS or IN for each side")
        if operation is None:
            sides.append(_Side(query, operand))
        else:
            kind = SetKind(type(operation).__name__.upper())
            sides.append(_Side(query, operand, kind, not operation.args["distinct"]))
    if not sides:
        raise UnknownSchema
    return sides


def _run(sides: list[_Side]) -> int:
    """How many sides from the left on are one operation.

    A UNION without ALL makes all rows before it distinct, so what joins those does not matter.
    """
    operation = sides[1].operation
    count = 2
    while count < len(sides) and sides[count].operation == operation:
        count += 1
    if operation[0] is SetKind.UNION:
        unions = next((i for i, side in enumerate(sides) if side.kind is not SetKind.UNION), len(sides))
        count = max([count, *(i + 1 for i in range(1, unions) if not sides[i].all)])
    return 2 if operation[0] is SetKind.EXCEPT else count


def _joined(sides: list[_Side], schemas: list[Schema]) -> Query:
    """The sides as one operation: the last one's, which all of them are, or before which it makes no odds."""
    kind, all_ = sides[-1].operation
    widened = [i for i in range(1, len(schemas)) if schemas[i] is not schemas[i - 1]]
    level = [_cast(side.query, position, schemas, widened) for position, side in enumerate(sides)]
    schema = schemas[-1]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        joined: list[Query] = [SetOperation(schema, kind, all_, left, right) for left, right in pairs]
        level = joined + level[len(joined) * 2 :]
    return level[0]


def _cast(query: Query, position: int, schemas: list[Schema], widened: list[int]) -> Query:
    """The query with the types that its columns get step by step."""
    for step in (position, *widened):
        if step >= position:
            query = as_types(query, schemas[step])
    return query


def _schemas(sides: list[_Side], text: Text) -> list[Schema]:
    """For each side, the columns that it has together with those before it."""
    first = sides[0].query
    types = _types(first)
    found = [first.schema]
    for side in sides[1:]:
        word = side.kind.value
        if len(types) != len(side.query.schema):
            fault = f"{word} needs as many columns on both sides: {len(types)} and {len(side.query.schema)}"
            remedy = "select as many columns on the right as on the left"
            raise text.error(fault, side.node, remedy)
        given = _types(side.query)
        if given == types:
            found.append(found[-1])
            continue
        common = [common_type(one, other) for one, other in zip(types, given, strict=True)]
        if None in common:
            index = common.index(None)
            left, right = found[-1][index].type, side.query.schema[index].type
            fault = f"{word}: column {index + 1} is {left} on the left and {right} on the right"
            raise text.error(fault, side.node, "CAST one side to the other's type")
        types = [type_ or NULL for type_ in common]
        known = [VARCHAR if type_.is_null else type_ for type_ in types]
        found.append(Schema(tuple(map(Field, first.schema.names, known))))
    return found


def _types(query: Query) -> list[Type]:
    return [column_type(query, index) for index in range(len(query.schema))]


def is_correlated(query: Query) -> bool:
    """Whether a query uses columns of the block around it: its WHERE is the only place where it may."""
    if isinstance(query, SetOperation):
        return is_correlated(query.left) or is_correlated(query.right)
    if not isinstance(query, Select) or query.where is None:
        return False
    return any(getattr(part, "outer", 0) for part in walk(query.where))
