"""Tables of changes to the text of csv and JSON files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from kasen.connect.arrow_columns import fixed_values, null_flags
from kasen.engine.batch import I64
from kasen.engine.text.kernels.row_text import (
    BOOLEAN,
    DOUBLE,
    MOST_BYTES,
    NUMBER,
    QUOTED_TIMESTAMP,
    TEXT,
    TIMESTAMP,
    write_rows,
)

U8 = npt.NDArray[np.uint8]

#: So many rows are made text at once, so that the text stays small beside the rows.
_ROWS_AT_ONCE = 1 << 16
#: Up to so many values, Python's own way is quicker than Arrow's.
_FEW = 32
#: Between these, Arrow's text of a DOUBLE is Python's, save for the ".0" of a whole number. Beyond them the
#: two disagree on when to write an exponent.
_SAME_LOW, _SAME_HIGH = 1e-3, 1e9

_NEEDS_QUOTES = re.compile(r'^$|[,"\r\n]|^ | $')


def csv_text(text: str) -> str:
    """Quoted only where a reader would see something else: the empty string is not NULL."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class RowWriter:
    """How rows of one schema are written.

    `pieces` stand before, between and behind the columns: one more than there are columns. `text` writes
    a string; `quoted`: times, NaN and the infinities are written as strings.
    """

    def __init__(
        self, schema: pa.Schema, pieces: list[str], null: str, text: Callable[[str], str], quoted: bool
    ) -> None:
        self._text = text
        self._quoted = quoted
        self._kinds = np.array([_kind(field.type, quoted) for field in schema], np.int64)
        scales = [field.type.scale if pat.is_decimal(field.type) else 0 for field in schema]
        self._scales = np.array(scales, np.int64)
        encoded = [piece.encode() for piece in pieces]
        self._pieces = np.frombuffer(b"".join(encoded), np.uint8)
        self._bounds = np.cumsum([0, *(len(piece) for piece in encoded)], dtype=np.int64)
        self._null = np.frombuffer(null.encode(), np.uint8)
        self._row_bytes = len(self._pieces) + len(schema) * max(len(null), MOST_BYTES)

    def rows(self, table: pa.Table) -> list[memoryview]:
        """The rows' text, in parts."""
        return [self._write(batch) for batch in table.to_batches(_ROWS_AT_ONCE)]

    def _write(self, batch: pa.RecordBatch) -> memoryview:
        n = len(batch)
        values = np.empty((batch.num_columns, n), np.int64)
        nulls = np.zeros((batch.num_columns, n), np.uint8)
        pool = _Pool()
        for index, column in enumerate(batch.columns):
            if column.null_count:
                nulls[index] = null_flags(column)
            if self._kinds[index] == TEXT:
                self._add_texts(column, values[index], pool)
            elif self._kinds[index] == DOUBLE:
                self._add_doubles(column, values[index], pool)
            else:
                values[index] = _numbers(column)
        text, bounds = pool.arrays()
        room, lengths = n * self._row_bytes, np.diff(bounds)
        for column in values[self._kinds >= TEXT]:
            room += int(lengths[column].sum())
        out = np.empty(room, np.uint8)
        size = write_rows(
            self._kinds,
            self._scales,
            values,
            nulls,
            text,
            bounds,
            self._pieces,
            self._bounds,
            self._null,
            out,
        )
        return out[:size].data

    def _add_texts(self, column: pa.StringArray, values: I64, pool: _Pool) -> None:
        """Each distinct text is written once."""
        if len(column) <= _FEW:
            values[:] = pool.add([self._text(text or "") for text in column.to_pylist()])
            return
        encoded = column.dictionary_encode()
        indices = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(column)]
        texts = [self._text(text) for text in encoded.dictionary.to_pylist()]
        # The index of a NULL may be anything, even where there are no texts at all.
        positions = pool.add(texts or [""])
        values[:] = positions[np.clip(indices, 0, len(positions) - 1)]

    def _add_doubles(self, column: pa.DoubleArray, values: I64, pool: _Pool) -> None:
        numbers = fixed_values(column)
        if len(column) <= _FEW:
            values[:] = pool.add([self._double(number) for number in numbers.tolist()])
            return
        values[:] = pool.add_array(column.fill_null(0.0).cast(pa.string()))
        size = np.abs(numbers)
        odd = np.flatnonzero(~((size >= _SAME_LOW) & (size < _SAME_HIGH)) & (size != 0.0))
        values[odd] = pool.add([self._double(number) for number in numbers[odd].tolist()])

    def _double(self, number: float) -> str:
        """Python's repr is the shortest text that reads back as the same number."""
        if math.isfinite(number):
            return repr(number)
        text = "NaN" if math.isnan(number) else repr(number)
        return json_text(text) if self._quoted else text


class _Pool:
    """Texts one after the other, known by their number."""

    def __init__(self) -> None:
        self._parts: list[U8] = []
        self._lengths: list[I64] = []
        self._count = 0

    def add(self, texts: list[str]) -> I64:
        """The texts' numbers."""
        encoded = [text.encode() for text in texts]
        lengths = np.array([len(text) for text in encoded], np.int64)
        return self._append(np.frombuffer(b"".join(encoded), np.uint8), lengths)

    def add_array(self, texts: pa.StringArray) -> I64:
        offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        return self._append(data, np.diff(offsets).astype(np.int64))

    def arrays(self) -> tuple[U8, I64]:
        """All texts, and where each begins; one more for the end of the last."""
        none = np.empty(0, np.uint8)
        lengths = np.concatenate([np.zeros(1, np.int64), *self._lengths])
        return np.concatenate([none, *self._parts]), np.cumsum(lengths)

    def _append(self, data: U8, lengths: I64) -> I64:
        self._parts.append(data)
        self._lengths.append(lengths)
        first, self._count = self._count, self._count + len(lengths)
        return np.arange(first, self._count, dtype=np.int64)


def _kind(arrow: pa.DataType, quoted: bool) -> int:
    if pat.is_string(arrow):
        return TEXT
    if pat.is_floating(arrow):
        return DOUBLE
    if pat.is_boolean(arrow):
        return BOOLEAN
    if pat.is_timestamp(arrow):
        return QUOTED_TIMESTAMP if quoted else TIMESTAMP
    return NUMBER


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column that is neither text nor DOUBLE; those of NULLs may be anything."""
    values = fixed_values(column)
    # A DECIMAL is 128 bits, of which the first 64 tell all numbers that Kasen has.
    return values[:, 0] if pat.is_decimal(column.type) else values
