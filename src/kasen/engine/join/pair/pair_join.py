"""The join of two windows of which only what enters counts [WindowJoin], in blocks of arrivals.

Calls are taken in pieces that fit a core's cache. On two cores pairs of a piece are found while the arrivals
of the next enter (see pair_stages). What a piece finds never depends on how far the other core has got, so
the order of arrivals alone decides, as on one core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from kasen.engine import parallel
from kasen.engine.batch import I64, Batch, Frontier, empty, ones
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.multiway.probe_order import KeyClass, find_keys
from kasen.engine.join.multiway.rings import Side
from kasen.engine.join.pair.kernels import pair_join as kernel
from kasen.engine.join.pair.kernels import small_batch
from kasen.engine.join.pair.match import PAIRS, Arrivals, PairMatch
from kasen.engine.join.pair.output import PairOutput
from kasen.engine.join.pair.rows import PairRows, Pieces
from kasen.engine.join.pair.stages import PairStages
from kasen.engine.operator import Operator, State
from kasen.engine.window.held_tuples import HeldTuples, from_rows

#: Arrivals of a side that are received at once.
_PIECE = 1 << 14
# So few arrivals are joined by one kernel.
_FEW = 16

NO_MARKS: I64 = np.empty((0, 4), np.int64)


class PairJoin(Operator):
    """Pairs of rows, equal in each of `classes`, as they enter, net.

    `columns` are the output's, as (input, column): all of the inputs' columns, or equal ones.
    """

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        classes: Sequence[KeyClass],
        columns: Sequence[tuple[int, int]],
    ) -> None:
        keys = find_keys(2, classes)
        self._rows = PairRows(
            [Side(each.columns, each.kind, each.length, keys.columns(i)) for i, each in enumerate(inputs)]
        )
        self._columns: I64 = np.array([(i, 1 + c) for i, c in columns], np.int64).reshape(-1, 2)
        self._nothing = empty(len(columns))
        self._match = PairMatch(self._rows)
        self._stages: PairStages | None = None
        self._small_out: I64 = np.empty((small_batch.OUT_DATA + len(columns) + 1, PAIRS), np.int64)
        #: Of COUNTED windows, what each arrival of a call needs to know of the tuples on other shards.
        self._marks = NO_MARKS, NO_MARKS
        #: How many pairs an arrival brought lately.
        self._yield = 1.0

    # ------------------------------------------------------------ running

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        left, right = inputs
        arrivals = len(left) + len(right)
        if not arrivals:
            return self._nothing
        if arrivals <= _FEW and type(left) is Batch and type(right) is Batch:
            return self._run_small_batch(left, right)
        pieces = cuts(left.ts, right.ts)
        answer = self._run_all(inputs, pieces) if len(pieces) > 1 else self._run_one(inputs, pieces[0])
        if answer is None:
            self._yield /= 2
            return self._nothing
        self._yield = len(answer) / arrivals
        return answer

    def _run_small_batch(self, left: Batch, right: Batch) -> Batch:
        """One kernel for all: calls are what a few arrivals cost."""
        rows, match = self._rows, self._match
        cursor = match.cursor
        cursor[kernel.USED] = rows.used
        count = small_batch.join_small_batch(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads,
            left.ts, left.seq_tick, left.data, right.ts, right.seq_tick, right.data, *self._marks, cursor,
            match.work, match.words, match.found, match.pairs, self._columns, self._small_out,
        )  # fmt: skip
        if count >= 0:
            rows.used = cursor.item(kernel.USED)
            if not count:
                return self._nothing
            out = self._small_out[:, :count].copy()
            ts, seq_tick = out[small_batch.OUT_TS], out[small_batch.OUT_SEQ_TICK]
            return Batch(ts, seq_tick, ones(count), out[small_batch.OUT_DATA :])
        arrivals = left.seq_tick, right.seq_tick, *self._marks
        if count == small_batch.NO_ROOM:
            rows.receive((left, right), ((0, len(left)), (0, len(right))))
            count = match.match(arrivals)
        else:
            count = match.go_on(arrivals)
        return self._written(count, arrivals) or self._nothing

    def _run_one(self, inputs: Sequence[Batch], spans: Pieces) -> Batch | None:
        self._rows.receive(inputs, spans)
        arrivals = self._arrivals(inputs, spans)
        return self._written(self._match.match(arrivals), arrivals)

    def _written(self, count: int, arrivals: Arrivals) -> Batch | None:
        """The pairs just found."""
        if not count:
            return None
        answer = PairOutput(self._columns, 0 if self._match.cursor[kernel.CANCELS] else count)
        self._match.writing(answer, count, arrivals)()
        return answer.take()

    def _run_all(self, inputs: Sequence[Batch], pieces: Sequence[Pieces]) -> Batch | None:
        count = len(inputs[0]) + len(inputs[1])
        answer = PairOutput(self._columns, int(count * self._yield * 1.1) + PAIRS)
        if parallel.worth(count):
            if self._stages is None:
                self._stages = PairStages(self._match, 2 * _PIECE)
            self._stages.run(answer, inputs, pieces, partial(self._arrivals, inputs))
        else:
            for spans in pieces:
                self._rows.receive(inputs, spans)
                arrivals = self._arrivals(inputs, spans)
                self._match.writing(answer, self._match.match(arrivals), arrivals)()
        return answer.take()

    def _arrivals(self, inputs: Sequence[Batch], spans: Pieces) -> Arrivals:
        (i, j), (k, m) = spans
        return inputs[0].seq_tick[i:j], inputs[1].seq_tick[k:m], self._marks[0][i:j], self._marks[1][k:m]

    # ------------------------------------------------------------ time and state

    def snapshot(self) -> State:
        return self._rows.snapshot()

    def restore(self, state: State) -> None:
        self._rows.restore(state)

    def needs_input_since(self) -> Frontier | None:
        return min((since for side in (0, 1) if (since := self.oldest(side)) is not None), default=None)

    def held_tuples(self, position: int) -> HeldTuples:
        return from_rows(self._rows.rows(position))

    def oldest(self, position: int) -> Frontier | None:
        return self._rows.since(position)


def cuts(left: I64, right: I64) -> list[Pieces]:
    """Two lists of ascending times in pieces, those of one time always in the same."""
    if len(left) <= _PIECE and len(right) <= _PIECE:
        return [((0, len(left)), (0, len(right)))]
    return list(_cuts(left, right))


def _cuts(left: I64, right: I64) -> Iterator[Pieces]:
    i = j = 0
    most = _PIECE
    while i < len(left) or j < len(right):
        to, other = min(i + most, len(left)), min(j + most, len(right))
        ends = [int(ts[end]) for ts, end in ((left, to), (right, other)) if end < len(ts)]
        if ends:
            to = i + int(left[i:to].searchsorted(min(ends)))
            other = j + int(right[j:other].searchsorted(min(ends)))
        if to == i and other == j:
            most *= 2  # more of one time than a piece
            continue
        yield (i, to), (j, other)
        i, j, most = to, other, _PIECE
