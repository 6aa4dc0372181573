"""May a loop run on many shards? If one key goes with every tuple all the way round, yes.

A key is a column that each step of the loop hands on: what meets in a join, a group, a partition or a union
then has the same key, so tuples of different keys never see each other, however often they go round. For
each column of one of the loop's delays this follows the column around; what comes from outside can be
exchanged by whatever column the loop asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kasen.cql.bound import PartitionRows, Rows, StreamKind
from kasen.cql.expr import Column
from kasen.plan import logical
from kasen.plan.logical import Node
from kasen.plan.physical import Plan
from kasen.plan.physical_nodes import Pad, SlidingAggregate

#: The columns of a step that hold the key; None as long as nothing is known.
Holders = frozenset[int] | None


@dataclass(frozen=True, slots=True)
class LoopSharding:
    """The key, as the name of a column of the delay it was found at; or why there is none.

    `holders` has for each step of the loop the columns that hold the key, `inputs` for each input from
    outside, by step and position, the column to exchange it by.
    """

    key: str = ""
    why: str = ""
    holders: Mapping[int, frozenset[int]] = field(default_factory=dict)
    inputs: Mapping[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"sharded by {self.key}" if self.key else f"one shard ({self.why})"


def loop_sharding(plan: Plan, stage: Sequence[int]) -> LoopSharding:
    """The first column, of the first delay, that goes all the way round; else where each of them is lost."""
    delay = next(step for step in stage if isinstance(plan.steps[step].node, logical.Delay))
    lost: dict[str, list[str]] = {}
    for column, each in enumerate(plan.steps[delay].node.schema):
        trip = _Trip(plan, stage, delay, column)
        why = trip.broken()
        if not why:
            return LoopSharding(each.name, "", trip.holders, trip.inputs)
        lost.setdefault(why, []).append(each.name)
    return LoopSharding(why="; ".join(f"{', '.join(names)}: {why}" for why, names in lost.items()))


class _Trip:
    """One column on its way around.

    A step of which nothing is known yet may hold the key anywhere. What is known only shrinks, until nothing
    changes any more: then every step has what it needs.
    """

    def __init__(self, plan: Plan, stage: Sequence[int], delay: int, column: int) -> None:
        self._plan = plan
        self._stage = stage
        self._inside = set(stage)
        self._delay = delay
        self._column = column
        self.holders: dict[int, frozenset[int]] = {delay: frozenset({column})}
        self.inputs: dict[tuple[int, int], frozenset[int]] = {}

    def broken(self) -> str:
        """Where the key is lost; empty if it comes back."""
        changed = True
        while changed:
            changed = False
            for step in self._stage:
                found = self._through(step) if step != self._delay else None
                if isinstance(found, str):
                    return found
                if found is not None and found != self.holders.get(step):
                    self.holders[step] = found & self.holders.get(step, found)
                    changed = True
                    if not self.holders[step]:
                        return f"{_called(self._plan.steps[step].node)} does not hand it on"
        last = self.holders.get(self._plan.steps[self._delay].inputs[0])
        if last is None or self._column not in last:
            return "it does not come back where it was"
        return ""

    def _through(self, step: int) -> Holders | str:
        """Which columns of a step hold the key, or why none does."""
        node, inputs = self._plan.steps[step].node, self._plan.steps[step].inputs
        children = [self.holders.get(source) for source in inputs]
        if all(held is None for held in children):
            return None
        if isinstance(node, logical.InnerJoin | logical.SemiJoin):
            return self._join(step, node, children)
        if isinstance(node, logical.SetOp):
            return self._union(step, children)
        return self._alone(node, children[0] or frozenset())

    def _alone(self, node: Node, held: frozenset[int]) -> Holders | str:
        found: frozenset[int] = held
        match node:
            case logical.Project(items=items):
                found = frozenset(
                    at for at, item in enumerate(items) if isinstance(item, Column) and item.index in held
                )
            case logical.Aggregate(keys=keys):
                found = frozenset(
                    at for at, key in enumerate(keys) if isinstance(key, Column) and key.index in held
                )
            case logical.WindowNode(window=PartitionRows(keys=keys)):
                found = held & frozenset(keys)
            case logical.WindowNode(window=Rows()):
                return "ROWS counts the tuples of all keys"
            case logical.Streamify(kind=StreamKind.RSTREAM):
                return "RSTREAM speaks whenever any key moves"
            case SlidingAggregate(keys=count):
                # Keys come first, in the input and in the output.
                found = frozenset(column for column in held if column < count)
            case Pad(before=before):
                found = frozenset(before + column for column in held)
            case logical.Filter() | logical.WindowNode() | logical.Streamify() | logical.Delay():
                pass
            case logical.Distinct():
                pass
            case _:
                return f"{type(node).__name__} looks at all keys"
        return found or f"{_called(node)} does not hand it on"

    def _join(
        self, step: int, node: logical.InnerJoin | logical.SemiJoin, children: list[Holders]
    ) -> Holders | str:
        left, right = children
        met = frozenset(
            (a, b)
            for a, b in _equal_columns(node)
            if (left is None or a in left) and (right is None or b in right)
        )
        if not met:
            return "a join does not compare it"
        if isinstance(node, logical.SemiJoin):
            found = self._ask(step, 0, frozenset(a for a, _ in met))
            self._ask(step, 1, frozenset(b for a, b in met if a in found))
            return found
        for side in range(2):
            self._ask(step, side, frozenset(pair[side] for pair in met))
        width = len(node.inputs[0].schema)
        return frozenset(a for a, _ in met) | frozenset(width + b for _, b in met)

    def _union(self, step: int, children: list[Holders]) -> Holders | str:
        common = frozenset.intersection(*(held for held in children if held is not None))
        if not common:
            return "the branches of a set operation have it in different columns"
        return frozenset.intersection(*(self._ask(step, at, common) for at in range(len(children))))

    def _ask(self, step: int, position: int, columns: frozenset[int]) -> frozenset[int]:
        """What comes from outside is exchanged by one column, as only inside all of them are equal."""
        if self._plan.steps[step].inputs[position] in self._inside:
            return columns
        columns &= self.inputs.get((step, position), columns)
        self.inputs[step, position] = frozenset(sorted(columns)[:1])
        return self.inputs[step, position]


def _equal_columns(node: logical.InnerJoin | logical.SemiJoin) -> list[tuple[int, int]]:
    """Columns of the left and the right side that a join compares."""
    if isinstance(node, logical.SemiJoin):
        pairs = list(node.keys)
    else:
        pairs = [(each[0][1], each[1][1]) for each in node.classes]
    return [(a.index, b.index) for a, b in pairs if isinstance(a, Column) and isinstance(b, Column)]


def _called(node: Node) -> str:
    names = {"WindowNode": "a window", "Project": "a SELECT list", "Aggregate": "GROUP BY"}
    return names.get(type(node).__name__, type(node).__name__)
