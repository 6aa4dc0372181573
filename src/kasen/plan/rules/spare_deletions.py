"""Tells joins below ISTREAM which of the combinations that leave nobody needs to see.

ISTREAM is what enters, net. A combination that leaves matters only at an instant at which an equal one
enters. If every column of the join is in the output, the join can tell by itself, and puts out nothing that
leaves; otherwise it puts out what leaves at instants at which something enters, too.
"""

from __future__ import annotations

from dataclasses import replace

from kasen.cql.bound import StreamKind
from kasen.cql.expr import Column
from kasen.plan.logical import Deletions, Filter, Node, Project, Streamify, WindowJoin, transform


def spare_deletions(plan: Node) -> Node:
    return transform(plan, _rewrite)


def _rewrite(node: Node) -> Node:
    if isinstance(node, Streamify) and node.kind is StreamKind.ISTREAM:
        return replace(node, child=_spare(node.child, set(range(len(node.child.schema)))))
    return node


def _spare(node: Node, kept: set[int]) -> Node:
    """The node, of whose columns the output has (at least) `kept`."""
    match node:
        case Filter():
            return node.with_children((_spare(node.child, kept),))
        case Project():
            read = [node.items[index] for index in kept]
            below = {item.index for item in read if isinstance(item, Column)}
            return node.with_children((_spare(node.child, below),))
        case WindowJoin() if not node.insert_only:
            return replace(node, deletions=Deletions.NONE if _tells_all(node, kept) else Deletions.MIXED)
    return node


def _tells_all(join: WindowJoin, kept: set[int]) -> bool:
    """Whether different combinations of rows always differ in the kept columns."""
    starts = [0]
    for child in join.inputs:
        starts.append(starts[-1] + len(child.schema))
    known = set(kept)
    for each in join.classes:
        equal = {starts[at] + key.index for at, key in each if isinstance(key, Column)}
        if known & equal:
            known |= equal
    return len(known) == len(join.schema)
