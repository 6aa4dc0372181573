"""What a replaced query keeps: the windows that its old and its new text see in the same way.

A window of a stream is kept if both plans remember it by the very same steps, after filters and columns
that nobody reads were moved below it. Then whatever is above can go on, or be made anew from what the
window holds. A function of the two texts alone, so it is the same on every engine and after a restart.
"""

from __future__ import annotations

from collections.abc import Set

from kasen.cql.bound import PartitionRows, RegisteredQuery, SetKind, StreamKind, Unbounded, Window
from kasen.plan import logical, lower
from kasen.plan.build import Names
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.lower_joins import MultiJoin
from kasen.plan.physical import plan_query

#: A stream's name in lower case, and the window it is seen through.
Leaf = tuple[str, Window]

_WINDOWED = (logical.WindowNode, logical.Reports, logical.Touches, lower.SlidingAggregate)


def plain(leaf: Leaf) -> Leaf:
    """The leaf without the numbers of a partition's columns, which are others above a projection."""
    name, window = leaf
    return (name, PartitionRows((), window.count)) if isinstance(window, PartitionRows) else leaf


def is_stateless(node: Node) -> bool:
    """Whether the node's operator remembers nothing."""
    match node:
        case Scan() | Ref() | logical.Filter() | logical.Project() | lower.Pad():
            return True
        case logical.WindowNode(window=window):
            return isinstance(window, Unbounded)
        case logical.SetOp(kind=kind, all=all_):
            return kind is SetKind.UNION and all_
        case logical.Streamify(kind=kind, child=child):
            # Over a relation it remembers that it has begun: the first bag enters then.
            return kind is not StreamKind.RSTREAM and not _reads_relation(child)
    return False


def _reads_relation(node: Node) -> bool:
    """Whether an outside relation or a relation query is below, before any window."""
    if isinstance(node, Scan | Ref):
        return not node.is_stream
    if isinstance(node, logical.WindowNode | lower.SlidingAggregate):
        return False
    return any(_reads_relation(child) for child in node.children if not child.is_stream)


def kept_steps(old: Node, new: Node, leaves: frozenset[Leaf] | None = None) -> frozenset[Node]:
    """The nodes of the new plan that go on with the state they have in the old one.

    `leaves` are the windows that are kept, if other plans of the two texts decide that.
    """
    leaves = kept_leaves(old, new) if leaves is None else leaves
    had = set(logical.walk(old))
    remembering = _remembering(new)
    lost = {node for leaf, nodes in remembering.items() if leaf not in leaves for node in nodes}
    kept: dict[Node, bool] = {}

    def visit(node: Node) -> bool:
        below = [visit(child) for child in node.children]
        # What a delay holds is on its way, and is not delivered under another text.
        same = node in had and node not in lost and not isinstance(node, logical.Delay)
        same = same and not any(map(_is_made_within, node.children))
        kept[node] = all(below) and (is_stateless(node) or same)
        return kept[node]

    visit(new)
    return frozenset(node for node, keeps in kept.items() if keeps and not is_stateless(node))


def _is_made_within(node: Node) -> bool:
    """Whether a stream that the query itself makes is behind a node: what remembers it starts anew."""
    if isinstance(node, logical.Streamify | logical.Delay):
        return True
    return is_stateless(node) and any(map(_is_made_within, node.children))


def kept_leaves(old: Node, new: Node) -> frozenset[Leaf]:
    """The windows that both plans remember by the same steps, if these go on: a join does only as a whole."""
    before, after = _remembering(old), _remembering(new)
    leaves = frozenset(leaf for leaf, nodes in after.items() if before.get(leaf) == nodes)
    while True:
        kept = kept_steps(old, new, leaves)
        found = frozenset(leaf for leaf in leaves if after[leaf] <= kept)
        if found == leaves:
            return leaves
        leaves = found


def are_alike(old: Node, new: Node, leaves: frozenset[Leaf]) -> bool:
    """Whether two plans remember these windows by the same steps."""
    return leaves <= kept_leaves(old, new)


def carried(plan: Node, had: Set[Node], kept: Set[Node]) -> frozenset[Node]:
    """The nodes of a plan that are in another one, too, over nothing that would not be kept."""
    found: dict[Node, bool] = {}

    def visit(node: Node) -> bool:
        if node not in found:
            below = [visit(child) for child in node.children]
            found[node] = all(below) and node in had and (is_stateless(node) or node in kept)
        return found[node]

    visit(plan)
    return frozenset(node for node, is_there in found.items() if is_there)


def kept_windows(
    old: RegisteredQuery, new: RegisteredQuery, names: Names, in_loop: tuple[bool, bool]
) -> frozenset[Leaf]:
    """The windows over named streams that go on if `new` replaces `old`.

    `in_loop`: whether the old one came as part of a loop, and whether the new one does.
    """
    before, after = in_loop
    return kept_leaves(plan_query(old, names, in_loop=before), plan_query(new, names, in_loop=after))


def _remembering(plan: Node) -> dict[Leaf, set[Node]]:
    """For each window over a named stream, the lowest steps that remember something of it.

    A window over a query within the query is never among them: it starts anew.
    """
    found: dict[Leaf, set[Node]] = {}

    def descend(node: Node, owner: Node, window: Window) -> None:
        """From a step that remembers down to what it reads."""
        match node:
            case Scan(name=name) | Ref(name=name) if node.is_stream:
                found.setdefault(plain((name.lower(), window)), set()).add(owner)
            case logical.WindowNode(child=child) if is_stateless(node):
                descend(child, owner, Unbounded())
            case _ if is_stateless(node):
                for child in node.children:
                    descend(child, owner, window)

    for node in logical.walk(plan):
        if not is_stateless(node):
            own = node.window if isinstance(node, _WINDOWED) else None
            windows = node.windows if isinstance(node, MultiJoin) else [own] * len(node.children)
            for child, window in zip(node.children, windows, strict=True):
                descend(child, node, window or Unbounded())
    return found
