"""Where kernels write a batch whose length is not known beforehand."""

from __future__ import annotations

import numpy as np

from kasen.engine.batch import I64, Batch

# Rows of a chunk. Not a power of two, so that equal places of different columns do not fall into the same
# cache set.
ROOM = 16_000
# A rare large answer's memory is given back, except for this many chunks.
_KEPT = 64

Chunk = tuple[I64, I64, I64, I64]


class OutBuffer:
    """Chunks of arrays like a batch's, used again for every batch."""

    __slots__ = ("_chunks", "_full", "_width", "arrays")

    def __init__(self, columns: int) -> None:
        self._width = columns + 1
        self._chunks = [self._chunk()]
        self._full = 0
        #: ts, sub, diff and data of the chunk to write, as kernels take them.
        self.arrays = self._chunks[0]

    def _chunk(self) -> Chunk:
        ts, seq_tick, diff = (np.empty(ROOM, np.int64) for _ in range(3))
        return ts, seq_tick, diff, np.empty((self._width, ROOM), np.int64)

    def next_chunk(self) -> None:
        """The chunk is full: on to the next."""
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
