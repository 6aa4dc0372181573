"""What must hold for every node of a plan, before and after every rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kasen.cql.bound import PartitionRows, Window
from kasen.cql.expr import (
    Aggregate,
    AggregateValue,
    Column,
    Exists,
    Expr,
    GroupKey,
    InQuery,
    ScalarQuery,
    WindowBound,
    walk,
)
from kasen.plan import logical
from kasen.plan.logical import Node
from kasen.types import BOOLEAN, Schema, Type

#: What only bound queries have: a plan reads columns of its inputs and nothing else.
_UNBUILT = (GroupKey, AggregateValue, WindowBound, InQuery, Exists, ScalarQuery)


def check(plan: Node) -> None:
    """AssertionError if a node does not fit its inputs."""
    for node in logical.walk(plan):
        _check(node)


def _check(node: Node) -> None:
    match node:
        case logical.WindowNode(child=child, window=window):
            assert node.schema == child.schema
            assert child.is_stream, "a window stands on a stream"
            _window(window, child.schema)
        case logical.Filter(child=child, condition=condition):
            assert node.schema == child.schema
            _condition(condition, child.schema)
        case logical.Project(child=child, items=items):
            _exprs(items, child.schema)
            assert node.schema.types == tuple(item.type for item in items)
        case logical.InnerJoin(inputs=inputs):
            _relations(inputs)
            _inner(node)
        case logical.WindowJoin(inputs=inputs, windows=windows):
            for child, window in zip(inputs, windows, strict=True):
                assert child.is_stream
                _window(window, child.schema)
            _inner(node)
        case logical.OuterJoin(left=left, right=right):
            _relations((left, right))
            assert node.schema == _beside(left, right)
            _pairs(node)
        case logical.SemiJoin(left=left, right=right):
            _relations((left, right))
            assert node.schema == left.schema
            _pairs(node)
        case logical.Aggregate(child=child, keys=keys, aggregates=calls):
            _relations((child,))
            _grouped(node, child.schema, keys, calls)
        case logical.WindowAggregate(child=child, keys=keys, aggregates=calls, condition=condition):
            assert child.is_stream
            _window(node.window, child.schema)
            _grouped(node, child.schema, keys, calls)
            _condition(condition, child.schema)
        case logical.Distinct(child=child):
            _relations((child,))
            assert node.schema == child.schema
        case logical.SetOp(left=left, right=right):
            _relations((left, right))
            assert node.schema.types == left.schema.types == right.schema.types
        case logical.Streamify(child=child, leaves=leaves):
            _relations((child,))
            assert node.schema == child.schema
            assert all(isinstance(leaf, logical.WindowActivity) for leaf in leaves)
        case logical.Delay(child=child):
            assert child.is_stream
            assert node.schema == child.schema
        case logical.WindowActivity(child=child, window=window):
            assert child.is_stream == (window is not None)
            assert not node.schema.fields
        case logical.WindowReports(child=child):
            assert child.is_stream
            assert node.schema.names == ("window_start", "window_end")
        case _:
            assert isinstance(node, logical.Scan | logical.Ref)


def _relations(nodes: Iterable[Node]) -> None:
    for node in nodes:
        assert not node.is_stream, "a stream needs a window to be a relation"


def _beside(*nodes: Node) -> Schema:
    return Schema(tuple(field for node in nodes for field in node.schema))


def _exprs(exprs: Iterable[Expr], schema: Schema) -> None:
    for expr in exprs:
        for part in walk(expr):
            assert not isinstance(part, _UNBUILT), f"{type(part).__name__} in a plan"
            if isinstance(part, Column):
                assert (part.source, part.outer) == (0, 0), f"{part.name} is a column of another block"
                assert part.index < len(schema), f"{part.name} is column {part.index} of {schema}"
                assert part.type == schema[part.index].type


def _condition(condition: Expr | None, schema: Schema) -> None:
    if condition is not None:
        assert condition.type == BOOLEAN
        _exprs([condition], schema)


def _window(window: Window, schema: Schema) -> None:
    if isinstance(window, PartitionRows):
        assert all(key < len(schema) for key in window.keys)


def _inner(node: logical.InnerJoin | logical.WindowJoin) -> None:
    assert len(node.inputs) >= 2
    assert node.schema == _beside(*node.inputs)
    _condition(node.residual, node.schema)
    for each in node.classes:
        places = [position for position, _ in each]
        assert places == sorted(set(places)), "one key an input, in order"
        assert len(places) >= 2
        assert len({key.type for _, key in each}) == 1
        for position, key in each:
            _exprs([key], node.inputs[position].schema)


def _pairs(node: logical.OuterJoin | logical.SemiJoin) -> None:
    _condition(node.residual, _beside(node.left, node.right))
    for left, right in node.keys:
        assert left.type == right.type
        _exprs([left], node.left.schema)
        _exprs([right], node.right.schema)


def _grouped(node: Node, schema: Schema, keys: Sequence[Expr], calls: Sequence[Aggregate]) -> None:
    _exprs([*keys, *(arg for call in calls for arg in call.args)], schema)
    found: list[Type] = [field.type for field in node.schema]
    assert found == [*(key.type for key in keys), *(call.type for call in calls)]
