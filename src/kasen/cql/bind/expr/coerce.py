"""Coercions: every change of type is an explicit Cast, or a constant converted now."""

from __future__ import annotations

from kasen.cql.bound import Query, Select, SetOperation, Source
from kasen.cql.expr import Cast, Column, Expr, Literal
from kasen.types import BIGINT, DOUBLE, NULL, VARCHAR, Kind, Schema, Type


def cast(arg: Expr, wanted: Type) -> Expr:
    """The argument as `wanted`; constants that fit exactly are converted now."""
    if arg.type == wanted:
        return arg
    if isinstance(arg, Literal):
        if arg.value is None:
            return Literal(wanted, None)
        if arg.type.is_integer and wanted == BIGINT:
            return Literal(wanted, arg.value)
        if arg.type.is_numeric and wanted == DOUBLE and not isinstance(arg.value, str):
            return Literal(wanted, float(arg.value))
    return Cast(wanted, arg)


def castable(have: Type, want: Type) -> bool:
    """Whether CAST is defined; a value that does not fit becomes NULL."""
    if have == want or have.is_null:
        return True
    if Kind.INTERVAL in (have.kind, want.kind):
        return False
    if want == VARCHAR:
        return have != DOUBLE
    if have == VARCHAR or (have.is_numeric and want.is_numeric):
        return True
    return {have.kind, want.kind} <= {Kind.BOOLEAN, Kind.INTEGER, Kind.BIGINT}


def column_type(query: Query, index: int) -> Type:
    """The type of a column; NULL for one of nothing but NULL, which fits any type."""
    return NULL if _is_null_column(query, index) else query.schema[index].type


def _is_null_column(query: Query, index: int) -> bool:
    if isinstance(query, SetOperation):
        return _is_null_column(query.left, index) and _is_null_column(query.right, index)
    if not isinstance(query, Select):
        return False
    item = query.items[index]
    return isinstance(item, Literal) and item.value is None


def as_types(query: Query, schema: Schema) -> Query:
    """The query with its columns cast to `schema`'s types."""
    if query.schema.types == schema.types:
        return query
    if isinstance(query, Select) and not query.distinct:
        return with_items(query, schema, _cast_all(query.items, schema))
    # DISTINCT and set operations compare before the cast.
    source = Source("", query, None, query.schema)
    columns = tuple(Column(field.type, 0, index, field.name) for index, field in enumerate(query.schema))
    return Select(schema, source, None, None, (), None, _cast_all(columns, schema), False)


def _cast_all(items: tuple[Expr, ...], schema: Schema) -> tuple[Expr, ...]:
    return tuple(cast(item, field.type) for item, field in zip(items, schema, strict=True))


def with_items(
    block: Select, schema: Schema, items: tuple[Expr, ...], distinct: bool | None = None
) -> Select:
    """The block with another SELECT list."""
    return Select(
        schema,
        block.from_,
        block.where,
        block.group_by,
        block.aggregates,
        block.having,
        items,
        block.distinct if distinct is None else distinct,
        block.hint,
    )
