"""The join of two windows on a shard, where [ROWS n] counts tuples that other shards have.

A shard's tuples carry their ordinals in the whole stream, and the shard knows the instants of all tuples. So
at any instant it can tell the last ordinal that has left a window, wherever that tuple is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.join.multiway import rings
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.multiway.probe_order import KeyClass
from kasen.engine.join.pair.kernels.pair_join import count_marks
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.engine.operator import State


class CountedPairJoin(PairJoin):
    """PairJoin whose COUNTED inputs have ordinals, from 1, as their first column.

    Behind the two inputs come, for each that is COUNTED, the instants of all tuples of its stream.
    """

    def __init__(
        self, inputs: Sequence[JoinInput], classes: Sequence[KeyClass], columns: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__(inputs, classes, columns)
        self._counted = [at for at, each in enumerate(inputs) if each.kind == rings.COUNTED]
        #: The last ordinal that has left each window; below 1, none has.
        self._gone = [-each.length for each in inputs]

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        left, right, *every = inputs
        self._marks = self._marked(left, every), self._marked(right, every)
        for at, instants in zip(self._counted, every, strict=True):
            self._gone[at] += len(instants)
        return super().process((left, right), upto)

    def _marked(self, arrivals: Batch, every: Sequence[Batch]) -> I64:
        marks: I64 = np.empty((len(arrivals), 4), np.int64)
        for at, instants in zip(self._counted, every, strict=True):
            count_marks(
                arrivals.ts, arrivals.seq_tick, instants.ts, instants.seq_tick, self._gone[at], at, marks
            )
        return marks

    def snapshot(self) -> State:
        return {**super().snapshot(), "gone": np.array(self._gone, np.int64)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._gone = state["gone"].tolist()
