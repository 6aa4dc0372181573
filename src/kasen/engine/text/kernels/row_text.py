"""Rows of numbers into text: the rows of a csv or JSON file, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.expr.kernels.calendar import civil
from kasen.engine.kernels.compiled import compiled

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

#: How a column's numbers are written. NUMBER: with a point before its last `scale` digits. TEXT and DOUBLE:
#: it is an index into a pool of texts, and a DOUBLE's text gets the ".0" that it may lack.
NUMBER, BOOLEAN, TIMESTAMP, QUOTED_TIMESTAMP, TEXT, DOUBLE = 0, 1, 2, 3, 4, 5
#: No value but a text takes more bytes than this: the greatest is a time far from today.
MOST_BYTES = 40

_MINUS, _POINT, _ZERO, _COLON, _BLANK, _QUOTE = 45, 46, 48, 58, 32, 34
_MICROS = 1_000_000
_DAY = 86_400
_TRUE = np.frombuffer(b"true", np.uint8).copy()
_FALSE = np.frombuffer(b"false", np.uint8).copy()

_BYTES = "Array(uint8, 1, 'C', readonly=True)"
_INTS = "Array(int64, 1, 'C', readonly=True)"


@compiled(f"int64(uint8[::1], int64, {_BYTES}, int64, int64)")
def _copy(out: U8, at: int, text: U8, begin: int, end: int) -> int:
    for pos in range(begin, end):
        out[at] = text[pos]
        at += 1
    return at


@compiled("int64(uint8[::1], int64, uint64, int64)")
def _digits(out: U8, at: int, number: np.uint64, width: int) -> int:
    """The number in at least `width` digits, with zeros before it."""
    count = 1
    rest = number // np.uint64(10)
    while rest:
        count += 1
        rest //= np.uint64(10)
    count = max(count, width)
    for pos in range(at + count - 1, at - 1, -1):
        out[pos] = np.uint8(_ZERO + number % np.uint64(10))
        number //= np.uint64(10)
    return at + count


@compiled("int64(uint8[::1], int64, int64, int64)")
def _number(out: U8, at: int, number: int, scale: int) -> int:
    size = np.uint64(number)
    if number < 0:
        out[at] = _MINUS
        at += 1
        size = np.uint64(0) - size
    if scale == 0:
        return _digits(out, at, size, 1)
    unit = np.uint64(1)
    for _ in range(scale):
        unit *= np.uint64(10)
    at = _digits(out, at, size // unit, 1)
    out[at] = _POINT
    return _digits(out, at + 1, size % unit, scale)


@compiled("int64(uint8[::1], int64, int64)")
def _timestamp(out: U8, at: int, micros: int) -> int:
    """YYYY-MM-DD HH:MM:SS, and .ffffff only if it is not zero. Floor division sees to times before 1970."""
    seconds, fraction = micros // _MICROS, micros % _MICROS
    second = seconds % _DAY
    year, month, day = civil(seconds // _DAY)
    if year < 0:
        out[at] = _MINUS
        at += 1
        year = -year
    at = _digits(out, at, np.uint64(year), 4)
    out[at] = _MINUS
    at = _digits(out, at + 1, np.uint64(month), 2)
    out[at] = _MINUS
    at = _digits(out, at + 1, np.uint64(day), 2)
    out[at] = _BLANK
    at = _digits(out, at + 1, np.uint64(second // 3600), 2)
    out[at] = _COLON
    at = _digits(out, at + 1, np.uint64(second // 60 % 60), 2)
    out[at] = _COLON
    at = _digits(out, at + 1, np.uint64(second % 60), 2)
    if fraction:
        out[at] = _POINT
        at = _digits(out, at + 1, np.uint64(fraction), 6)
    return at


@compiled(f"int64(uint8[::1], int64, {_BYTES}, int64, int64)")
def _double(out: U8, at: int, text: U8, begin: int, end: int) -> int:
    whole = True
    for pos in range(begin, end):
        byte = text[pos]
        whole = whole and (byte == _MINUS or _ZERO <= byte <= _ZERO + 9)
        out[at] = byte
        at += 1
    if whole:
        out[at] = _POINT
        out[at + 1] = _ZERO
        at += 2
    return at


@compiled(
    f"int64({_INTS}, {_INTS}, int64[:,::1], uint8[:,::1], {_BYTES}, {_INTS}, {_BYTES}, {_INTS}, {_BYTES},"
    " uint8[::1])"
)
def write_rows(
    kinds: I64,
    scales: I64,
    values: I64,
    nulls: U8,
    pool: U8,
    pool_bounds: I64,
    pieces: U8,
    piece_bounds: I64,
    null_text: U8,
    out: U8,
) -> int:
    """Writes all rows into `out`, which must have room, and returns how many bytes they take.

    `values` and `nulls` are [columns, n]. `pieces[piece_bounds[c]:piece_bounds[c + 1]]` stands before column
    c, and the one after the last column ends the row.
    """
    at = 0
    columns = len(values)
    for row in range(values.shape[1]):
        for column in range(columns):
            at = _copy(out, at, pieces, piece_bounds[column], piece_bounds[column + 1])
            number = int(values[column, row])
            kind = kinds[column]
            if nulls[column, row]:
                at = _copy(out, at, null_text, 0, len(null_text))
            elif kind == NUMBER:
                at = _number(out, at, number, scales[column])
            elif kind == TEXT:
                at = _copy(out, at, pool, pool_bounds[number], pool_bounds[number + 1])
            elif kind == DOUBLE:
                at = _double(out, at, pool, pool_bounds[number], pool_bounds[number + 1])
            elif kind == TIMESTAMP:
                at = _timestamp(out, at, number)
            elif kind == QUOTED_TIMESTAMP:
                out[at] = _QUOTE
                at = _timestamp(out, at + 1, number)
                out[at] = _QUOTE
                at += 1
            elif number:
                at = _copy(out, at, _TRUE, 0, len(_TRUE))
            else:
                at = _copy(out, at, _FALSE, 0, len(_FALSE))
        at = _copy(out, at, pieces, piece_bounds[columns], piece_bounds[columns + 1])
    return at
