"""Logical plans: frozen nodes that know their schema, whether rows only ever enter, and their inputs.

Inside a plan a column is a position: Column(type, 0, index, name) means the node's input column
`index`; a join's input is its inputs' columns side by side. Equal sub-plans are equal values, which is
all that sharing needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from operator import is_not

from kasen.cql.bound import Delay as DelayLength
from kasen.cql.bound import JoinKind, SetKind, Slide, StreamKind, Unbounded, Window
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Expr
from kasen.types import CachedHash, Schema, hashed_once


@hashed_once
class Node(CachedHash):
    """A step of a plan. `schema` is what it puts out."""

    schema: Schema

    @property
    def is_stream(self) -> bool:
        """Whether the output is a stream (tuples at instants), not a relation (a bag at every instant)."""
        return False

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    def with_children(self, children: tuple[Node, ...]) -> Node:
        """This node over other inputs of the same schemas."""
        assert not children
        return self

    @property
    def insert_only(self) -> bool:
        """Whether rows, once in the relation, never leave it (monotone over all of time, [DTS])."""
        return False


@hashed_once
class Scan(Node):
    """A stream or relation from outside."""

    name: str
    relation: bool

    @property
    def is_stream(self) -> bool:
        return not self.relation


@hashed_once
class Ref(Node):
    """The output of another registered query: the edge along which queries share work and form loops."""

    name: str
    stream: bool
    monotone: bool = False

    @property
    def is_stream(self) -> bool:
        return self.stream

    @property
    def insert_only(self) -> bool:
        return self.monotone


@hashed_once
class Unary(Node):
    """A node with one input."""

    child: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, child=children[0])

    @property
    def insert_only(self) -> bool:
        return self.child.insert_only


@hashed_once
class WindowNode(Unary):
    """Stream to relation."""

    window: Window

    @property
    def insert_only(self) -> bool:
        return isinstance(self.window, Unbounded)


@hashed_once
class WindowReports(Unary):
    """window_start and window_end of a sliding window's latest report: one row, NULLs before the first.

    A relation of its own, joined in where a query asks for the bounds: so they are right for empty
    reports too, which no row of the window could tell of.
    """

    window: Slide

    @property
    def insert_only(self) -> bool:
        return False


@hashed_once
class WindowActivity(Unary):
    """The instants at which a leaf of an RSTREAM gains, loses or reports; no columns.

    `child` is the stream under the leaf's window, or (window None) the outside relation itself.
    """

    window: Window | None

    @property
    def is_stream(self) -> bool:
        return True


@hashed_once
class Filter(Unary):
    """Keeps the rows for which the condition is TRUE."""

    condition: Expr

    @property
    def is_stream(self) -> bool:
        return self.child.is_stream


@hashed_once
class Project(Unary):
    """Computes columns."""

    items: tuple[Expr, ...]

    @property
    def is_stream(self) -> bool:
        return self.child.is_stream


@hashed_once
class Nary(Node):
    """A node with any number of inputs."""

    inputs: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, inputs=children)


@hashed_once
class InnerJoin(Nary):
    """The inner join of N inputs.

    Each of `classes` is a set of expressions, as (input, expression over that input), that must all be
    equal; transitive equalities are one class. `residual` ranges over all inputs' columns.
    """

    classes: tuple[tuple[tuple[int, Expr], ...], ...]
    residual: Expr | None
    hint: str = ""

    @property
    def insert_only(self) -> bool:
        return all(child.insert_only for child in self.inputs)


class Deletions(Enum):
    """Which combinations that leave a join its reader needs to see."""

    ALL = "all"
    MIXED = "where some enter, too"
    NONE = "none"


@hashed_once
class WindowJoin(Nary):
    """An inner join with the windows of its inputs: one step from streams to pairs.

    `inputs` are the streams, `windows` what each is seen through; the rest is InnerJoin's.
    """

    windows: tuple[Window, ...]
    classes: tuple[tuple[tuple[int, Expr], ...], ...]
    residual: Expr | None
    hint: str = ""
    deletions: Deletions = Deletions.ALL

    @property
    def insert_only(self) -> bool:
        return all(isinstance(window, Unbounded) for window in self.windows)


@hashed_once
class Binary(Node):
    """A node with two inputs."""

    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, left=children[0], right=children[1])


@hashed_once
class OuterJoin(Binary):
    """LEFT, RIGHT or FULL. `keys` are (left expression, right expression); `residual` over both."""

    kind: JoinKind
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None


class SemiKind(Enum):
    SEMI = "SEMI"
    ANTI = "ANTI"
    NULL_AWARE_ANTI = "NULL-AWARE ANTI"


@hashed_once
class SemiJoin(Binary):
    """Left rows that have (SEMI) or lack (ANTI) a right row with equal keys and a true residual.

    NULL_AWARE_ANTI is NOT IN: a left row stays only if no right row that fits `residual` equals its keys
    or makes the comparison unknown.
    """

    kind: SemiKind
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None

    @property
    def insert_only(self) -> bool:
        return self.kind is SemiKind.SEMI and self.left.insert_only and self.right.insert_only


@hashed_once
class Aggregate(Unary):
    """GROUP BY: the keys, then the aggregates. No keys: one row, always."""

    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]

    @property
    def insert_only(self) -> bool:
        return False


@hashed_once
class WindowAggregate(Unary):
    """A window and the aggregate over it as one step: the window's rows are never materialised as changes.

    `child` is the stream; `condition` was the filter between window and aggregate.
    """

    window: Window
    condition: Expr | None
    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]

    @property
    def insert_only(self) -> bool:
        return False


@hashed_once
class Distinct(Unary):
    """One row for each different row."""


@hashed_once
class SetOp(Binary):
    """UNION, EXCEPT, INTERSECT [ALL]."""

    kind: SetKind
    all: bool

    @property
    def insert_only(self) -> bool:
        return self.kind is not SetKind.EXCEPT and self.left.insert_only and self.right.insert_only


def twice(node: Node) -> SetOp:
    """For rows that come in two ways: those of the one, then those of the other."""
    return SetOp(node.schema, node, node, SetKind.UNION, True)


@hashed_once
class Streamify(Unary):
    """Relation to stream. `leaves` tell when RSTREAM fires: one WindowActivity per leaf."""

    kind: StreamKind
    every: int | None = None
    leaves: tuple[Node, ...] = ()

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child, *self.leaves)

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, child=children[0], leaves=children[1:])

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def needs_deletions(self) -> bool:
        """ISTREAM over rows that only enter is those rows: nothing has to be netted."""
        return not (self.kind is StreamKind.ISTREAM and self.child.insert_only)


@hashed_once
class Delay(Unary):
    """Moves a stream into the future; where a loop is cut."""

    length: DelayLength
    inserted: bool = False

    @property
    def is_stream(self) -> bool:
        return True


def walk(node: Node) -> list[Node]:
    """The node and everything below it, top first; what is below several nodes comes once."""
    found: dict[int, Node] = {}
    todo = [node]
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo += node.children[::-1]
    return list(found.values())


def transform(node: Node, rewrite: Callable[[Node], Node], *, renames: bool = False) -> Node:
    """Applies `rewrite` to every node, inputs first; to what is below several nodes, once.

    Nodes that differ in the names of columns only are equal. Where these matter, it `renames`.
    """
    made: dict[int, Node] = {}

    def rewritten(node: Node) -> Node:
        found = made.get(id(node))
        if found is None:
            children = tuple([rewritten(child) for child in node.children])
            is_new = children != node.children or (renames and any(map(is_not, children, node.children)))
            found = rewrite(node.with_children(children) if is_new else node)
            made[id(node)] = found
        return found

    return rewritten(node)
