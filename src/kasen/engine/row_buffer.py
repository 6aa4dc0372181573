"""Rows that kernels emit one after the other (aggregate/kernels/report), made into a batch at the end.

A few rows go into memory of the operator's own. Many go into chunks that all operators share, one after the
other: memory that was just written to is the quickest, and a thousand queries need not hold it a thousand
times.
"""

from __future__ import annotations

import numpy as np

from kasen.engine.aggregate.kernels.report import BESIDE, FRONT, to_columns
from kasen.engine.batch import I64, Batch

_FIRST_ROWS, _MOST_OWN_ROWS = 64, 4096
#: The words of a chunk, and how many are kept while nobody uses them.
_CHUNK, _MOST_CHUNKS = 1 << 20, 4
#: Chunks that nobody uses. Threads take them and give them back: a list's `pop` and `append` are safe.
_chunks: list[I64] = []


class RowBuffer:
    """A buffer for rows of so many columns, and the full ones before it."""

    def __init__(self, columns: int) -> None:
        self._words = columns + BESIDE
        self._full: list[tuple[I64, int]] = []
        self._own: I64 = np.empty(_FIRST_ROWS * self._words, np.int64)
        self.buffer = self._own

    @property
    def room(self) -> int:
        """For how many rows the buffer has room."""
        return len(self.buffer) // self._words

    def make_room(self, rows: int, wanted: int) -> None:
        """Puts the buffer's `rows` aside, so that there is an empty one with room for `wanted` more."""
        self._full.append((self.buffer, rows))
        self.buffer = _borrowed(wanted * self._words)

    def lengthen(self) -> None:
        """More room behind the buffer's rows, for those who want them in one piece: the loop machine does."""
        self.buffer = np.concatenate([self.buffer, np.empty(3 * len(self.buffer), np.int64)])

    def take(self, rows: int) -> Batch:
        """All rows put aside and the buffer's `rows` as a batch; nothing is left."""
        words = self._words
        size = rows
        for _, count in self._full:
            size += count
        ts, seq_tick, diff = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
        data = np.empty((words - FRONT, size), np.int64)
        first = 0
        for buffer, count in self._full:
            to_columns(buffer, count, ts, seq_tick, diff, data, first)
            first += count
        to_columns(self.buffer, rows, ts, seq_tick, diff, data, first)
        if self._full:
            self._give_back(size)
        return Batch(ts, seq_tick, diff, data)

    def _give_back(self, rows: int) -> None:
        for buffer in (*(each for each, _ in self._full), self.buffer):
            if len(buffer) == _CHUNK and len(_chunks) < _MOST_CHUNKS:
                _chunks.append(buffer)
        self._full.clear()
        if len(self._own) < rows * self._words and rows <= _MOST_OWN_ROWS:
            self._own = np.empty(min(2 * rows, _MOST_OWN_ROWS) * self._words, np.int64)
        self.buffer = self._own


def _borrowed(words: int) -> I64:
    if words > _CHUNK:
        return np.empty(words, np.int64)
    try:
        return _chunks.pop()
    except IndexError:
        return np.empty(_CHUNK, np.int64)
