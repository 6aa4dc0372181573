"""The rewrites, in the order in which they are applied. Each keeps the meaning; the order is for effect:
filters reach the joins before keys are looked for, columns are pruned before windows are fused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kasen.cql.bound import App
from kasen.cql.expr import Column, conjunction, conjuncts
from kasen.plan.build import build
from kasen.plan.exprs import substitute
from kasen.plan.logical import (
    Aggregate,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Project,
    SemiJoin,
    WindowJoin,
    transform,
    walk,
)
from kasen.plan.rules.fuse_windows import fuse_windows
from kasen.plan.rules.join_keys import join_keys
from kasen.plan.rules.prune_columns import prune_columns
from kasen.plan.rules.push_filters import push_filters
from kasen.plan.rules.spare_deletions import spare_deletions


def merge_projections(plan: Node) -> Node:
    """Projections and filters right above one another become one; projections that do nothing go."""
    return transform(plan, _merge)


def _merge(node: Node) -> Node:
    match node:
        case Project(child=Project() as inner):
            return _merge(
                Project(node.schema, inner.child, tuple(substitute(i, inner.items) for i in node.items))
            )
        case Project() if _is_identity(node):
            return node.child
        case Filter(child=Filter() as inner):
            both = (*conjuncts(inner.condition), *conjuncts(node.condition))
            condition = conjunction(both)
            assert condition is not None
            return Filter(node.schema, inner.child, condition)
    return node


def _is_identity(node: Project) -> bool:
    if node.schema != node.child.schema:
        return False
    return all(isinstance(item, Column) and item.index == index for index, item in enumerate(node.items))


RULES: tuple[Callable[[Node], Node], ...] = (
    join_keys,
    push_filters,
    join_keys,
    push_filters,
    prune_columns,
    merge_projections,
    fuse_windows,
    spare_deletions,
)

#: The nodes without which a rule changes nothing: looking for them is cheaper than applying it in vain.
ABOUT: dict[Callable[[Node], Node], set[type[Node]]] = {
    join_keys: {InnerJoin, OuterJoin, SemiJoin},
    push_filters: {Filter, OuterJoin},
    fuse_windows: {Aggregate, InnerJoin},
    spare_deletions: {WindowJoin},
}


def rewrite_app(app: App) -> dict[str, Node]:
    """The rewritten plan of every query."""
    looping = queries_in_loops(app)
    plans = {name: rewrite(node) for name, node in build(app).items()}
    return {name: chained(node) if name in looping else node for name, node in plans.items()}


def queries_in_loops(app: App) -> set[str]:
    return {name for loop in app.loops for name in loop}


def chained(plan: Node) -> Node:
    """Loops run inside one kernel, which knows two-way joins: there joins are chains, despite hints."""

    def as_chain(node: Node) -> Node:
        return replace(node, hint="JOIN_TREE") if isinstance(node, WindowJoin | InnerJoin) else node

    return transform(plan, as_chain)


def rewrite(plan: Node) -> Node:
    """The plan after all rules. A rule has nothing to do where its subject is missing, nor a second time."""
    made: dict[Callable[[Node], Node], Node] = {}
    for rule in RULES:
        if made.get(rule) is not plan and _is_about(rule, plan):
            made[rule] = plan = rule(plan)
    return plan


def _is_about(rule: Callable[[Node], Node], plan: Node) -> bool:
    return rule not in ABOUT or not ABOUT[rule].isdisjoint(map(type, walk(plan)))
