"""Turns conditions over cross products into join keys.

Nested inner joins become one N-way join. A conjunct over one input goes down to it as a filter,
an equality between inputs joins a class of equal expressions (so that a.k = b.k AND b.k = c.k is
one key across three inputs), the rest stays as residual.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from kasen.cql.bound import JoinKind
from kasen.cql.expr import Call, Expr, conjunction, conjuncts
from kasen.plan.exprs import columns_used, shift, split
from kasen.plan.logical import Filter, InnerJoin, Node, OuterJoin, SemiJoin, transform
from kasen.types import BOOLEAN

Member = tuple[int, Expr]


def join_keys(plan: Node) -> Node:
    return transform(plan, _rewrite)


def _rewrite(node: Node) -> Node:
    match node:
        case Filter(child=InnerJoin() as join, condition=condition):
            merged = (*conjuncts(join.residual), *conjuncts(condition))
            return _inner(join, merged)
        case InnerJoin():
            return _inner(node, conjuncts(node.residual))
        case OuterJoin():
            return _outer(node)
        case SemiJoin():
            return _semi(node)
    return node


def _inner(join: InnerJoin, conditions: tuple[Expr, ...]) -> Node:
    inputs, conditions, known = _flatten(join, conditions)
    starts = starts_of(inputs)
    filters: dict[int, list[Expr]] = {}
    residual: list[Expr] = []
    equal: list[tuple[Member, Member]] = []
    for part in conditions:
        owners = {bisect_right(starts, index) - 1 for index in columns_used(part)}
        if len(owners) == 1:
            (owner,) = owners
            filters.setdefault(owner, []).append(shift(part, -starts[owner]))
        elif (pair := _equality(part, starts)) is not None:
            equal.append(pair)
        else:
            residual.append(part)
    classes = _merged(known, equal)
    for position, extra in _same_input(classes):
        filters.setdefault(position, []).append(extra)
    narrowed = tuple(_filtered(child, filters.get(i, [])) for i, child in enumerate(inputs))
    keys = tuple(tuple(sorted(each, key=lambda member: member[0])) for each in classes)
    return InnerJoin(join.schema, narrowed, keys, conjunction(tuple(residual)), join.hint)


def _flatten(
    join: InnerJoin, conditions: tuple[Expr, ...]
) -> tuple[tuple[Node, ...], tuple[Expr, ...], list[list[Member]]]:
    """The inputs of nested inner joins side by side; inner conditions and classes move along."""
    inputs: list[Node] = []
    gathered = list(conditions)
    classes: list[list[Member]] = [list(each) for each in join.classes] if join.classes else []
    start = 0
    for child in join.inputs:
        if isinstance(child, InnerJoin) and (not child.hint or child.hint == join.hint) and not join.classes:
            base = len(inputs)
            inputs += child.inputs
            gathered += [shift(part, start) for part in conjuncts(child.residual)]
            classes += [[(base + position, key) for position, key in each] for each in child.classes]
        else:
            inputs.append(child)
        start += len(child.schema)
    return tuple(inputs), tuple(gathered), classes


def starts_of(inputs: tuple[Node, ...]) -> list[int]:
    """The index at which each input's columns begin among those of all."""
    starts, width = [], 0
    for child in inputs:
        starts.append(width)
        width += len(child.schema)
    return starts


def _equality(part: Expr, starts: list[int]) -> tuple[Member, Member] | None:
    """An equality between expressions over one input each, or None."""
    if not (isinstance(part, Call) and part.op == "="):
        return None
    members: list[Member] = []
    for side in part.args:
        owners = {bisect_right(starts, index) - 1 for index in columns_used(side)}
        if len(owners) != 1:
            return None
        (owner,) = owners
        members.append((owner, shift(side, -starts[owner])))
    return members[0], members[1]


@dataclass(slots=True, eq=False)
class _KeyClass:
    """Expressions that are equal in all joined rows, and when the class changed last."""

    members: deque[Member]
    changed: int


def _merged(classes: list[list[Member]], equal: list[tuple[Member, Member]]) -> list[list[Member]]:
    """The classes with the two members of each pair in one; the class that changed last comes last.

    The smaller of two classes goes into the larger, so N pairs take N log N steps.
    """
    class_of: dict[Member, _KeyClass] = {}
    for at, known in enumerate(classes):
        class_of |= dict.fromkeys(known, _KeyClass(deque(known), at))
    for at, pair in enumerate(equal, len(classes)):
        mine = [class_of.setdefault(member, _KeyClass(deque([member]), at)) for member in pair]
        older, newer = sorted(mine, key=lambda each: each.changed)
        if older is newer:
            older.changed = at
            continue
        small, large = sorted(mine, key=lambda each: len(each.members))
        if large is older:
            large.members.extend(small.members)
        else:
            large.members.extendleft(reversed(small.members))
        class_of |= dict.fromkeys(small.members, large)
        large.changed = at
    found = {id(each): each for each in class_of.values()}
    return [list(each.members) for each in sorted(found.values(), key=lambda each: each.changed)]


def _same_input(classes: list[list[Member]]) -> list[tuple[int, Expr]]:
    """Keeps one member an input in each class; further ones become equalities on that input."""
    extras: list[tuple[int, Expr]] = []
    for each in classes:
        first: dict[int, Expr] = {}
        for position, key in each:
            if position in first:
                extras.append((position, Call(BOOLEAN, "=", (first[position], key))))
            else:
                first[position] = key
        each[:] = first.items()
    return extras


def _filtered(node: Node, conditions: list[Expr]) -> Node:
    condition = conjunction(tuple(conditions))
    return node if condition is None else Filter(node.schema, node, condition)


def _split_keys(conditions: tuple[Expr, ...], width: int) -> tuple[tuple[tuple[Expr, Expr], ...], list[Expr]]:
    """Equalities between left and right as key pairs, and what is left."""
    keys: list[tuple[Expr, Expr]] = []
    rest: list[Expr] = []
    for part in conditions:
        pair = _equality(part, [0, width])
        if pair is None or pair[0][0] == pair[1][0]:
            rest.append(part)
        else:
            left, right = sorted(pair, key=lambda member: member[0])
            keys.append((left[1], right[1]))
    return tuple(keys), rest


def _outer(node: OuterJoin) -> Node:
    if node.keys:
        return node
    width = len(node.left.schema)
    keys, rest = _split_keys(conjuncts(node.residual), width)
    left, right = node.left, node.right
    if node.kind is JoinKind.LEFT:
        # A condition on the side that may be missing decides what matches, so it may filter that side.
        mine, rest = split(rest, lambda part: min(columns_used(part), default=-1) >= width)
        right = _filtered(right, [shift(part, -width) for part in mine])
    elif node.kind is JoinKind.RIGHT:
        mine, rest = split(rest, lambda part: max(columns_used(part), default=width) < width)
        left = _filtered(left, mine)
    return OuterJoin(node.schema, left, right, node.kind, keys, conjunction(tuple(rest)))


def _semi(node: SemiJoin) -> Node:
    """Correlated equalities become keys; NOT IN's own keys must stay apart, as NULL means more there."""
    if node.kind.value.startswith("NULL") or node.residual is None:
        return node
    keys, rest = _split_keys(conjuncts(node.residual), len(node.left.schema))
    residual = conjunction(tuple(rest))
    return SemiJoin(node.schema, node.left, node.right, node.kind, (*node.keys, *keys), residual)
