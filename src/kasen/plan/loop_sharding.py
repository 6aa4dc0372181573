"""May a loop run on many shards? If one key goes with every tuple all the way round, yes.

A key is a column that each step of the loop hands on: what meets in a join, a group, a partition or a union
then has the same key, so tuples of different keys never see each other, however often they go round. For
each column of one of the loop's delays this follows the column around; what comes from outside can be
exchanged by whatever column the loop asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kasen.cql.bound import PartitionRows, Rows, StreamKind
from kasen.cql.expr import Column
from kasen.plan import logical, lower
from kasen.plan.logical import Node
from kasen.plan.physical import Plan

#: The columns of a step that hold the key; None as long as nothing is known.
Holders = frozenset[int] | None

_TWO_KEYS = "what comes from outside is asked for by two keys"


@dataclass(frozen=True, slots=True)
class LoopSharding:
    """The key, as the name of a column of the delay it was found at; or why there is none."""

    key: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"shardable by {self.key}" if self.key else f"one shard ({self.why})"


def loop_sharding(plan: Plan, stage: Sequence[int]) -> LoopSharding:
    """The first column, of the first delay, that goes all the way round; else what the last try failed at."""
    delay = next(step for step in stage if isinstance(plan.steps[step].node, logical.Delay))
    why = ""
    for column, field in enumerate(plan.steps[delay].node.schema):
        why = _Trip(plan, stage, delay, column).broken()
        if not why:
            return LoopSharding(key=field.name)
    return LoopSharding(why=why)


class _Trip:
    """One column on its way around."""

    def __init__(self, plan: Plan, stage: Sequence[int], delay: int, column: int) -> None:
        self._plan = plan
        self._stage = stage
        self._inside = set(stage)
        self._delay = delay
        self._holders: dict[int, Holders] = {delay: frozenset({column})}
        self._column = column

    def broken(self) -> str:
        """Where the key is lost; empty if it comes back."""
        for _ in range(len(self._stage) + 1):
            before = dict(self._holders)
            for step in self._stage:
                if step != self._delay:
                    found = self._through(step)
                    if isinstance(found, str):
                        return found
                    if found is not None:
                        self._holders[step] = found
            if before == self._holders:
                break
        last = self._of(self._plan.steps[self._delay].inputs[0])
        if last is None or self._column not in last:
            return "no column goes all the way round"
        return ""

    def _of(self, step: int) -> Holders:
        return self._holders.get(step)

    def _outside(self, step: int, columns: frozenset[int]) -> Holders:
        """An input from outside takes the key that it is asked for; two different ones are too many."""
        known = self._of(step)
        columns = columns if known is None else known & columns
        self._holders[step] = columns
        return columns

    def _through(self, step: int) -> Holders | str:
        """Which columns of a step hold the key, or why none does."""
        node, inputs = self._plan.steps[step].node, self._plan.steps[step].inputs
        children = [self._of(source) for source in inputs]
        if isinstance(node, logical.InnerJoin | logical.SemiJoin):
            return self._join(node, inputs, children)
        if isinstance(node, logical.SetOp):
            return self._union(inputs, children)
        if children[0] is None:
            return None
        return self._alone(node, children[0])

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
            case lower.Pad(before=before):
                found = frozenset(before + column for column in held)
            case logical.Filter() | logical.WindowNode() | logical.Streamify() | logical.Delay():
                pass
            case logical.Distinct():
                pass
            case _:
                return f"{type(node).__name__} looks at all keys"
        return found or f"{_called(node)} does not hand the key on"

    def _join(
        self, node: logical.InnerJoin | logical.SemiJoin, inputs: tuple[int, ...], children: list[Holders]
    ) -> Holders | str:
        pairs = _equal_columns(node)
        left, right = children
        if left is None and right is None:
            return None
        met = frozenset(
            (a, b) for a, b in pairs if (left is None or a in left) and (right is None or b in right)
        )
        if not met:
            return "a join does not compare the key"
        for side, held in enumerate(children):
            if held is None and inputs[side] in self._inside:
                return None
            asked = frozenset(pair[side] for pair in met)
            if inputs[side] not in self._inside and not self._outside(inputs[side], asked):
                return _TWO_KEYS
        if isinstance(node, logical.SemiJoin):
            return frozenset(a for a, _ in met)
        width = len(node.inputs[0].schema)
        return frozenset(a for a, _ in met) | frozenset(width + b for _, b in met)

    def _union(self, inputs: tuple[int, ...], children: list[Holders]) -> Holders | str:
        known = [held for held in children if held is not None]
        if not known:
            return None
        common = frozenset.intersection(*known)
        if not common:
            return "a union's branches have the key in different columns"
        for source, held in zip(inputs, children, strict=True):
            if held is None and source in self._inside:
                return None
            if source not in self._inside and not self._outside(source, common):
                return _TWO_KEYS
        return common


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
