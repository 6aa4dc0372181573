"""Cells of text to TIMESTAMPs; see cell_values for what all such functions keep to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.expr.kernels.calendar import month_start
from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.cell_values import (
    BLANK,
    BYTES,
    CELLS,
    MINUS,
    POINT,
    TENS,
    ZERO,
    is_digit,
    trim,
)
from kasen.engine.text.kernels.marks import READ

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_COLON, _LETTER_T = 58, 84


@compiled(f"int64({BYTES}, int64, int64)")
def _digits(data: U8, begin: int, count: int) -> int:
    """The number that `count` digits make, or -1 if they are not all digits."""
    number = 0
    for pos in range(begin, begin + count):
        if not is_digit(data[pos]):
            return -1
        number = number * 10 + (data[pos] - ZERO)
    return number


_MONTH_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


@compiled("boolean(int64, int64, int64)")
def _is_date(year: int, month: int, day: int) -> bool:
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return False
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return bool(day <= _MONTH_DAYS[month - 1] + leap)


@compiled(CELLS + ", int64[::1])")
def read_timestamps(data: U8, starts: I64, ends: I64, marks: U8, mark: int, values: I64) -> None:
    """YYYY-MM-DD, or with [ T]HH:MM:SS and up to six digits of a fraction, as µs since 1970."""
    for row in range(len(marks)):
        if marks[row] != mark:
            continue
        at, end = trim(data, starts[row], ends[row])
        length = end - at
        if not (length == 10 or length == 19 or 21 <= length <= 26):
            continue
        if data[at + 4] != MINUS or data[at + 7] != MINUS:
            continue
        year, month, day = _digits(data, at, 4), _digits(data, at + 5, 2), _digits(data, at + 8, 2)
        if not _is_date(year, month, day):
            continue
        micros = (month_start(year, month) + day - 1) * 86_400_000_000
        if length > 10:
            if data[at + 10] != BLANK and data[at + 10] != _LETTER_T:
                continue
            if data[at + 13] != _COLON or data[at + 16] != _COLON:
                continue
            hour, minute, second = (
                _digits(data, at + 11, 2),
                _digits(data, at + 14, 2),
                _digits(data, at + 17, 2),
            )
            if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
                continue
            micros += (hour * 3600 + minute * 60 + second) * 1_000_000
        if length > 19:
            fraction = _digits(data, at + 20, length - 20)
            if data[at + 19] != POINT or fraction < 0:
                continue
            micros += fraction * TENS[26 - length]
        values[row] = micros
        marks[row] = READ
