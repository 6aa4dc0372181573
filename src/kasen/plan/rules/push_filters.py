"""Moves filters towards the sources: less to remember, less to join.

Never below a row window: it counts tuples before they are filtered. RSTREAM and window_end() depend on
tuples that a filter drops, too; they have inputs of their own (WindowActivity, WindowReports), which no
filter reaches.
"""

from __future__ import annotations

from kasen.cql.bound import JoinKind, Now, Range, Slide, Unbounded
from kasen.cql.expr import Column, Expr, ScalarQuery, conjunction, conjuncts, walk
from kasen.plan.exprs import columns_used, substitute
from kasen.plan.logical import (
    Aggregate,
    Distinct,
    Filter,
    Node,
    OuterJoin,
    Project,
    SemiJoin,
    SetOp,
    Streamify,
    WindowNode,
)

_TRANSPARENT = (Unbounded, Now, Range, Slide)


def push_filters(plan: Node) -> Node:
    return _push(plan, ())


def _push(node: Node, conditions: tuple[Expr, ...]) -> Node:
    """The node with `conditions` (over its output) applied as deep as they may go."""
    match node:
        case Filter():
            # The inner condition first: it may guard what the outer one computes.
            return _push(node.child, (*conjuncts(node.condition), *conditions))
        case Project():
            below = tuple(substitute(part, node.items) for part in conditions)
            return Project(node.schema, _push(node.child, below), node.items)
        case WindowNode() if isinstance(node.window, _TRANSPARENT):
            return WindowNode(node.schema, _push(node.child, conditions), node.window)
        case Streamify():
            inner = (_push(node.child, ()), *node.leaves)
            return _over(node.with_children(inner), conditions)
        case Aggregate():
            return _aggregate(node, conditions)
        case Distinct():
            return Distinct(node.schema, _push(node.child, conditions))
        case SetOp():
            return node.with_children(tuple(_push(side, conditions) for side in node.children))
        case SemiJoin():
            left = _push(node.left, conditions)
            return node.with_children((left, _push(node.right, ())))
        case OuterJoin():
            return _outer(node, conditions)
    children = tuple(_push(child, ()) for child in node.children)
    return _over(node.with_children(children) if children else node, conditions)


def _over(node: Node, conditions: tuple[Expr, ...]) -> Node:
    condition = conjunction(conditions)
    return node if condition is None else Filter(node.schema, node, condition)


def _aggregate(node: Aggregate, conditions: tuple[Expr, ...]) -> Node:
    """A condition on the keys alone holds for all rows of a group or for none."""
    movable: list[Expr] = []
    kept: list[Expr] = []
    for part in conditions:
        on_keys = bool(node.keys) and all(index < len(node.keys) for index in columns_used(part))
        fit = on_keys and bool(columns_used(part)) and not _has_scalar(part)
        (movable if fit else kept).append(part)
    below = tuple(substitute(part, node.keys) for part in movable)
    child = _push(node.child, below)
    return _over(Aggregate(node.schema, child, node.keys, node.aggregates), tuple(kept))


def _has_scalar(expr: Expr) -> bool:
    return any(isinstance(part, ScalarQuery) for part in walk(expr))


def _outer(node: OuterJoin, conditions: tuple[Expr, ...]) -> Node:
    """Only the side whose rows are always there can be filtered early."""
    width = len(node.left.schema)
    left: list[Expr] = []
    right: list[Expr] = []
    kept: list[Expr] = []
    for part in conditions:
        used = columns_used(part)
        if node.kind is JoinKind.LEFT and used and max(used) < width:
            left.append(part)
        elif node.kind is JoinKind.RIGHT and used and min(used) >= width:
            right.append(substitute(part, _shifted(node, width)))
        else:
            kept.append(part)
    sides = (
        _push(node.left, tuple(left)),
        _push(node.right, tuple(right)),
    )
    return _over(node.with_children(sides), tuple(kept))


def _shifted(node: OuterJoin, width: int) -> tuple[Expr, ...]:
    """The joined row's columns as the right side sees them (left ones never occur)."""
    names = [(field.type, field.name) for field in node.schema]
    return tuple(Column(type_, 0, index - width, name) for index, (type_, name) in enumerate(names))
