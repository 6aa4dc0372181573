"""Plan nodes that lowering makes: each names the algorithm by which a step is run.

`logical.py` has the nodes that say what is asked. Many of them are run as they are (a filter, a window, a
two-way join); where there is a choice, or one step stands for several, lowering puts one of these instead.
"""

from __future__ import annotations

from dataclasses import field, replace
from math import gcd

from kasen.cql.bound import Rows, Slide, Unbounded, Window
from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Expr
from kasen.plan.logical import Deletions, Nary, Node, Unary
from kasen.types import hashed_once


@hashed_once
class Pad(Unary):
    """The child's columns between `before` and `after` columns of NULLs."""

    before: int
    after: int


@hashed_once
class SlidingAggregate(Unary):
    """An aggregate over RANGE ... SLIDE ... by panes [CQPH]: tuples come in, windows' rows go out.

    Every window is a run of whole panes: each tuple is reduced once into its pane, and windows combine panes.
    So the cost of a tuple does not depend on RANGE / SLIDE.
    """

    window: Slide
    keys: int
    aggregates: tuple[AggregateCall, ...]

    @property
    def pane(self) -> int:
        """The length of a pane."""
        return gcd(self.window.length, self.window.slide)

    @property
    def insert_only(self) -> bool:
        return False


@hashed_once
class MultiJoin(Nary):
    """An inner join as one operator: streams with their windows, or relations (window None).

    `classes` are sets of equal columns, `columns` the output's, both as (input, column); `residuals` are
    conditions over the output. `names` are for people: what the columns of each class are called.
    """

    windows: tuple[Window | None, ...]
    classes: tuple[tuple[tuple[int, int], ...], ...]
    columns: tuple[tuple[int, int], ...]
    residuals: tuple[Expr, ...]
    deletions: Deletions = Deletions.ALL
    parallel: bool = False
    names: tuple[tuple[str, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def full_classes(self) -> tuple[dict[int, int], ...]:
        """The keys that all inputs share: of each input its column."""
        found = (dict(each) for each in self.classes)
        return tuple(each for each in found if len(each) == len(self.inputs))

    @property
    def only_enters(self) -> bool:
        """Whether it is of two inputs, by keys alone, and nothing that leaves is put out."""
        if len(self.inputs) != 2 or self.parallel or self.residuals:
            return False
        return self.deletions is Deletions.NONE or self.insert_only

    @property
    def is_pair(self) -> bool:
        """Whether PairJoin does it: it holds its windows."""
        return self.only_enters and None not in self.windows

    @property
    def insert_only(self) -> bool:
        pairs = zip(self.inputs, self.windows, strict=True)
        return all(isinstance(w, Unbounded) or (w is None and node.insert_only) for node, w in pairs)


@hashed_once
class Numbered(Unary):
    """The changes of one input of parallel trees, with the input's number in their instants."""

    number: int


@hashed_once
class LeftJoined(Nary):
    """A join of two inputs that emits only what its left input's changes cause: the root of a parallel tree.

    `names` are for people: what both columns of each key are called.
    """

    keys: tuple[tuple[int, int], ...]
    residual: Expr | None
    names: tuple[tuple[str, ...], ...] = field(default=(), compare=False, repr=False)


@hashed_once
class Selected(Node):
    """The results of parallel trees, one from each input's."""

    trees: tuple[Node, ...]
    monotone: bool

    @property
    def children(self) -> tuple[Node, ...]:
        return self.trees

    def with_children(self, children: tuple[Node, ...]) -> Node:
        return replace(self, trees=children)

    @property
    def insert_only(self) -> bool:
        return self.monotone


@hashed_once
class OrdinalRows(Node):
    """[ROWS] on a shard: reads the shard's tuples with their ordinals, and the instants of all tuples."""

    window: Rows


@hashed_once
class CountedJoin(Node):
    """A join of two windows on a shard, some of which, `counted`, are [ROWS].

    Reads the tuples of both sides, the counted ones with their ordinals as first column; and then, for each
    of these, the instants of all tuples of its stream.
    """

    join: MultiJoin
    counted: tuple[int, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.join.inputs
