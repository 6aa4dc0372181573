"""How an inner join of N inputs is run: as a chain of two-way joins, or as one operator [LowDelayJoin].

The hint, or `choose` if there is none, names the method. All methods give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeGuard

from kasen.cql.bound import JOIN_HINTS, Now, Range, Rows, Unbounded, Window
from kasen.cql.expr import Case, Column, Expr, conjunction, conjuncts, walk
from kasen.engine.join.multiway.parallel_trees import MOST_INPUTS
from kasen.plan import logical
from kasen.plan.explain.show import brief
from kasen.plan.exprs import columns_used, remap, split
from kasen.plan.logical import Deletions, Node
from kasen.plan.physical_nodes import LeftJoined, MultiJoin, Numbered, Selected
from kasen.plan.rules.join_keys import starts_of
from kasen.types import Field, Schema

JOIN_TREE, PARALLEL_TREES, MJOIN, PARALLEL_MJOIN = METHODS = JOIN_HINTS


#: An inner join before it is lowered.
Joined = logical.InnerJoin | logical.WindowJoin


def lower_join(node: Joined, force: str, *, shards: bool = False) -> Node:
    """The join by the method `force`, or by that of its hint, or else by the better one."""
    match method(replace(node, hint=force) if force else node, shards=shards):
        case "MJOIN":
            return _multi(node, parallel=False, shards=shards)
        case "PARALLEL_MJOIN":
            return _multi(node, parallel=True, shards=shards)
        case "PARALLEL_TREES":
            return _trees(_with_windows(node))
    return chain(_with_windows(node))


def method(node: Joined, *, shards: bool = False) -> str:
    """How a join is run: as its hint says, if it can be, or else by the better method.

    On `shards`, a join of inputs that share no key is a chain, each of whose joins has a key of its own.
    """
    hinted = node.hint.replace(" ", "_")
    if shards and not _shares_a_key(node):
        return JOIN_TREE
    if hinted == PARALLEL_MJOIN and not _runs_in_parallel(node, shards):
        return MJOIN
    if hinted == PARALLEL_TREES and len(node.inputs) > MOST_INPUTS:
        return JOIN_TREE
    return hinted if hinted in METHODS else _choose(node, shards)


def _shares_a_key(node: Joined) -> bool:
    """Whether there is a key that all inputs have."""
    return any(len({at for at, _ in each}) == len(node.inputs) for each in node.classes)


def _runs_in_parallel(node: Joined, shards: bool) -> bool:
    """Parallel MJoin needs a key that all inputs share, and the windows inside the join."""
    return _holds_all(node, shards=shards) and _shares_a_key(node)


def _choose(node: Joined, shards: bool) -> str:
    """One operator that holds all windows itself; relations, and windows of another kind, in a chain."""
    if not _holds_all(node):
        return JOIN_TREE
    if len(node.inputs) == 2 and node.deletions is not Deletions.NONE:
        # Two-way joins whose every change counts keep equal rows once, with their number.
        return JOIN_TREE
    if len(node.inputs) == 2 and node.residual is not None and not _holds_all(node, shards=shards):
        # By keys alone, PairJoin counts rows by their ordinals; MJoin does not, and a chain is faster then.
        return JOIN_TREE
    return MJOIN


def _holds_all(node: Joined, *, shards: bool = False) -> TypeGuard[logical.WindowJoin]:
    """Whether one operator can hold all windows."""
    if isinstance(node, logical.InnerJoin):
        return False
    return all(_is_kept_inside(window, shards) for window in node.windows)


def _with_windows(node: Joined) -> logical.InnerJoin:
    """The join with its windows as steps of their own."""
    if isinstance(node, logical.InnerJoin):
        return node
    pairs = zip(node.inputs, node.windows, strict=True)
    inputs = tuple(logical.WindowNode(child.schema, child, window) for child, window in pairs)
    return logical.InnerJoin(node.schema, inputs, node.classes, node.residual, node.hint)


# ---------------------------------------------------------------- one operator


def _multi(node: Joined, *, parallel: bool, shards: bool) -> Node:
    joined = _with_windows(node)
    inputs: list[Node] = []
    windows: list[Window | None] = []
    places: list[dict[int, int]] = []
    for position, child in enumerate(joined.inputs):
        wanted = {c: key for c, each in enumerate(node.classes) for at, key in each if at == position}
        window = child.window if isinstance(child, logical.WindowNode) else None
        if not _is_kept_inside(window, shards):
            window = None
        source = child.children[0] if window is not None else child
        wide, spots = with_columns(source, list(wanted.values()))
        inputs.append(wide)
        windows.append(window)
        places.append(dict(zip(wanted, spots, strict=True)))
    classes = tuple(tuple((at, places[at][c]) for at, _ in each) for c, each in enumerate(node.classes))
    columns = tuple((i, c) for i, child in enumerate(joined.inputs) for c in range(len(child.schema)))
    residuals = tuple(sorted(conjuncts(node.residual), key=cost))
    deletions = node.deletions if isinstance(node, logical.WindowJoin) else Deletions.ALL
    if shards and deletions is Deletions.MIXED:
        # An equal row may enter at the same instant on another shard, of which this one does not know.
        deletions = Deletions.ALL
    names = tuple(tuple(brief(key) for _, key in each) for each in node.classes)
    return MultiJoin(
        node.schema, tuple(inputs), tuple(windows), classes, columns, residuals, deletions, parallel, names
    )


def _is_kept_inside(window: Window | None, shards: bool) -> bool:
    """Windows whose tuples enter as they arrive and leave in that order; others are steps of their own.

    On shards, so are windows that count: a shard sees some of the tuples, and their ordinals.
    """
    if isinstance(window, Rows):
        return window.slide == 1 and not shards
    return isinstance(window, Unbounded | Now | Range)


def cost(condition: Expr) -> int:
    """What a condition costs, roughly: texts and CASE are dear, the rest counts its parts."""
    total = 0
    for part in walk(condition):
        total += 50 if isinstance(part, Case) or part.type.kind.value == "VARCHAR" else 1
    return total


def pick_columns(node: logical.Project, join: MultiJoin) -> Node:
    """A projection of plain columns right above the join is the join's own choice of columns."""
    plain = [item.index for item in node.items if isinstance(item, Column)]
    if join.residuals or len(plain) < len(node.items):
        return node
    return replace(join, schema=node.schema, columns=tuple(join.columns[index] for index in plain))


def nothing_cancels(node: Node) -> bool:
    """Whether equal rows never enter and leave in one instant."""
    if isinstance(node, logical.Filter | logical.Project):
        return nothing_cancels(node.child)
    return isinstance(node, MultiJoin) and node.deletions is Deletions.NONE


# ---------------------------------------------------------------- a chain of two-way joins


@dataclass(frozen=True, slots=True)
class _JoinedInputs:
    """Some inputs joined: where each original column is in the row so far, and each class's key."""

    node: Node
    places: dict[int, int]
    keys: dict[int, Column]


#: A conjunct and the columns that it reads.
_Condition = tuple[Expr, set[int]]


def _leaves(node: logical.InnerJoin, wrap: Callable[[Node, int], Node]) -> list[_JoinedInputs]:
    """The inputs, with their keys as columns."""
    starts = starts_of(node.inputs)
    parts = []
    for position, child in enumerate(node.inputs):
        wanted = {c: key for c, each in enumerate(node.classes) for at, key in each if at == position}
        wide, spots = with_columns(child, list(wanted.values()))
        places = {starts[position] + i: i for i in range(len(child.schema))}
        keys = {c: named(wanted[c], spot) for c, spot in zip(wanted, spots, strict=True)}
        parts.append(_JoinedInputs(wrap(wide, position), places, keys))
    return parts


def _beside(left: _JoinedInputs, right: _JoinedInputs) -> tuple[Schema, dict[int, int], dict[int, Column]]:
    """The joined row: its schema, places and keys."""
    width = len(left.node.schema)
    places = left.places | {column: width + place for column, place in right.places.items()}
    keys = {c: replace(key, index=width + key.index) for c, key in right.keys.items()} | left.keys
    return Schema((*left.node.schema.fields, *right.node.schema.fields)), places, keys


def _two(left: _JoinedInputs, right: _JoinedInputs, residual: list[_Condition]) -> _JoinedInputs:
    """The join of two parts; conditions whose columns are all there are taken from `residual`."""
    schema, places, keys = _beside(left, right)
    shared = [c for c in right.keys if c in left.keys]
    pairs = tuple(((0, left.keys[c]), (1, right.keys[c])) for c in shared)
    ready, residual[:] = split(residual, lambda each: each[1] <= places.keys())
    condition = conjunction(tuple(remap(part, places) for part, _ in ready))
    return _JoinedInputs(logical.InnerJoin(schema, (left.node, right.node), pairs, condition), places, keys)


def chain(node: logical.InnerJoin) -> Node:
    """Each next input is one that shares a key with those before, if any does."""
    parts = _leaves(node, lambda child, _: child)
    order = _join_order(len(node.inputs), [{at for at, _ in each} for each in node.classes])
    residual = [(part, columns_used(part)) for part in conjuncts(node.residual)]
    joined = parts[order[0]]
    for position in order[1:]:
        joined = _two(joined, parts[position], residual)
    return restore(joined.node, node.schema, joined.places)


def _trees(node: logical.InnerJoin) -> Node:
    """The parallel join trees of [LowDelayJoin]: tree i has input i next to its root.

    What is below the root, all inputs but one, is the join of those before and those behind it; so the trees
    share their subtrees, and N trees are about 4 N joins.
    """
    leaves = _leaves(node, lambda child, position: Numbered(child.schema, child, position))
    count = len(leaves)
    before, behind = [leaves[0]], [leaves[-1]]
    for i in range(1, count - 1):
        before.append(_two(before[-1], leaves[i], []))
        behind.append(_two(leaves[count - 1 - i], behind[-1], []))
    behind.reverse()
    trees = []
    for i, leaf in enumerate(leaves):
        if i == 0:
            rest = behind[0]
        elif i == count - 1:
            rest = before[-1]
        else:
            rest = _two(before[i - 1], behind[i], [])
        schema, places, _ = _beside(leaf, rest)
        pairs = [(leaf.keys[c], rest.keys[c]) for c in leaf.keys if c in rest.keys]
        keys = tuple((a.index, b.index) for a, b in pairs)
        condition = conjunction(tuple(remap(part, places) for part in conjuncts(node.residual)))
        names = tuple((a.name, b.name) for a, b in pairs)
        root = LeftJoined(schema, (leaf.node, rest.node), keys, condition, names)
        trees.append(restore(root, node.schema, places))
    return Selected(node.schema, tuple(trees), node.insert_only)


def _join_order(count: int, classes: list[set[int]]) -> list[int]:
    order = [0]
    while len(order) < count:
        rest = [i for i in range(count) if i not in order]
        linked = [i for i in rest if any(i in each and each & set(order) for each in classes)]
        order.append((linked or rest)[0])
    return order


def with_columns(node: Node, extra: list[Expr]) -> tuple[Node, list[int]]:
    """The node with computed expressions as further columns, and where each expression is."""
    places: list[int] = []
    added: list[Expr] = []
    for each in extra:
        if isinstance(each, Column):
            places.append(each.index)
        else:
            places.append(len(node.schema) + len(added))
            added.append(each)
    if not added:
        return node, places
    items = (*(Column(f.type, 0, i, f.name) for i, f in enumerate(node.schema)), *added)
    names = (*node.schema.fields, *(Field(f"k{i}", each.type) for i, each in enumerate(added)))
    return logical.Project(Schema(names), node, items), places


def named(expr: Expr, index: int) -> Column:
    """The column that holds an expression's value, called what people know it by."""
    return Column(expr.type, 0, index, brief(expr))


def restore(node: Node, schema: Schema, places: dict[int, int]) -> Node:
    """The columns of `schema` in their order; nothing if they already are."""
    if len(node.schema) == len(schema) and all(places[index] == index for index in range(len(schema))):
        return node
    items = tuple(Column(field.type, 0, places[index], field.name) for index, field in enumerate(schema))
    return logical.Project(schema, node, items)
