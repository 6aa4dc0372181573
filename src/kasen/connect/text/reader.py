"""Reads a text file: a kernel finds the rows, columns are read in bulk, doubtful rows one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kasen.connect.chunk import Chunk, DeadLetter, Position
from kasen.connect.draft import Draft
from kasen.connect.layout import ColumnPositions, Layout
from kasen.connect.text import blocks as text_blocks
from kasen.connect.text.blocks import TextBlocks
from kasen.connect.text.columns import TextCells, read_column, read_diff
from kasen.connect.values import BAD_ROW, RefusedRow
from kasen.engine.batch import I64
from kasen.engine.text.kernels.csv_scan import FULL, NOT_CLOSED
from kasen.engine.text.kernels.marks import NULL

U8 = npt.NDArray[np.uint8]


class Spans:
    """Where a block's rows and wanted cells lie: what the scanning kernels write. Used again and again."""

    __slots__ = ("ends", "marks", "rows", "starts")

    def __init__(self, slots: int, capacity: int) -> None:
        self.starts: I64 = np.zeros((slots, capacity), np.int64)
        self.ends: I64 = np.zeros((slots, capacity), np.int64)
        self.marks: U8 = np.zeros((slots, capacity), np.uint8)
        self.rows: I64 = np.zeros((4, capacity), np.int64)


class Scanner(Protocol):
    """What differs between the formats of text."""

    @property
    def slots(self) -> ColumnPositions:
        """Which slot of the spans each column of the schema, and the diff column, is in."""
        ...

    @property
    def sure(self) -> int:
        """What the kernel writes into rows[3] of a row that has the right form."""
        ...

    @property
    def line_end(self) -> re.Pattern[bytes]:
        """What ends a line."""
        ...

    def scan(self, text: TextBlocks, spans: Spans) -> tuple[int, int, int, int]:
        """The number of rows found, the byte and the line to go on from, and why the scan stopped."""
        ...

    def look_ahead(self, text: TextBlocks) -> bool:
        """Finds out which records of the block do not end; False if that is known."""
        ...

    def cells(self, raw: str) -> Mapping[str, object]:
        """The row's cells by name in lower case; raises Refused if the row has not the right form."""
        ...


class TextReader:
    """One text file, whose rows begin at byte `begin` (behind a header), which is on line `line`."""

    def __init__(
        self, path: Path, layout: Layout, scanner: Scanner, begin: int, line: int, where: str, chunk_rows: int
    ) -> None:
        self.path = path
        self._layout = layout
        self._scanner = scanner
        self._begin = begin
        self._line = line
        self._where = where
        self._chunk_rows = chunk_rows

    def chunks(self, offset: int, line: int) -> Iterator[Chunk]:
        if offset < self._begin:
            offset, line = self._begin, self._line
        spans = Spans(1 + max(self._scanner.slots.wanted, default=-1), self._chunk_rows)
        with self.path.open("rb") as file:
            text = TextBlocks(file, offset, line)
            while text.more():
                yield from self._block(text, spans)

    def _block(self, text: TextBlocks, spans: Spans) -> Iterator[Chunk]:
        why = FULL
        while why == FULL:
            n, text.pos, text.line, why = self._scanner.scan(text, spans)
            if n:
                yield self._chunk(text, spans, n)
            if text.is_stuck(why):
                # What cannot be read is known once per block: a scan of the rest of the block for each
                # line would take the square of its size.
                if not self._scanner.look_ahead(text):
                    yield self._skip_line(text)
                why = FULL

    def _chunk(self, text: TextBlocks, spans: Spans, n: int) -> Chunk:
        draft = Draft(self._layout, n)
        rows = spans.rows[:, :n].copy()
        draft.unsure |= rows[3] != self._scanner.sure
        block = text.bytes
        _check_encoding(draft, block, rows)
        # Such rows are read one by one, so that no kernel need look at what is in them.
        spans.marks[:, np.flatnonzero(draft.unsure)] = NULL
        for index, slot in enumerate(self._scanner.slots.columns):
            read_column(draft, index, _cells(text.data, spans, slot, n))
        if self._scanner.slots.diff is not None:
            read_diff(draft, _cells(text.data, spans, self._scanner.slots.diff, n))

        def raw_of(row: int) -> str:
            return block[rows[0, row] : rows[1, row]].decode("utf-8", "backslashreplace")

        def cells_of(row: int) -> Mapping[str, object]:
            if rows[3, row] == NOT_CLOSED:
                raise RefusedRow(f"{BAD_ROW}: a quote is not closed")
            try:
                raw = block[rows[0, row] : rows[1, row]].decode("utf-8")
            except UnicodeDecodeError:
                raise RefusedRow(f"{BAD_ROW}: not UTF-8 text") from None
            return self._scanner.cells(raw)

        return draft.finish(rows[2], raw_of, cells_of, self._position(text), self._where)

    def _skip_line(self, text: TextBlocks) -> Chunk:
        line = text.line
        raw = text.skip_line(self._scanner.line_end).decode("utf-8", "backslashreplace")
        fault = f"{BAD_ROW}: longer than {text_blocks.MOST_RECORD_BYTES} bytes{self._where}"
        none = np.empty(0, np.int64)
        chunk = Draft(self._layout, 0).finish(none, str, lambda _: {}, self._position(text), self._where)
        chunk.dead.append(DeadLetter(self._layout.name, line, fault, raw))
        return chunk

    def _position(self, text: TextBlocks) -> Position:
        return Position(self.path.name, text.offset, text.line)


def _cells(data: U8, spans: Spans, slot: int, n: int) -> TextCells:
    # Two columns may be read from one slot, so the marks, which reading changes, are copied.
    return TextCells(data, spans.starts[slot, :n], spans.ends[slot, :n], spans.marks[slot, :n].copy())


def _check_encoding(draft: Draft, block: bytes, rows: I64) -> None:
    if _is_utf8(block[rows[0, 0] : rows[1, -1]]):
        return
    for row in range(rows.shape[1]):
        draft.unsure[row] |= not _is_utf8(block[rows[0, row] : rows[1, row]])


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
