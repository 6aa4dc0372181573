"""The ends of parallel join trees [LowDelayJoin]: changes are numbered at the leaves, results selected.

Tree i joins input i, next to its root, with all others, and only what input i's changes cause counts. When
several inputs change at one instant, their changes have to come one input after the other in every tree,
so that no combination is found twice or not at all: the number of the input becomes part of the instant.
"""

from __future__ import annotations

from collections.abc import Sequence

from kasen.engine.batch import Batch, Frontier, merge
from kasen.engine.operator import Operator

# Room for the number of an input beside an instant's seq and tick.
BITS = 6
MOST_INPUTS = 1 << BITS


class InputNumbering(Operator):
    """The changes of one input, each instant followed by the input's number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        if not len(batch):
            return batch
        return Batch(batch.ts, (batch.seq_tick << BITS) | self._number, batch.diff, batch.data)


class TreeSelection(Operator):
    """The results of all trees in order, at their own instants again."""

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = merge(inputs, self._columns)
        return Batch(batch.ts, batch.seq_tick >> BITS, batch.diff, batch.data)
