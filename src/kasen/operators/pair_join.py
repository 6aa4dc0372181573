"""The join of two windows of which only what enters counts: document A's, in blocks of arrivals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kasen.kernels import pair_join as kernel
from kasen.kernels import pair_output as output
from kasen.kernels import rings
from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound, are_zeros, empty, ones, zeros
from kasen.operators.join import Residual, satisfying
from kasen.operators.mjoin import NETTED, Seen
from kasen.operators.net import net
from kasen.operators.pair_rows import PairRows
from kasen.operators.probe_order import KeyClass, find_keys
from kasen.operators.rings import Side

_NOTHING = np.empty(0, np.int64)
# Room for pairs at first; a rare large answer's is given back.
_PAIRS = 1 << 12
_MANY_PAIRS = 1 << 20


def runs_as_pair(inputs: Sequence[Seen], mode: int) -> bool:
    """Whether PairJoin can do this join: windows kept inside, and nothing that leaves is to be put out."""
    nothing_leaves = mode == NETTED or all(each.kind == rings.UNBOUNDED for each in inputs)
    return len(inputs) == 2 and nothing_leaves and all(each.kind != rings.BAG for each in inputs)


class PairJoin:
    """Pairs of rows, equal in each of `classes`, for which `residuals` are true, as they enter, net.

    `columns` are the output's, as (input, column): all of the inputs' columns, or equal ones.
    """

    def __init__(
        self,
        inputs: Sequence[Seen],
        classes: Sequence[KeyClass],
        columns: Sequence[tuple[int, int]],
        residuals: Sequence[Residual] = (),
    ) -> None:
        keys = find_keys(2, classes)
        self._rows = PairRows(
            [Side(each.columns, each.kind, each.length, keys.columns(i)) for i, each in enumerate(inputs)]
        )
        self._columns: I64 = np.array([(i, 1 + c) for i, c in columns], np.int64).reshape(-1, 2)
        self._residuals = tuple(residuals)
        self._nothing = empty(len(columns))
        self._cursor: I64 = np.zeros(kernel.CURSOR, np.int64)
        self._cursor[[kernel.SIZE, kernel.SPAN]] = kernel.BLOCK
        self._work = np.empty((kernel.WORK, kernel.BLOCK), np.int32)
        self._words: I64 = np.empty(kernel.BLOCK, np.int64)
        self._found = np.empty((2, kernel.FOUND), np.int32)
        self._pairs = np.empty((3, _PAIRS), np.int32)

    # ------------------------------------------------------------ running

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        del upto
        left, right = inputs
        if not len(left) and not len(right):
            return self._nothing
        self._rows.receive(inputs)
        count = self._match(left.sub, right.sub)
        if len(self._rows.keys[0]) > 1:
            rows = self._rows
            count = int(output.verify(rows.store, rows.cfg, rows.keys, self._pairs, count))
        if not count:
            return self._nothing
        answer = self._output(count, left.sub, right.sub)
        for residual in self._residuals:
            answer = satisfying(answer, residual)
        if self._cursor[kernel.CANCELS]:
            answer = net(answer)
            answer = answer.where(answer.diff > 0)
        self._give_back(count)
        return answer

    def _match(self, l_sub: I64, r_sub: I64) -> int:
        """Finds the pairs of the call's arrivals; returns how many."""
        rows, cursor = self._rows, self._cursor
        cursor[: kernel.PHASE] = 0
        cursor[kernel.CANCELS], cursor[kernel.USED] = 0, rows.used
        while status := kernel.match(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads, l_sub, r_sub, cursor,
            self._work, self._words, self._found, self._pairs,
        ):  # fmt: skip
            if status == kernel.PAIRS_FULL:
                self._pairs = _wider(self._pairs)
            else:
                rows.make_slots(int(cursor[kernel.WANTED]))
                cursor[kernel.USED] = rows.used
        rows.used = int(cursor[kernel.USED])
        return int(cursor[kernel.WRITTEN])

    def _output(self, count: int, l_sub: I64, r_sub: I64) -> Batch:
        """The pairs as changes."""
        store, cfg, pairs = self._rows.store, self._rows.cfg, self._pairs
        ts, data = np.empty(count, np.int64), np.empty((len(self._columns) + 1, count), np.int64)
        output.gather(store, cfg, pairs, self._columns, 0, count, data)
        if self._cursor[kernel.CANCELS]:
            sub, diff = np.empty(count, np.int64), np.empty(count, np.int64)
            output.mixed_instants(store, cfg, pairs, np.concatenate([l_sub, r_sub]), ts, sub, diff)
            return Batch(ts, sub, diff, data)
        if are_zeros(l_sub) and are_zeros(r_sub):
            sub, subs = zeros(count), _NOTHING
        else:
            sub, subs = np.empty(count, np.int64), np.concatenate([l_sub, r_sub])
        output.instants(store, cfg, pairs, subs, 0, count, ts, sub)
        return Batch(ts, sub, ones(count), data)

    def _give_back(self, count: int) -> None:
        room = self._pairs.shape[1]
        if room > _MANY_PAIRS and count < room // 8:
            self._pairs = np.empty((3, _PAIRS), np.int32)

    # ------------------------------------------------------------ time and state

    def next_instant(self) -> Bound | None:
        return None

    def snapshot(self) -> State:
        return self._rows.snapshot()

    def restore(self, state: State) -> None:
        self._rows.restore(state)

    def needs_input_since(self) -> Bound | None:
        return min((since for side in (0, 1) if (since := self.oldest(side)) is not None), default=None)

    def oldest(self, i: int) -> Bound | None:
        """The oldest tuple of input i in its window; None if there is none."""
        return self._rows.since(i)


def _wider(pairs: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    wider = np.empty((3, 2 * pairs.shape[1]), np.int32)
    wider[:, : pairs.shape[1]] = pairs
    return wider
