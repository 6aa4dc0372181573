"""Where kernels write a batch whose length is not known beforehand."""

from __future__ import annotations

import numpy as np

from kasen.operators.batch import I64, Batch

# Not powers of two, so that equal places of different columns do not fall into the same cache set.
_FIRST_ROOM = 16_000
_KEPT_ROOM = 1_024_000


class OutBuffer:
    """Growable arrays like a batch's, used again for every batch."""

    __slots__ = ("arrays", "room", "width")

    def __init__(self, columns: int) -> None:
        self.width = columns + 1
        self._make(_FIRST_ROOM)

    def _make(self, room: int) -> None:
        self.room = room
        #: ts, sub, diff and data, as kernels take them.
        self.arrays: tuple[I64, I64, I64, I64] = (
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty((self.width, room), np.int64),
        )

    def grow(self) -> None:
        """Doubles the room; what is written stays."""
        old, n = self.arrays, self.room
        self._make(2 * n)
        for part, written in zip(self.arrays, old, strict=True):
            part[..., :n] = written

    def look(self, n: int) -> Batch:
        """The first n rows, valid until the next are written."""
        ts, sub, diff, data = self.arrays
        return Batch(ts[:n], sub[:n], diff[:n], data if n == self.room else data[:, :n].copy())

    def take(self, n: int) -> Batch:
        """The first n rows, in arrays of their own. The memory of a rare large answer is given back."""
        ts, sub, diff, data = self.arrays
        batch = Batch(ts[:n].copy(), sub[:n].copy(), diff[:n].copy(), data[:, :n].copy())
        if self.room > _KEPT_ROOM:
            self._make(_FIRST_ROOM)
        return batch
