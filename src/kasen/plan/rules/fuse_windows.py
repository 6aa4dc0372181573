"""Fuses windows with the join or aggregate above them.

A window on its own must put out every tuple twice, when it enters and when it leaves. A join or
aggregate that holds the window itself need not.
"""

from __future__ import annotations

from dataclasses import replace

from kasen.cql.bound import Slide
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Column, Expr, conjunction, conjuncts
from kasen.plan.exprs import substitute
from kasen.plan.logical import (
    Aggregate,
    Filter,
    InnerJoin,
    Node,
    Project,
    WindowAggregate,
    WindowJoin,
    WindowNode,
    transform,
)


def fuse_windows(plan: Node) -> Node:
    return transform(plan, _rewrite)


def _rewrite(node: Node) -> Node:
    match node:
        case Aggregate():
            return _aggregate(node)
        case InnerJoin():
            return _join(node)
    return node


def _join(node: InnerJoin) -> Node:
    """Windows with reports (SLIDE) stay apart: their relation moves in steps, not by tuples."""
    windows = []
    streams = []
    for child in node.inputs:
        if not isinstance(child, WindowNode) or isinstance(child.window, Slide):
            return node
        windows.append(child.window)
        streams.append(child.child)
    return WindowJoin(node.schema, tuple(streams), tuple(windows), node.classes, node.residual, node.hint)


def _aggregate(node: Aggregate) -> Node:
    """Filters and projections in between are computed on tuples as they arrive."""
    below: Node = node.child
    items = tuple(Column(field.type, 0, index, field.name) for index, field in enumerate(below.schema))
    columns: tuple[Expr, ...] = items
    conditions: tuple[Expr, ...] = ()
    while isinstance(below, Filter | Project):
        if isinstance(below, Filter):
            conditions = (*conditions, *conjuncts(below.condition))
        else:
            projected = below.items
            columns = tuple(substitute(each, projected) for each in columns)
            conditions = tuple(substitute(each, projected) for each in conditions)
        below = below.child
    if not isinstance(below, WindowNode):
        return node
    keys = tuple(substitute(key, columns) for key in node.keys)
    calls = tuple(_substituted(call, columns) for call in node.aggregates)
    return WindowAggregate(node.schema, below.child, below.window, conjunction(conditions), keys, calls)


def _substituted(call: AggregateCall, columns: tuple[Expr, ...]) -> AggregateCall:
    args = tuple(substitute(arg, columns) for arg in call.args)
    return replace(call, args=args)
