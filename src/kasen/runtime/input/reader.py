"""Reads an input piece by piece, and knows where to go on after a restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kasen.connect.chunk import START, Chunk, DeadLetter, Position, Source
from kasen.connect.encode import encode
from kasen.engine.batch import Columns
from kasen.engine.text.dictionary import Dictionary
from kasen.runtime.input.feed import InputRows


@dataclass(slots=True)
class InputPiece:
    """Some rows of an input, the dead letters met on the way, and the chunk they are from.

    A row's position counts the input's rows from its start; minus `offset`, it is its row in the chunk.
    """

    rows: InputRows
    dead: list[DeadLetter]
    chunk: Chunk
    offset: int


class Reader:
    """Cuts a source's chunks into pieces of a wanted size.

    A place between two rows is told as the end of the last chunk that was finished, and how many rows
    and dead letters after it have been handed out: how a source cuts chunks never matters.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        timestamp: int | None,
        dictionary: Dictionary,
        place: Any = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """`clock` tells the time of rows that carry none; a static table's have none at all."""
        self._clock = clock
        self.name = name
        self._timestamp = timestamp
        self._dictionary = dictionary
        base, rows, dead, count = place if place is not None else (START, 0, 0, 0)
        self._base = Position(*base)
        self._count = int(count)
        self._skip_rows = self._rows_out = int(rows)
        self._skip_dead = self._dead_out = int(dead)
        self._chunks = source.chunks(self._base)
        self._chunk: Chunk | None = None
        self._data: Columns = ()
        self._next = 0

    def read(self, most: int | None) -> InputPiece | None:
        """The next rows, at most that many; None at the end. A piece may hold dead letters only."""
        dead: list[DeadLetter] = []
        if self._chunk is None or self._next >= len(self._chunk):
            chunk = self._open(dead)
            if chunk is None:
                return None
        assert self._chunk is not None
        first = self._next
        last = len(self._chunk) if most is None else min(len(self._chunk), first + most)
        self._next = last
        self._rows_out += last - first
        piece = InputPiece(self._rows(first, last), dead, self._chunk, self._count - first)
        self._count += last - first
        return piece

    def _open(self, dead: list[DeadLetter]) -> Chunk | None:
        """The next chunk, without what was handed out before a restart."""
        if self._chunk is not None:
            self._base = self._chunk.end
        chunk = next(self._chunks, None)
        if chunk is None:
            self._chunk, self._rows_out, self._dead_out = None, 0, 0
            return None
        self._chunk = chunk
        self._data = encode(chunk, self._dictionary)
        self._next = self._rows_out = min(self._skip_rows, len(chunk))
        self._skip_rows -= self._next
        skipped = min(self._skip_dead, len(chunk.dead))
        self._skip_dead -= skipped
        dead += chunk.dead[skipped:]
        self._dead_out = len(chunk.dead)
        return chunk

    def _rows(self, first: int, last: int) -> InputRows:
        assert self._chunk is not None
        data = [column[first:last] for column in self._data]
        count = last - first
        if self._timestamp is not None:
            ts = data[self._timestamp]
        else:
            ts = np.full(count, self._clock() if self._clock is not None else 0, np.int64)
        positions = range(self._count, self._count + count)
        return InputRows(ts, self._chunk.diff[first:last], data, positions)

    @property
    def place(self) -> tuple[Position, int, int, int]:
        """Where this reader stands, as `place` of a new one."""
        return self._base, self._rows_out, self._dead_out, self._count
