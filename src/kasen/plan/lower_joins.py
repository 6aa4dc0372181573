"""How an inner join of N inputs is run: as a chain of two-way joins, or as one operator (document D).

The hint, or `choose` if there is none, names the method. All methods give the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kasen.cql.bound import Now, Range, Rows, Unbounded, Window
from kasen.cql.expr import Case, Column, Expr, conjunction, conjuncts, walk
from kasen.plan import logical
from kasen.plan.exprs import columns_used, remap
from kasen.plan.logical import Deletions, Node
from kasen.types import Field, Schema

JOIN_TREE, MJOIN = "JOIN_TREE", "MJOIN"
METHODS = (JOIN_TREE, MJOIN)


@dataclass(frozen=True, slots=True)
class MultiJoin(Node):
    """An inner join as one operator: streams with their windows, or relations (window None).

    `classes` are sets of equal columns, `columns` the output's, both as (input, column); `residuals` are
    conditions over the output.
    """

    inputs: tuple[Node, ...]
    windows: tuple[Window | None, ...]
    classes: tuple[tuple[tuple[int, int], ...], ...]
    columns: tuple[tuple[int, int], ...]
    residuals: tuple[Expr, ...]
    deletions: Deletions = Deletions.ALL

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)

    @property
    def insert_only(self) -> bool:
        pairs = zip(self.inputs, self.windows, strict=True)
        return all(isinstance(w, Unbounded) or (w is None and node.insert_only) for node, w in pairs)


def lower_join(node: logical.InnerJoin | logical.WindowJoin, force: str) -> Node:
    """The join by the method `force`, or by that of its hint, or else by the better one."""
    if (force or method(node)) == MJOIN:
        return _multi(node)
    return chain(_with_windows(node))


def method(node: logical.InnerJoin | logical.WindowJoin) -> str:
    """How a join is run: as its hint says, or else by the better method."""
    hinted = node.hint.replace(" ", "_")
    return hinted if hinted in METHODS else _choose(node)


def _choose(node: logical.InnerJoin | logical.WindowJoin) -> str:
    """One operator that holds all windows itself; relations, and windows of another kind, in a chain."""
    if isinstance(node, logical.InnerJoin) or not all(_is_kept_inside(window) for window in node.windows):
        return JOIN_TREE
    if len(node.inputs) == 2 and node.deletions is not Deletions.NONE:
        # Two-way joins whose every change counts keep equal rows once, with their number.
        return JOIN_TREE
    return MJOIN


def _with_windows(node: logical.InnerJoin | logical.WindowJoin) -> logical.InnerJoin:
    """The join with its windows as steps of their own."""
    if isinstance(node, logical.InnerJoin):
        return node
    pairs = zip(node.inputs, node.windows, strict=True)
    inputs = tuple(logical.WindowNode(child.schema, child, window) for child, window in pairs)
    return logical.InnerJoin(node.schema, inputs, node.classes, node.residual, node.hint)


# ---------------------------------------------------------------- one operator


def _multi(node: logical.InnerJoin | logical.WindowJoin) -> Node:
    joined = _with_windows(node)
    inputs: list[Node] = []
    windows: list[Window | None] = []
    places: list[dict[int, int]] = []
    for position, child in enumerate(joined.inputs):
        wanted = {c: key for c, each in enumerate(node.classes) for at, key in each if at == position}
        window = child.window if isinstance(child, logical.WindowNode) else None
        if not _is_kept_inside(window):
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
    return MultiJoin(node.schema, tuple(inputs), tuple(windows), classes, columns, residuals, deletions)


def _is_kept_inside(window: Window | None) -> bool:
    """Windows whose tuples enter as they arrive and leave in that order; others are steps of their own."""
    return isinstance(window, Unbounded | Now | Range) or (isinstance(window, Rows) and window.slide == 1)


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


def chain(node: logical.InnerJoin) -> Node:
    """Each next input is one that shares a key with those before, if any does."""
    keyed: list[Node] = []
    key_places: list[dict[int, int]] = []
    for position, child in enumerate(node.inputs):
        wanted = {c: key for c, each in enumerate(node.classes) for at, key in each if at == position}
        wide, spots = with_columns(child, list(wanted.values()))
        keyed.append(wide)
        key_places.append(dict(zip(wanted, spots, strict=True)))
    order = _join_order(len(node.inputs), [{at for at, _ in each} for each in node.classes])
    # places: where each original column is in the joined row so far; keys: where each class's key is.
    starts = _starts(node.inputs)
    joined = keyed[order[0]]
    places = {starts[order[0]] + i: i for i in range(len(node.inputs[order[0]].schema))}
    keys = dict(key_places[order[0]])
    residual = list(conjuncts(node.residual))
    for position in order[1:]:
        right = keyed[position]
        width = len(joined.schema)
        shared = [c for c in key_places[position] if c in keys]
        pairs = tuple(((0, key(joined, keys[c])), (1, key(right, key_places[position][c]))) for c in shared)
        places |= {starts[position] + i: width + i for i in range(len(node.inputs[position].schema))}
        keys |= {c: width + place for c, place in key_places[position].items() if c not in keys}
        ready = [part for part in residual if columns_used(part) <= set(places)]
        residual = [part for part in residual if part not in ready]
        condition = conjunction(tuple(remap(part, places) for part in ready))
        schema = Schema((*joined.schema.fields, *right.schema.fields))
        joined = logical.InnerJoin(schema, (joined, right), pairs, condition)
    return restore(joined, node.schema, places)


def _join_order(count: int, classes: list[set[int]]) -> list[int]:
    order = [0]
    while len(order) < count:
        rest = [i for i in range(count) if i not in order]
        linked = [i for i in rest if any(i in each and each & set(order) for each in classes)]
        order.append((linked or rest)[0])
    return order


def _starts(inputs: tuple[Node, ...]) -> list[int]:
    starts, width = [], 0
    for child in inputs:
        starts.append(width)
        width += len(child.schema)
    return starts


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


def key(node: Node, index: int) -> Column:
    field = node.schema[index]
    return Column(field.type, 0, index, field.name)


def restore(node: Node, schema: Schema, places: dict[int, int]) -> Node:
    """The columns of `schema` in their order; nothing if they already are."""
    if len(node.schema) == len(schema) and all(places[index] == index for index in range(len(schema))):
        return node
    items = tuple(Column(field.type, 0, places[index], field.name) for index, field in enumerate(schema))
    return logical.Project(schema, node, items)
