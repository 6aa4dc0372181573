"""Where kernels write a batch whose length is not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, concat

# Rows of a chunk. Not a power of two, so that equal places of different columns do not fall into the same
# cache set.
ROOM = 16_000
# A rare large answer's memory is given back, except for this many chunks.
_KEPT = 64

Chunk = tuple[I64, I64, I64, I64]
#: A condition over joined rows: which of a batch's rows satisfy it.
Residual = Callable[[Batch], npt.NDArray[np.bool_]]


class OutBuffer:
    """Chunks of arrays like a batch's, used again for every batch.

    Only rows for which all `residuals` are true are put out. Most may fail, so they are tried chunk by chunk
    rather than all kept first.
    """

    __slots__ = ("_chunks", "_full", "_kept", "_residuals", "_width", "arrays")

    def __init__(self, columns: int, residuals: Sequence[Residual] = ()) -> None:
        self._width = columns + 1
        self._residuals = tuple(residuals)
        self._kept: list[Batch] = []
        self._chunks = [self._chunk()]
        self._full = 0
        #: ts, seq_tick, diff and data of the chunk to write, as kernels take them.
        self.arrays = self._chunks[0]

    def _chunk(self) -> Chunk:
        ts, seq_tick, diff = (np.empty(ROOM, np.int64) for _ in range(3))
        return ts, seq_tick, diff, np.empty((self._width, ROOM), np.int64)

    def next_chunk(self) -> None:
        """The chunk is full: on to the next."""
        if self._residuals:
            self._kept.append(self._satisfying(ROOM))
            return
        self._full += 1
        if self._full == len(self._chunks):
            self._chunks.append(self._chunk())
        self.arrays = self._chunks[self._full]

    def look(self, n: int) -> Batch:
        """The first n rows of the chunk, valid until the next are written."""
        ts, seq_tick, diff, data = self.arrays
        return Batch(ts[:n], seq_tick[:n], diff[:n], data if n == ROOM else data[:, :n].copy())

    def take(self, n: int) -> Batch:
        """The full chunks and n rows of the last, in arrays of their own. The buffer is empty again."""
        if self._residuals:
            kept, self._kept = [*self._kept, self._satisfying(n)], []
            return concat(kept, self._width - 1)
        ts, seq_tick, diff, data = self.arrays
        if not self._full:
            return Batch(ts[:n].copy(), seq_tick[:n].copy(), diff[:n].copy(), data[:, :n].copy())
        parts = [*self._chunks[: self._full], (ts[:n], seq_tick[:n], diff[:n], data[:, :n])]
        ts, seq_tick, diff, data = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
        batch = Batch(ts, seq_tick, diff, data)
        del self._chunks[_KEPT:]
        self._full = 0
        self.arrays = self._chunks[0]
        return batch

    def _satisfying(self, n: int) -> Batch:
        """Of the chunk's first n rows those that residuals are true of, in arrays of their own."""
        rows = self.look(n)
        for residual in self._residuals:
            rows = rows.take(np.flatnonzero(residual(rows))) if len(rows) else rows
        return rows
