"""Splits sliding aggregates into a pane level and a window level [CQPH].

A pane is the greatest common divisor of RANGE and SLIDE long, so every window is a run of whole panes:
each tuple is reduced once into its pane, and windows combine panes. The cost of a tuple no longer
depends on RANGE / SLIDE.
"""

from __future__ import annotations

from math import gcd

from kasen.cql.bound import Slide
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.plan.logical import Node, PaneAggregate, WindowAggregate, WindowCombine, transform

# Partials of these can be merged, and of what users define. DISTINCT and percentiles need the values
# themselves.
_MERGEABLE = frozenset(
    {"count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop"}
)


def split_panes(plan: Node) -> Node:
    return transform(plan, _rewrite)


def _rewrite(node: Node) -> Node:
    if not isinstance(node, WindowAggregate) or not isinstance(node.window, Slide):
        return node
    if not all(_mergeable(call) for call in node.aggregates):
        return node
    pane = gcd(node.window.length, node.window.slide)
    panes = PaneAggregate(node.schema, node.child, pane, node.condition, node.keys, node.aggregates)
    return WindowCombine(node.schema, panes, node.window, len(node.keys), node.aggregates)


def _mergeable(call: AggregateCall) -> bool:
    return call.user is not None or (call.function in _MERGEABLE and not call.distinct)
