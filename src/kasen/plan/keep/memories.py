"""What the steps of a plan remember of the streams below them: which tuples, and what of each.

A step remembers a stream through a window, its own or [UNBOUNDED]. Between the two there are only steps that
remember nothing. So what the step gets of a tuple, and of which tuples, can be said over its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kasen.cql.bound import Now, PartitionRows, Rows, SetKind, StreamKind, Unbounded, Window
from kasen.cql.expr import Column, Expr, conjuncts
from kasen.plan import logical
from kasen.plan.exprs import substitute
from kasen.plan.logical import Node, Ref, Scan, Streamify, WindowActivity
from kasen.plan.physical_nodes import MultiJoin, Pad, SlidingAggregate

#: Steps that can tell what they hold, or the rows of all their inputs.
_TELLING = (
    logical.WindowNode,
    logical.WindowReports,
    logical.Aggregate,
    SlidingAggregate,
    logical.Distinct,
    logical.InnerJoin,
    MultiJoin,
)
_WINDOWED = (logical.WindowNode, logical.WindowReports, WindowActivity, SlidingAggregate)


def is_stateless(node: Node) -> bool:
    """Whether the node's operator remembers nothing."""
    match node:
        case Scan() | Ref() | logical.Filter() | logical.Project() | Pad():
            return True
        case logical.WindowNode(window=window):
            return isinstance(window, Unbounded)
        case logical.SetOp(kind=kind, all=all_):
            return kind is SetKind.UNION and all_
        case Streamify(kind=kind, child=child):
            # Over a relation it remembers that it has begun: the first bag enters then.
            return kind is not StreamKind.RSTREAM and not _reads_relation(child)
    return False


def _reads_relation(node: Node) -> bool:
    """Whether an outside relation or a relation query is below, before any window."""
    todo = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, Scan | Ref):
            if not node.is_stream:
                return True
        elif not isinstance(node, logical.WindowNode | SlidingAggregate):
            todo += [child for child in node.children if not child.is_stream]
    return False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a step remembers of the stream behind one of its inputs.

    `items` are the input's columns and `filter` the conditions on its way, over the stream's columns.
    `is_merged`: tuples of several windows come by this input.
    """

    node: Node
    position: int
    stream: Scan | Ref
    window: Window
    filter: frozenset[Expr]
    items: tuple[Expr, ...]
    is_merged: bool

    @property
    def name(self) -> str:
        return f"{self.stream.name} {self.shown_window}"

    @property
    def shown_window(self) -> str:
        if isinstance(self.window, PartitionRows):
            keys = ", ".join(self.stream.schema[key].name for key in self.window.keys)
            return f"[PARTITION BY {keys} ROWS {self.window.count}]"
        return str(self.window)

    @property
    def holds_rows(self) -> bool:
        """Whether the step can tell the tuples again."""
        if self.is_merged:
            return False
        match self.node:
            case logical.WindowNode():
                return True
            case MultiJoin(windows=windows):
                return windows[self.position] is not None
            case logical.InnerJoin() | logical.Distinct() | logical.SetOp():
                return True
            case logical.SemiJoin() | Streamify(kind=StreamKind.RSTREAM):
                return self.position == 0
        return False

    @property
    def needs_past(self) -> bool:
        """Whether what the window held before a change matters to the step after it."""
        if isinstance(self.window, Now):
            return False  # its tuples have left by the next time
        if isinstance(self.node, Streamify):
            return self.node.kind is StreamKind.RSTREAM
        if isinstance(self.node, WindowActivity):
            # Only an arrival moves the others.
            counts = isinstance(self.window, Rows) and self.window.slide == 1
            return not (counts or isinstance(self.window, Unbounded | PartitionRows))
        return True


def memories(plan: Node) -> dict[Node, list[Memory]]:
    """What each step of a plan remembers of streams that come from elsewhere."""
    found: dict[Node, list[Memory]] = {}
    for node in logical.walk(plan):
        if not is_stateless(node) and node not in found:
            own = node.window if isinstance(node, _WINDOWED) else None
            windows = node.windows if isinstance(node, MultiJoin) else [own] * len(node.children)
            found[node] = [
                memory
                for position, (child, window) in enumerate(zip(node.children, windows, strict=True))
                for memory in _behind(node, position, child, window)
            ]
    return found


def passing(plan: Node) -> list[Memory]:
    """The streams whose tuples are the plan's relation, so that no step remembers them."""
    if plan.is_stream or not is_stateless(plan):
        return []
    return list(_behind(plan, -1, plan, None))


def kept_nowhere(relation: Node) -> str | None:
    """A stream whose rows so far it would take to tell what a relation holds, and that no step keeps."""
    todo = [relation]
    while todo:
        node = todo.pop()
        if isinstance(node, logical.WindowNode) and is_stateless(node):
            stream = node.child
            while not isinstance(stream, Scan | Ref) and stream.children:
                stream = stream.children[0]
            return f"{getattr(stream, 'name', 'a stream')} {node.window}"
        if (
            not node.is_stream
            and not isinstance(node, _TELLING)
            and (is_stateless(node) or not isinstance(node, logical.SetOp))
        ):
            todo += node.children
    return None


def _behind(owner: Node, position: int, child: Node, window: Window | None) -> Iterator[Memory]:
    """From a step that remembers down to the streams that it reads, through what remembers nothing."""
    columns: tuple[Expr, ...] = tuple(
        Column(field.type, 0, i, field.name) for i, field in enumerate(child.schema)
    )
    conditions: tuple[Expr, ...] = ()
    todo = [(child, window, columns, conditions, False)]
    while todo:
        node, seen, items, asked, merged = todo.pop()
        match node:
            case Scan() | Ref() if node.is_stream or (isinstance(node, Ref) and node.monotone):
                through = seen or Unbounded()
                if isinstance(through, PartitionRows) and not isinstance(owner, WindowActivity):
                    through = _placed(through, items)
                yield Memory(owner, position, node, through, frozenset(asked), items, merged)
            case logical.Filter(child=below, condition=condition):
                todo.append((below, seen, items, (*conjuncts(condition), *asked), merged))
            case logical.Project(child=below, items=projected):
                items = tuple(substitute(each, projected) for each in items)
                asked = tuple(substitute(each, projected) for each in asked)
                todo.append((below, seen, items, asked, merged))
            case logical.WindowNode(child=below) if is_stateless(node):
                todo.append((below, Unbounded(), items, asked, merged))
            case logical.SetOp() | Pad() if is_stateless(node):
                todo += [(below, seen, items, asked, True) for below in reversed(node.children)]


def _placed(window: PartitionRows, items: tuple[Expr, ...]) -> PartitionRows:
    """The window with the numbers that its columns have in the stream."""
    keys = [items[key] for key in window.keys]
    return PartitionRows(tuple(key.index for key in keys if isinstance(key, Column)), window.count)
