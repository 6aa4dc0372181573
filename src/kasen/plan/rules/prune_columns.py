"""Drops columns that nobody reads, as early as possible: windows hold narrower rows.

A stream from outside is narrowed below its window. A derived stream is narrowed above it, because
within an instant its tuples are ordered by their whole value.
"""

from __future__ import annotations

from dataclasses import replace

from kasen.cql.bound import PartitionRows
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Column, Expr
from kasen.plan.exprs import columns_used, remap
from kasen.plan.logical import (
    Aggregate,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Project,
    Ref,
    Scan,
    SemiJoin,
    WindowActivity,
    WindowNode,
    WindowReports,
    walk,
)
from kasen.types import Schema

Places = dict[int, int]


def prune_columns(plan: Node) -> Node:
    node, places = _prune(plan, set(range(len(plan.schema))))
    assert places == {index: index for index in range(len(plan.schema))}
    return node


def _prune(node: Node, needed: set[int]) -> tuple[Node, Places]:
    """The node with (at least) the needed columns, and where each of them is now."""
    match node:
        case Project():
            return _project(node, needed)
        case Filter():
            child, places = _prune(node.child, needed | columns_used(node.condition))
            return Filter(child.schema, child, remap(node.condition, places)), places
        case WindowNode():
            return _window(node, needed)
        case InnerJoin():
            return _inner(node, needed)
        case OuterJoin() | SemiJoin():
            return _binary(node, needed)
        case Aggregate():
            return _aggregate(node)
        case WindowActivity() | WindowReports():
            # Only the instants of their input matter.
            return node.with_children((_narrow(node.child, set())[0],)), _all(node)
    children = tuple(_prune(child, set(range(len(child.schema))))[0] for child in node.children)
    return (node.with_children(children) if children else node), _all(node)


def _all(node: Node) -> Places:
    return {index: index for index in range(len(node.schema))}


def _project(node: Project, needed: set[int]) -> tuple[Node, Places]:
    kept = sorted(needed)
    items = [node.items[index] for index in kept]
    below = {index for item in items for index in columns_used(item)}
    child, places = _prune(node.child, below)
    schema = Schema(tuple(node.schema[index] for index in kept))
    moved = tuple(remap(item, places) for item in items)
    return Project(schema, child, moved), {index: place for place, index in enumerate(kept)}


def _narrow(node: Node, needed: set[int]) -> tuple[Node, Places]:
    """A projection of the needed columns, if that drops any."""
    kept = sorted(needed)
    if len(kept) == len(node.schema):
        return node, {index: index for index in kept}
    schema = Schema(tuple(node.schema[index] for index in kept))
    items = tuple(Column(node.schema[index].type, 0, index, node.schema[index].name) for index in kept)
    return Project(schema, node, items), {index: place for place, index in enumerate(kept)}


def _window(node: WindowNode, needed: set[int]) -> tuple[Node, Places]:
    width = len(node.child.schema)
    derived = any(isinstance(part, Ref) or not isinstance(part, Scan | Filter) for part in walk(node.child))
    if derived:
        child, _ = _prune(node.child, set(range(width)))
        return _narrow(node.with_children((child,)), needed)
    keys = set(node.window.keys) if isinstance(node.window, PartitionRows) else set()
    below, places = _narrow(node.child, needed | keys)
    window = node.window
    if isinstance(window, PartitionRows):
        window = PartitionRows(tuple(places[key] for key in window.keys), window.count)
    return WindowNode(below.schema, below, window), places


def _inner(node: InnerJoin, needed: set[int]) -> tuple[Node, Places]:
    wanted = set(needed) | (columns_used(node.residual) if node.residual is not None else set())
    inputs: list[Node] = []
    places: Places = {}
    keys: list[Places] = []
    old = new = 0
    for position, child in enumerate(node.inputs):
        own = {index - old for index in wanted if old <= index < old + len(child.schema)}
        own |= {i for each in node.classes for at, key in each if at == position for i in columns_used(key)}
        pruned, moved = _prune(child, own)
        inputs.append(pruned)
        keys.append(moved)
        places |= {old + index: new + place for index, place in moved.items()}
        old += len(child.schema)
        new += len(pruned.schema)
    classes = tuple(tuple((at, remap(key, keys[at])) for at, key in each) for each in node.classes)
    residual = remap(node.residual, places) if node.residual is not None else None
    schema = Schema(tuple(field for child in inputs for field in child.schema))
    return InnerJoin(schema, tuple(inputs), classes, residual, node.hint), places


def _binary(node: OuterJoin | SemiJoin, needed: set[int]) -> tuple[Node, Places]:
    width = len(node.left.schema)
    wanted = set(needed) | (columns_used(node.residual) if node.residual is not None else set())
    left_need = {index for index in wanted if index < width}
    right_need = {index - width for index in wanted if index >= width}
    for left_key, right_key in node.keys:
        left_need |= columns_used(left_key)
        right_need |= columns_used(right_key)
    left, left_places = _prune(node.left, left_need)
    right, right_places = _prune(node.right, right_need)
    both = left_places | {width + i: len(left.schema) + place for i, place in right_places.items()}
    keys = tuple((remap(a, left_places), remap(b, right_places)) for a, b in node.keys)
    residual = remap(node.residual, both) if node.residual is not None else None
    if isinstance(node, SemiJoin):
        return SemiJoin(left.schema, left, right, node.kind, keys, residual), left_places
    schema = Schema((*left.schema.fields, *right.schema.fields))
    return OuterJoin(schema, left, right, node.kind, keys, residual), both


def _aggregate(node: Aggregate) -> tuple[Node, Places]:
    exprs: list[Expr] = [*node.keys, *(arg for call in node.aggregates for arg in call.args)]
    child, places = _prune(node.child, {index for each in exprs for index in columns_used(each)})
    keys = tuple(remap(key, places) for key in node.keys)
    calls = tuple(_remap_call(call, places) for call in node.aggregates)
    return Aggregate(node.schema, child, keys, calls), _all(node)


def _remap_call(call: AggregateCall, places: Places) -> AggregateCall:
    args = tuple(remap(arg, places) for arg in call.args)
    return replace(call, args=args)
