"""Rows that kernels put out one after the other (kernels/report), made into a batch at the end."""

from __future__ import annotations

import numpy as np

from kasen.kernels.report import BESIDE, FRONT, to_columns
from kasen.operators.batch import I64, Batch

_FIRST_ROWS = 64
_MOST_ROWS = 1 << 18  # a buffer does not grow beyond this by itself


class RowBuffer:
    """A buffer for rows of so many columns, and the full ones before it."""

    def __init__(self, columns: int) -> None:
        self._words = columns + BESIDE
        self._full: list[I64] = []
        self.buffer: I64 = np.empty(_FIRST_ROWS * self._words, np.int64)

    @property
    def room(self) -> int:
        """For how many rows the buffer has room."""
        return len(self.buffer) // self._words

    def make_room(self, rows: int, wanted: int) -> None:
        """Puts the buffer's `rows` aside, so that it is empty and has room for at least `wanted` more."""
        if rows:
            self._full.append(self.buffer[: rows * self._words].copy())
        size = max(min(4 * len(self.buffer) // self._words, _MOST_ROWS), wanted)
        if size * self._words > len(self.buffer):
            self.buffer = np.empty(size * self._words, np.int64)

    def take(self, rows: int) -> Batch:
        """All rows put aside and the buffer's `rows` as a batch; nothing is left."""
        words = self._words
        size = rows
        for each in self._full:
            size += len(each) // words
        ts, sub, diff = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        data = np.empty((words - FRONT, size), np.int64)
        first = 0
        for each in self._full:
            to_columns(each, len(each) // words, ts, sub, diff, data, first)
            first += len(each) // words
        to_columns(self.buffer, rows, ts, sub, diff, data, first)
        self._full.clear()
        return Batch(ts, sub, diff, data)
