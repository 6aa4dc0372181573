"""Which steps of a graph can run on two cores at the same time.

A step *keeps to itself* if it changes nothing but its own state. Expressions do not (their failures are
counted in one place, and their texts enter the pipeline's dictionary), nor do users' functions; joins are
left out because they share their own work between cores. So the graph goes by phases: some steps one after
the other, then *strands* of steps that keep to themselves, of which none reads another. A step that several
read is the last of its strand, so that these can be in different ones, of the next phase. What a strand does
is the same on any core, and answers never tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kasen.operators.aggregate import Aggregate
from kasen.operators.bag import Bag
from kasen.operators.base import Operator
from kasen.operators.delay import Delay
from kasen.operators.ordinal_rows import OrdinalRows
from kasen.operators.pad import Pad
from kasen.operators.panes import SlidingAggregate
from kasen.operators.partition_window import PartitionRows
from kasen.operators.project import Project
from kasen.operators.sliding_member import Member
from kasen.operators.streamify import Inserted, Whole
from kasen.operators.touches import Reports, Touches
from kasen.operators.union import Union
from kasen.operators.window import Rows, Timed, Unbounded

#: A stage of a single step outside loops: its operator, and what it reads.
Alone = tuple[Operator, tuple[int, ...]]

_WINDOWS = (Unbounded, Timed, Rows, PartitionRows, OrdinalRows, Touches, Reports)
_KEPT = (*_WINDOWS, Aggregate, SlidingAggregate, Member, Bag, Union, Inserted, Whole, Delay, Pad)


@dataclass(frozen=True, slots=True)
class Strand:
    """Steps in an order in which inputs come first, what they read of others, and those only they read."""

    steps: tuple[int, ...]
    sources: tuple[int, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that go one by one, then strands that may go side by side."""

    steps: tuple[int, ...]
    strands: tuple[Strand, ...]


def keeps_to_itself(operator: Operator) -> bool:
    if isinstance(operator, Project):
        return operator.is_plain
    return isinstance(operator, _KEPT)


def phases_of(stages: Mapping[int, Alone]) -> list[Phase]:
    """The phases of steps that are given in an order in which inputs come first."""
    readers = Counter(source for _, inputs in stages.values() for source in set(inputs))
    ranks: dict[int, int] = {}  # even: one by one; odd: in strands
    for step, (operator, inputs) in stages.items():
        kept = int(keeps_to_itself(operator))
        ranks[step] = kept
        for source in inputs:
            if source in ranks:
                same = 2 if kept and readers[source] > 1 else 0
                least = ranks[source] + (same if ranks[source] % 2 == kept else 1)
                ranks[step] = max(ranks[step], least)
    phases = []
    for first in range(0, max(ranks.values(), default=-1) + 1, 2):
        one_by_one = tuple(step for step, rank in ranks.items() if rank == first)
        kept_steps = {step: stages[step] for step, rank in ranks.items() if rank == first + 1}
        phases.append(Phase(one_by_one, tuple(_strands(kept_steps, readers))))
    return phases


def _strands(stages: Mapping[int, Alone], readers: Mapping[int, int]) -> Iterator[Strand]:
    """Steps that are connected, be it by windows that they share; `readers` counts those of all steps."""
    leaders = {step: step for step in stages}

    def leader(step: int) -> int:
        while leaders[step] != step:
            leaders[step] = step = leaders[leaders[step]]
        return step

    sharing: dict[int, int] = {}
    for step, (operator, inputs) in stages.items():
        for source in inputs:
            if source in stages:
                leaders[leader(step)] = leader(source)
        if isinstance(operator, Member) and operator.windows is not None:
            leaders[leader(step)] = leader(sharing.setdefault(id(operator.windows), step))
    strands: dict[int, list[int]] = {}
    for step in stages:
        strands.setdefault(leader(step), []).append(step)
    for steps in strands.values():
        read = Counter(source for step in steps for source in set(stages[step][1]))
        inner = (step for step in steps if 0 < readers[step] == read[step])
        yield Strand(tuple(steps), tuple(source for source in read if source not in stages), tuple(inner))
