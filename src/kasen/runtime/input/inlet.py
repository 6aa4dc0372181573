"""The way in for rows that a program pushes to one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kasen.connect.chunk import Chunk
from kasen.connect.encode import encode
from kasen.connect.memory.row_reader import RowReader
from kasen.connect.memory.source import chunk_of, chunk_of_numbers
from kasen.connect.registry import layout_of_input
from kasen.engine.batch import Columns
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.runtime.input.reader import InputPiece

#: Larger tables are taken in pieces, which answers can follow closely.
_MOST_ROWS = 1 << 19


def _never() -> int:
    return 0


class Inlet:
    """Counts an input's rows, and stamps those that carry no time with that of their arrival."""

    def __init__(self, input_: Input, dictionary: Dictionary, now: Callable[[], int]) -> None:
        self.name = input_.name
        self._timestamp = input_.timestamp
        self._dictionary = dictionary
        # A static table's rows have no time at all.
        self._now: Callable[[], int] = _never if input_.is_relation else now
        self._layout = layout_of_input(input_)
        self._reader = RowReader(self._layout, dictionary)
        self._count = 0

    def pieces(self, rows: Any) -> list[InputPiece]:
        """The rows, all of them read: whoever pushes what cannot be read learns it before any of it runs."""
        if isinstance(rows, Sequence) and (numbers := self._reader.read(rows)) is not None:
            chunk = chunk_of_numbers(self._layout, rows, numbers, self._count)
            return [self._piece(chunk, numbers)]
        if isinstance(rows, pa.Table | pa.RecordBatch) and len(rows) > _MOST_ROWS:
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            return [self._read(batch) for batch in table.to_batches(max_chunksize=_MOST_ROWS)]
        return [self._read(rows)]

    def _read(self, rows: Any) -> InputPiece:
        chunk = chunk_of(self._layout, rows, self._count)
        return self._piece(chunk, encode(chunk, self._dictionary))

    def _piece(self, chunk: Chunk, data: Columns) -> InputPiece:
        before, count = self._count, len(chunk)
        self._count += count + len(chunk.dead)
        if self._timestamp is not None:
            ts = data[self._timestamp]
        else:
            ts = np.full(count, self._now(), np.int64)
        return InputPiece(
            InputRows(ts, chunk.diff, data, range(before, before + count)), chunk.dead, chunk, before
        )
