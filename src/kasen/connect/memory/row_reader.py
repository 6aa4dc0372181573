"""Rows of plain Python values, read quickly: what a program that pushes one row at a time hands over.

Only what is surely right is read here: dicts with the declared columns, whose values have the very types.
All else (other spellings, texts of numbers, missing or wrong values) is left to values.read_row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.connect.layout import Layout
from kasen.connect.values import double_bits
from kasen.engine.batch import I64
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind

_INTEGERS = (Kind.INTEGER, Kind.BIGINT, Kind.TIMESTAMP)


class RowReader:
    """Made once for a layout."""

    def __init__(self, layout: Layout, dictionary: Dictionary) -> None:
        self._columns = [(field.name, field.type.kind) for field in layout.schema]
        self._timestamp = layout.timestamp
        self._most = layout.max_text_bytes
        self._dictionary = dictionary
        self._code = dictionary.code
        self._has_texts = any(kind is Kind.VARCHAR for _, kind in self._columns)
        # Rows that tell whether they enter or leave have one more thing that may be wrong.
        self._able = layout.diff is None

    def read(self, rows: Sequence[object]) -> I64 | None:
        """The rows as Batch.data has them; None if any of them must be looked at more closely."""
        if not self._able or not rows:
            return None
        if not self._has_texts:
            return self._read(rows)
        with self._dictionary.entering:
            numbers = self._read(rows)
            if numbers is not None:
                self._dictionary.keep(numbers)
            return numbers

    def _read(self, rows: Sequence[object]) -> I64 | None:
        read = []
        for row in rows:
            if type(row) is not dict or len(row) != len(self._columns):
                return None
            numbers = self._numbers(row)
            if numbers is None:
                return None
            read.append(numbers)
        try:
            by_row = np.array(read, np.int64)
        except OverflowError:
            return None
        return by_row.reshape(-1, 1) if len(read) == 1 else np.ascontiguousarray(by_row.T)

    def _numbers(self, row: dict[str, object]) -> list[int] | None:
        numbers: list[int] = []
        nulls = 0
        for name, kind in self._columns:
            value = row.get(name)
            if type(value) is int and kind in _INTEGERS:
                if kind is Kind.INTEGER and not -(2**31) <= value < 2**31:
                    return None
                numbers.append(value)
            elif type(value) is str and kind is Kind.VARCHAR and self._is_right(value):
                numbers.append(self._code(value))
            elif type(value) is float and kind is Kind.DOUBLE:
                numbers.append(double_bits(value))
            elif type(value) is bool and kind is Kind.BOOLEAN:
                numbers.append(int(value))
            elif value is None and name in row and len(numbers) != self._timestamp:
                nulls |= 1 << len(numbers)
                numbers.append(0)
            else:
                return None
        numbers.append(nulls)
        return numbers

    def _is_right(self, text: str) -> bool:
        """Whether it is not too long, and without halves of surrogate pairs, which no sink could write."""
        if text.isascii():
            return len(text) <= self._most
        try:
            return len(text.encode("utf-8")) <= self._most
        except UnicodeEncodeError:
            return False
