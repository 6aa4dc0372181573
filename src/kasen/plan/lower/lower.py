"""From rewritten plans to plans that operators can run: keys are plain columns, joins have their method.

The rewrites say what is worth doing; this says how it is done with the operators there are. Every
computed key becomes a projected column, an N-way join one operator or a chain of two-way joins (see
lower_joins), an outer join an inner join beside the padded rows that found no partner.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kasen.cql.bound import JoinKind, PartitionRows, SetKind, Slide
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Call, Column, Expr, conjunction, conjuncts
from kasen.plan import logical
from kasen.plan.exprs import rebuild, remap, shift, substitute
from kasen.plan.logical import Node, SemiKind
from kasen.plan.lower.joins import chain, lower_join, named, pick_columns, restore, with_columns
from kasen.plan.physical_nodes import MultiJoin, Pad, SlidingAggregate
from kasen.types import BOOLEAN, Field, Schema


def lower(plan: Node, joins: str = "", *, shards: bool = False) -> Node:
    """The plan with every node in the form that `instantiate` knows. `joins` overrules the hints.

    With `shards`, it is to be cut into what shards do.
    """
    return logical.transform(plan, partial(_lower, joins, shards), renames=True)


def _lower(joins: str, shards: bool, node: Node) -> Node:
    match node:
        case logical.Project() if _is_identity(node):
            return node.child
        case logical.Project(child=MultiJoin() as join):
            return pick_columns(node, join)
        case logical.WindowAggregate():
            return _window_aggregate(node)
        case logical.Aggregate():
            return _aggregate(node.schema, node.child, node.keys, node.aggregates)
        case logical.WindowJoin() | logical.InnerJoin():
            return lower_join(node, joins, shards=shards)
        case logical.OuterJoin():
            return _outer(node)
        case logical.SemiJoin():
            return _semi(node)
    return node


def _is_identity(node: Node) -> bool:
    """Whether a projection leaves rows as they are; names do not matter any more."""
    if not isinstance(node, logical.Project) or len(node.items) != len(node.child.schema):
        return False
    return all(isinstance(item, Column) and item.index == index for index, item in enumerate(node.items))


def is_net(node: Node) -> bool:
    """Whether equal rows surely never enter and leave in one instant, nor enter several times."""
    match node:
        case logical.Aggregate() | SlidingAggregate():
            return True
        case logical.Filter():
            return is_net(node.child)
        case logical.Project():
            kept = {item.index for item in node.items if isinstance(item, Column)}
            return len(kept) == len(node.child.schema) and is_net(node.child)
    return False


def leaves_in_order(node: Node, keys: set[int]) -> bool:
    """Whether rows with equal values in the columns `keys` leave in the order in which they entered."""
    match node:
        case logical.WindowNode(window=PartitionRows(keys=partition)):
            # Each partition lets go in order, but partitions know nothing of one another.
            return set(partition) <= keys
        case logical.WindowNode():
            return True
        case logical.Filter():
            return leaves_in_order(node.child, keys)
        case logical.Project():
            plain = (node.items[key] for key in keys)
            return leaves_in_order(node.child, {item.index for item in plain if isinstance(item, Column)})
    return False


# ---------------------------------------------------------------- aggregates


# Partials of these can be merged, and of what users define. DISTINCT and percentiles need the values
# themselves.
_MERGEABLE = frozenset(
    {"count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop"}
)


def _window_aggregate(node: logical.WindowAggregate) -> Node:
    child: Node = node.child
    if isinstance(node.window, Slide) and all(map(_is_mergeable, node.aggregates)):
        return _sliding_aggregate(node, node.window)
    if node.condition is None and not isinstance(node.window, PartitionRows):
        # The queue holds only what the aggregate reads; but a partition is known by columns of the stream.
        inner, keys, calls = _arguments(child, node.keys, node.aggregates)
        windowed = logical.WindowNode(inner.schema, inner, node.window)
        return logical.Aggregate(node.schema, windowed, keys, calls)
    child = logical.WindowNode(child.schema, child, node.window)
    if node.condition is not None:
        child = logical.Filter(child.schema, child, node.condition)
    return _aggregate(node.schema, child, node.keys, node.aggregates)


def _is_mergeable(call: AggregateCall) -> bool:
    return call.user is not None or (call.function in _MERGEABLE and not call.distinct)


def _sliding_aggregate(node: logical.WindowAggregate, window: Slide) -> Node:
    child = node.child
    if node.condition is not None:
        # Whether a tuple counts does not depend on the window it is in.
        child = logical.Filter(child.schema, child, node.condition)
    inner, keys, calls = _arguments(child, node.keys, node.aggregates)
    return SlidingAggregate(node.schema, inner, window, len(keys), calls)


def _aggregate(schema: Schema, child: Node, keys: tuple[Expr, ...], calls: tuple[AggregateCall, ...]) -> Node:
    inner, keys, calls = _arguments(child, keys, calls)
    return logical.Aggregate(schema, inner, keys, calls)


def _arguments(
    child: Node, keys: tuple[Expr, ...], calls: tuple[AggregateCall, ...]
) -> tuple[Node, tuple[Expr, ...], tuple[AggregateCall, ...]]:
    """A projection of the keys, then of each different argument; and keys and calls over it."""
    if isinstance(child, logical.Project) and all(isinstance(item, Column) for item in child.items):
        items = child.items
        keys = tuple(substitute(key, items) for key in keys)
        calls = tuple(
            replace(call, args=tuple(substitute(arg, items) for arg in call.args)) for call in calls
        )
        return _arguments(child.child, keys, calls)
    args = tuple(dict.fromkeys(arg for call in calls for arg in call.args))
    items = (*keys, *args)
    schema = Schema(tuple(Field(f"a{index}", item.type) for index, item in enumerate(items)))
    project: Node = logical.Project(schema, child, items)
    project = child if _is_identity(project) else project
    places = {arg: len(keys) + index for index, arg in enumerate(args)}
    moved = tuple(replace(call, args=tuple(named(arg, places[arg]) for arg in call.args)) for call in calls)
    return project, tuple(named(key, index) for index, key in enumerate(keys)), moved


# ---------------------------------------------------------------- joins


def _outer(node: logical.OuterJoin) -> Node:
    """Inner pairs, beside the rows of the outer sides that found none, padded with NULLs."""
    left_width, right_width = len(node.left.schema), len(node.right.schema)
    classes = tuple(((0, left), (1, right)) for left, right in node.keys)
    parts: list[Node] = [
        chain(logical.InnerJoin(node.schema, (node.left, node.right), classes, node.residual))
    ]
    if node.kind in (JoinKind.LEFT, JoinKind.FULL):
        lonely = _semi(_anti(node.left, node.right, node.keys, node.residual))
        parts.append(Pad(node.schema, lonely, 0, right_width))
    if node.kind in (JoinKind.RIGHT, JoinKind.FULL):
        keys = tuple((right, left) for left, right in node.keys)
        lonely = _semi(_anti(node.right, node.left, keys, _swapped(node.residual, left_width, right_width)))
        parts.append(Pad(node.schema, lonely, left_width, 0))
    union = parts[0]
    for part in parts[1:]:
        union = logical.SetOp(node.schema, union, part, SetKind.UNION, True)
    return union


def _anti(
    left: Node, right: Node, keys: tuple[tuple[Expr, Expr], ...], residual: Expr | None
) -> logical.SemiJoin:
    return logical.SemiJoin(left.schema, left, right, SemiKind.ANTI, keys, residual)


def _swapped(residual: Expr | None, left: int, right: int) -> Expr | None:
    """A condition over (left, right) rows as one over (right, left) rows."""
    if residual is None:
        return None
    places = {i: right + i for i in range(left)} | {left + i: i for i in range(right)}
    return remap(residual, places)


def _semi(node: logical.SemiJoin) -> Node:
    if node.kind is SemiKind.NULL_AWARE_ANTI:
        if len(node.keys) == 1 and node.residual is None:
            return _not_in(node)
        return _semi(_null_aware(node))
    width = len(node.left.schema)
    left, left_places = with_columns(node.left, [key for key, _ in node.keys])
    right, right_places = with_columns(node.right, [key for _, key in node.keys])
    keys = tuple(
        (named(a, left_place), named(_of_query(b), right_place))
        for (a, b), left_place, right_place in zip(node.keys, left_places, right_places, strict=True)
    )
    residual = None if node.residual is None else _of_query(node.residual, width)
    if residual is not None and len(left.schema) > width:
        places = {i: i for i in range(width)}
        places |= {width + i: len(left.schema) + i for i in range(len(node.right.schema))}
        residual = remap(residual, places)
    semi = logical.SemiJoin(left.schema, left, right, node.kind, keys, residual)
    return restore(semi, node.schema, {i: i for i in range(width)})


def _of_query(expr: Expr, width: int = 0) -> Expr:
    """The columns from `width` on marked as the sub-query's, as both sides may call theirs the same."""

    def mark(part: Expr) -> Expr:
        if not isinstance(part, Column) or part.index < width or "." in part.name:
            return part
        return replace(part, name=f"query.{part.name}")

    return rebuild(expr, mark)


def _not_in(node: logical.SemiJoin) -> Node:
    """x NOT IN (query) by keys: no equal value, no NULL among them, and x not NULL unless there are none."""
    ((value, key),) = node.keys
    unequal = _semi(_anti(node.left, node.right, node.keys, None))
    is_null = Call(BOOLEAN, "is_null", (key,))
    nulls = logical.Filter(node.right.schema, node.right, is_null)
    certain = _semi(_anti(unequal, nulls, (), None))
    missing = Call(BOOLEAN, "is_null", (value,))
    known = logical.Filter(node.schema, certain, Call(BOOLEAN, "not", (missing,)))
    unknown = logical.Filter(node.schema, certain, missing)
    beside_none = _semi(_anti(unknown, node.right, (), None))
    return logical.SetOp(node.schema, known, beside_none, SetKind.UNION, True)


def _null_aware(node: logical.SemiJoin) -> logical.SemiJoin:
    """NOT IN: a right row stands in the way if it equals the left one, or if that cannot be told."""
    width = len(node.left.schema)
    pairs = ((left, shift(_of_query(right), width)) for left, right in node.keys)
    equal = conjunction(tuple(Call(BOOLEAN, "=", pair) for pair in pairs))
    assert equal is not None
    in_the_way = Call(BOOLEAN, "or", (equal, Call(BOOLEAN, "is_null", (equal,))))
    residual = conjunction((*conjuncts(node.residual), in_the_way))
    return logical.SemiJoin(node.schema, node.left, node.right, SemiKind.ANTI, (), residual)
