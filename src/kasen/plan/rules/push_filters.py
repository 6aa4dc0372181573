"""Moves filters towards the sources: less to remember, less to join.

Never below a row window (it counts tuples before they are filtered), nor below a window whose reports
must be seen: those of window_start()/window_end(), and every window under RSTREAM, which fires when
a window gains or loses even if the filter lets nothing through.
"""

from __future__ import annotations

from kasen.cql.bound import JoinKind, Now, Range, Slide, StreamKind, Unbounded
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
    return _push(plan, (), under_rstream=False)


def _push(node: Node, conditions: tuple[Expr, ...], under_rstream: bool) -> Node:
    """The node with `conditions` (over its output) applied as deep as they may go."""
    match node:
        case Filter():
            return _push(node.child, (*conditions, *conjuncts(node.condition)), under_rstream)
        case Project():
            below = tuple(substitute(part, node.items) for part in conditions)
            return Project(node.schema, _push(node.child, below, under_rstream), node.items)
        case WindowNode() if not under_rstream and not node.bounds and isinstance(node.window, _TRANSPARENT):
            return WindowNode(node.schema, _push(node.child, conditions, False), node.window)
        case Streamify():
            fires = node.kind is StreamKind.RSTREAM and node.every is None
            return _over(node.with_children((_push(node.child, (), fires),)), conditions)
        case Aggregate():
            return _aggregate(node, conditions, under_rstream)
        case Distinct():
            return Distinct(node.schema, _push(node.child, conditions, under_rstream))
        case SetOp():
            return node.with_children(tuple(_push(side, conditions, under_rstream) for side in node.children))
        case SemiJoin():
            left = _push(node.left, conditions, under_rstream)
            return node.with_children((left, _push(node.right, (), under_rstream)))
        case OuterJoin():
            return _outer(node, conditions, under_rstream)
    children = tuple(_push(child, (), under_rstream) for child in node.children)
    return _over(node.with_children(children) if children else node, conditions)


def _over(node: Node, conditions: tuple[Expr, ...]) -> Node:
    condition = conjunction(conditions)
    return node if condition is None else Filter(node.schema, node, condition)


def _aggregate(node: Aggregate, conditions: tuple[Expr, ...], under_rstream: bool) -> Node:
    """A condition on the keys alone holds for all rows of a group or for none."""
    movable: list[Expr] = []
    kept: list[Expr] = []
    for part in conditions:
        on_keys = bool(node.keys) and all(index < len(node.keys) for index in columns_used(part))
        fit = on_keys and bool(columns_used(part)) and not _has_scalar(part)
        (movable if fit else kept).append(part)
    below = tuple(substitute(part, node.keys) for part in movable)
    child = _push(node.child, below, under_rstream)
    return _over(Aggregate(node.schema, child, node.keys, node.aggregates), tuple(kept))


def _has_scalar(expr: Expr) -> bool:
    return any(isinstance(part, ScalarQuery) for part in walk(expr))


def _outer(node: OuterJoin, conditions: tuple[Expr, ...], under_rstream: bool) -> Node:
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
        _push(node.left, tuple(left), under_rstream),
        _push(node.right, tuple(right), under_rstream),
    )
    return _over(node.with_children(sides), tuple(kept))


def _shifted(node: OuterJoin, width: int) -> tuple[Expr, ...]:
    """The joined row's columns as the right side sees them (left ones never occur)."""
    names = [(field.type, field.name) for field in node.schema]
    return tuple(Column(type_, 0, index - width, name) for index, (type_, name) in enumerate(names))
