"""Left rows that have, or lack, a match on the right: EXISTS, IN, NOT EXISTS, and the rest of outer joins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, empty
from kasen.engine.join.hash.kernels.hash_join import DONE, LEFT_FULL, OUTPUT_FULL, RIGHT_FULL
from kasen.engine.join.semi.kernels import semi_join as by_keys
from kasen.engine.join.semi.kernels import semi_pairs as by_pairs
from kasen.engine.kernels.multimap import WORDS
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import lend
from kasen.engine.out_buffer import ROOM, OutBuffer, Residual
from kasen.engine.row_store import RowStore, TwoBags
from kasen.engine.window.held_tuples import HeldTuples


class SemiJoin(TwoBags):
    """The left rows with at least one right row whose keys are equal, none of them NULL, and for which
    `residual` is true of the pair; with `anti`, the left rows without one.

    A left row with a NULL in its key matches nothing, so with `anti` it stays: this is NOT EXISTS.
    What a right row's coming and going changes is net within an instant; diffs carry multiplicity.
    """

    loop_kind = loop_table.SEMI_JOIN

    def __init__(
        self,
        left_columns: int,
        right_columns: int,
        left_keys: tuple[int, ...],
        right_keys: tuple[int, ...],
        residual: Residual | None,
        anti: bool,
    ) -> None:
        keys = len(right_keys)
        if residual is None:
            left = RowStore(left_columns + 1, left_keys)
            super().__init__(left, RowStore(keys, tuple(range(keys)), payload=1))
        else:
            left = RowStore(left_columns + 1, left_keys, by_pairs.PAYLOAD)
            super().__init__(left, RowStore(right_columns + 1, right_keys))
            self._pairs = OutBuffer(left_columns + right_columns)
            self._pair_slots: I64 = np.empty(ROOM, np.int64)
        self._right_keys: I64 = np.array(right_keys, np.int64)
        self._right_null = sum(1 << key for key in set(right_keys))
        self._loop_keys: I64 = np.empty(0, np.int64)  # where the loop machine puts the right changes' keys
        self._residual = residual
        self._anti = anti
        self._out = OutBuffer(left_columns)
        self._nothing = empty(left_columns)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        left, right = inputs
        if not len(left) and not len(right):
            return self._nothing
        if self._residual is None:
            written = self._match_keys(left, right)
        else:
            written = self._match_pairs(left, right, self._residual)
        return self._out.take(written)

    def _match_keys(self, left: Batch, right: Batch) -> int:
        keys = right.data[self._right_keys]
        cursor = by_keys.BEGINNING.copy()
        status = -1
        while status != DONE:
            status = by_keys.semi_join(
                left.ts, left.seq_tick, left.diff, left.data, *self._left.arrays,
                right.ts, right.seq_tick, right.diff, keys, right.nulls, *self._right.arrays,
                self._right_null, self._anti, *self._out.arrays, cursor,
            )  # fmt: skip
            if status == LEFT_FULL:
                self._left.grow()
            elif status == RIGHT_FULL:
                self._right.grow()
            elif status == OUTPUT_FULL:
                self._out.next_chunk()
                cursor[by_keys.WRITTEN] = 0
        return int(cursor[by_keys.WRITTEN])

    def _match_pairs(self, left: Batch, right: Batch, residual: Residual) -> int:
        where = np.empty(len(left), np.int64)
        cursor = by_pairs.BEGINNING.copy()
        settled = by_pairs.SETTLE_BEGINNING.copy()
        status = -1
        while status != DONE:
            status = by_pairs.find_pairs(
                left.ts, left.seq_tick, left.diff, left.data, *self._left.arrays,
                right.ts, right.seq_tick, right.diff, right.data, *self._right.arrays,
                where, self._pair_slots, *self._pairs.arrays, cursor,
            )  # fmt: skip
            if status == RIGHT_FULL:
                self._right.grow()
                continue
            pairs = self._pairs.look(int(cursor[by_pairs.WRITTEN]))
            cursor[by_pairs.WRITTEN] = 0
            kept = np.flatnonzero(residual(pairs)) if len(pairs) else np.empty(0, np.intp)
            slots = self._pair_slots[kept]
            self._settle(
                left, where, int(cursor[by_pairs.LEFT]), pairs.take(kept), slots, settled, status == DONE
            )
            by_pairs.recycle(self._left.slots, self._left.counts, WORDS + self._left.words, cursor)
            # Most of a full bag may have been rows that waited to be settled.
            if status == LEFT_FULL and self._left.is_half_full():
                self._left.grow()
        return int(settled[by_pairs.SETTLED])

    def _settle(
        self, left: Batch, where: I64, end: int, pairs: Batch, pair_slots: I64, cursor: I64, last: bool
    ) -> None:
        cursor[by_pairs.NEXT_PAIR] = 0
        while by_pairs.settle(
            left.ts, left.seq_tick, left.diff, left.data, where, end, self._left.slots,
            pairs.ts, pairs.seq_tick, pairs.diff, pair_slots, self._anti, last, *self._out.arrays, cursor,
        ) == OUTPUT_FULL:  # fmt: skip
            self._out.next_chunk()
            cursor[by_pairs.SETTLED] = 0

    def held_tuples(self, position: int) -> HeldTuples:
        assert position == 0, "of the right side only keys are held"
        return super().held_tuples(position)

    def lend_state(self, row: I64) -> None:
        super().lend_state(row)
        row[loop_state.RIGHT_NULL], row[loop_state.ANTI] = self._right_null, int(self._anti)
        lend(row, loop_state.RIGHT_COLUMNS, self._right_keys, size=False)
        self._loop_keys = np.empty(len(self._right_keys) * row[loop_table.ROOM], np.int64)
        lend(row, loop_state.RIGHT_KEYS, self._loop_keys, size=False)
