"""The answer of a join of two windows, written piece by piece."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, are_zeros, ones, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection, selection_of
from kasen.engine.join.pair.kernels import output as kernel
from kasen.engine.join.pair.kernels.rows import ANY_NULLS
from kasen.engine.stream.net import net

I32 = npt.NDArray[np.int32]
_NOTHING = np.empty(0, np.int64)


class PairOutput:
    """Pairs as changes, in arrays that may be longer than what they hold.

    `columns` are as the kernel takes them; `room` is for how many pairs there is room at first. Subs and NULL
    bits are written only from the first on that is not 0, which often never comes.
    """

    def __init__(self, columns: I64, room: int) -> None:
        self._columns = columns
        self._count = 0
        self._any_seq_ticks = self._any_nulls = False
        self._parts: list[RowSelection] = []
        self._make(room)

    def _make(self, room: int) -> None:
        self._ts = np.empty(room, np.int64)
        self._seq_tick = np.empty(room, np.int64) if self._any_seq_ticks else _NOTHING
        self._data: I64 = np.empty((len(self._columns) + 1, room), np.int64)

    def make_room(self, count: int) -> int:
        """Room for so many more pairs; returns where the first of them goes."""
        at = self._count
        if at + count > len(self._ts):
            ts, seq_tick, data = self._ts, self._seq_tick, self._data
            self._make(max(at + count, len(ts) * 3 // 2))
            self._ts[:at], self._seq_tick[:at], self._data[:, :at] = ts[:at], seq_tick[:at], data[:, :at]
        self._count += count
        return at

    def write(
        self, at: int, store: I64, cfg: I64, pairs: I32, count: int, l_seq_tick: I64, r_seq_tick: I64
    ) -> None:
        """Writes pairs that enter to where `make_room` made room for them."""
        seq_ticks = _NOTHING
        if not (are_zeros(l_seq_tick) and are_zeros(r_seq_tick)) or self._any_seq_ticks:
            seq_ticks = np.concatenate([l_seq_tick, r_seq_tick])
            if not self._any_seq_ticks:
                self._any_seq_ticks, self._seq_tick = True, np.zeros(len(self._ts), np.int64)
        kernel.instants(store, cfg, pairs, seq_ticks, count, self._ts, self._seq_tick, at)
        kernel.gather(store, cfg, pairs, self._columns, count, self._data, at)
        if self._any_nulls or cfg[0, ANY_NULLS] or cfg[1, ANY_NULLS]:
            if not self._any_nulls:
                self._any_nulls, self._data[-1, :at] = True, 0
            kernel.gather_nulls(store, cfg, pairs, self._columns, count, self._data, at)

    def write_netted(
        self, store: I64, cfg: I64, pairs: I32, count: int, l_seq_tick: I64, r_seq_tick: I64
    ) -> None:
        """Writes pairs some of which leave: of each instant, what enters net."""
        ts, seq_tick, diff = (np.empty(count, np.int64) for _ in range(3))
        data = np.empty((len(self._columns) + 1, count), np.int64)
        kernel.mixed_instants(store, cfg, pairs, np.concatenate([l_seq_tick, r_seq_tick]), ts, seq_tick, diff)
        kernel.gather(store, cfg, pairs, self._columns, count, data, 0)
        kernel.gather_nulls(store, cfg, pairs, self._columns, count, data, 0)
        netted = net(Batch(ts, seq_tick, diff, data))
        netted = netted.where(netted.diff > 0)
        self._end_part()
        if len(netted):
            self._parts.append(selection_of(netted))

    def _end_part(self) -> None:
        count = self._count
        if count:
            seq_tick = self._seq_tick[:count] if self._any_seq_ticks else zeros(count)
            columns = [column[:count] for column in self._data]
            if not self._any_nulls:
                columns[-1] = zeros(count)
            self._parts.append(RowSelection(self._ts[:count], seq_tick, ones(count), columns))
            self._count = 0
            self._make(len(self._ts))

    def take(self) -> Batch | None:
        """All that was written, if anything was."""
        count = self._count
        if not self._parts and count == len(self._ts) > 0:
            seq_tick = self._seq_tick if self._any_seq_ticks else zeros(count)
            if not self._any_nulls:
                self._data[-1] = 0
            return Batch(self._ts, seq_tick, ones(count), self._data, whole=not self._any_nulls)
        self._end_part()
        return DeferredBatch(self._parts, is_fresh=True) if self._parts else None
