"""Columns of cells in text to columns of values: the kernels on whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kasen.connect.draft import Draft
from kasen.connect.values import GREATEST, LOWEST
from kasen.engine.batch import I64
from kasen.engine.text.kernels.cell_doubles import read_doubles
from kasen.engine.text.kernels.cell_texts import gather_texts
from kasen.engine.text.kernels.cell_timestamps import read_timestamps
from kasen.engine.text.kernels.cell_values import read_booleans, read_decimals, read_integers
from kasen.engine.text.kernels.marks import ABSENT, FALSE, NULL, NUMBER, READ, ROUND, TEXT, TRUE
from kasen.types import BIGINT, Kind, Type

U8 = npt.NDArray[np.uint8]

_RANGES = {Kind.INTEGER: (-(2**31), 2**31 - 1)}


class TextCells:
    """A column's cells: their spans in `bytes`, and marks, which reading changes."""

    __slots__ = ("bytes", "ends", "marks", "starts")

    def __init__(self, bytes_: U8, starts: I64, ends: I64, marks: U8) -> None:
        self.bytes = bytes_
        self.starts = starts
        self.ends = ends
        self.marks = marks


def read_column(draft: Draft, index: int, cells: TextCells) -> None:
    """Reads column `index` of the draft; cells that no kernel is sure of make their rows unsure."""
    type_ = draft.layout.schema[index].type
    if type_.kind is Kind.VARCHAR:
        draft.set_texts(index, _texts(cells))
    else:
        values = np.zeros(len(cells.marks), np.int64)
        _read_values(cells, type_, values)
        draft.data[index] = values
        draft.set_nulls(index, cells.marks <= NULL)
    _take_marks(draft, cells.marks)


def read_diff(draft: Draft, cells: TextCells) -> None:
    draft.diff = np.ones(len(cells.marks), np.int64)
    _read_values(cells, BIGINT, draft.diff)
    draft.diff[cells.marks == ABSENT] = 1
    draft.diff[cells.marks == NULL] = 0
    _take_marks(draft, cells.marks)
    draft.check_diff()


def _take_marks(draft: Draft, marks: U8) -> None:
    if marks.min(initial=READ) != READ or marks.max(initial=READ) != READ:
        draft.unsure |= (marks > NULL) & (marks != READ)


def _read_values(cells: TextCells, type_: Type, values: I64) -> None:
    spans = cells.bytes, cells.starts, cells.ends, cells.marks
    for mark in (TEXT, NUMBER):
        match type_.kind:
            case Kind.INTEGER | Kind.BIGINT:
                read_integers(*spans, mark, *_RANGES.get(type_.kind, (LOWEST, GREATEST)), values)
            case Kind.DECIMAL:
                read_decimals(*spans, mark, type_.scale, 10**type_.precision, values)
            case Kind.DOUBLE:
                _read_doubles(cells, mark, values)
            case Kind.TIMESTAMP if mark == NUMBER:
                read_integers(*spans, mark, LOWEST, GREATEST, values)
            case Kind.TIMESTAMP:
                read_timestamps(*spans, mark, values)
            case Kind.BOOLEAN if mark == TEXT:
                read_booleans(*spans, mark, values)
                _read_truths(cells.marks, values)


def _read_truths(marks: U8, values: I64) -> None:
    if marks.max(initial=READ) == READ and marks.min(initial=READ) == READ:
        return
    truths = marks == TRUE
    values[truths] = 1
    marks[truths | (marks == FALSE)] = READ


def _read_doubles(cells: TextCells, mark: int, values: I64) -> None:
    doubles = values.view(np.float64)
    read_doubles(cells.bytes, cells.starts, cells.ends, cells.marks, mark, doubles)
    long = np.flatnonzero(cells.marks == ROUND)
    if len(long):
        # The kernel has seen to the form, so Arrow's rounding of many digits is all that is asked for.
        marks = np.full(len(long), TEXT, np.uint8)
        texts = _texts(TextCells(cells.bytes, cells.starts[long], cells.ends[long], marks))
        doubles[long] = pc.utf8_trim(texts, " ").cast(pa.float64()).to_numpy()
        cells.marks[long] = READ
    doubles += 0.0  # -0.0 becomes 0.0


def _texts(cells: TextCells) -> pa.StringArray:
    """All texts, unescaped, as an Arrow array; NULL where there is no text."""
    n = len(cells.marks)
    offsets = np.empty(n + 1, np.int32)
    room = np.empty(int(np.subtract(cells.ends, cells.starts).sum()) if n else 0, np.uint8)
    size = gather_texts(cells.bytes, cells.starts, cells.ends, cells.marks, offsets, room)
    there = cells.marks == READ
    valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(room[:size]), valid)
