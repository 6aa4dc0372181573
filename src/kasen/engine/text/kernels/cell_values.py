"""Cells of text to values, for the texts that a kernel can be sure of.

Every function looks at the cells whose mark is `mark`. A cell that it is sure of gets its value and the
mark READ; any other keeps its mark, and the caller decides about it at leisure. So these functions need not
know every rule, but what they accept must be what kasen.text_values makes of the same text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.marks import NUMBER, READ

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

BLANK, PLUS, MINUS, POINT, ZERO, FIVE, NINE = 32, 43, 45, 46, 48, 53, 57
LOWER = 32  # sets a letter's case bit

#: No number of this many digits overflows an int64.
SAFE_DIGITS = 18

TENS = np.array([10**k for k in range(SAFE_DIGITS + 1)], np.int64)

BYTES = "Array(uint8, 1, 'C', readonly=True)"
#: How the signature of every read_ function begins.
CELLS = f"void({BYTES}, int64[::1], int64[::1], uint8[::1], uint8"


@compiled(f"UniTuple(int64, 2)({BYTES}, int64, int64)")
def trim(data: U8, begin: int, end: int) -> tuple[int, int]:
    """The span without the blanks around it."""
    while begin < end and data[begin] == BLANK:
        begin += 1
    while begin < end and data[end - 1] == BLANK:
        end -= 1
    return begin, end


@compiled(f"Tuple((boolean, int64, int64))({BYTES}, int64, int64)")
def unsigned_part(data: U8, begin: int, end: int) -> tuple[bool, int, int]:
    """Whether a minus stands first; the span without the blanks around it and without its sign."""
    begin, end = trim(data, begin, end)
    negative = begin < end and data[begin] == MINUS
    signed = negative or (begin < end and data[begin] == PLUS)
    return negative, begin + 1 if signed else begin, end


@compiled("boolean(uint8)")
def is_digit(byte: int) -> bool:
    return ZERO <= byte <= NINE


@compiled(CELLS + ", int64, int64, int64[::1])")
def read_integers(
    data: U8, starts: I64, ends: I64, marks: U8, mark: int, low: int, high: int, values: I64
) -> None:
    """[+-]?digits between low and high. A NUMBER (JSON's) may have a fraction of zeros, as in 5.0."""
    for row in range(len(marks)):
        if marks[row] != mark:
            continue
        negative, pos, end = unsigned_part(data, starts[row], ends[row])
        if not 0 < end - pos <= SAFE_DIGITS:
            continue
        number = 0
        while pos < end and is_digit(data[pos]):
            number = number * 10 + (data[pos] - ZERO)
            pos += 1
        if mark == NUMBER and pos < end and data[pos] == POINT:
            pos += 1
            while pos < end and data[pos] == ZERO:
                pos += 1
        if negative:
            number = -number
        if pos == end and low <= number <= high:
            values[row] = number
            marks[row] = READ


@compiled(CELLS + ", int64, int64, int64[::1])")
def read_decimals(
    data: U8, starts: I64, ends: I64, marks: U8, mark: int, scale: int, limit: int, values: I64
) -> None:
    """Plain digits with an optional point, times 10^scale, rounded half away from zero; below `limit`."""
    for row in range(len(marks)):
        if marks[row] != mark:
            continue
        negative, pos, end = unsigned_part(data, starts[row], ends[row])
        if pos == end:
            continue
        number, digits, fraction, up = 0, 0, -1, 0
        while pos < end and (is_digit(data[pos]) or (data[pos] == POINT and fraction < 0)):
            byte = data[pos]
            pos += 1
            if byte == POINT:
                fraction = 0
                continue
            digits += 1
            if fraction >= 0:
                fraction += 1
            if fraction <= scale:
                if digits > SAFE_DIGITS:
                    digits = -1
                    break
                number = number * 10 + (byte - ZERO)
            elif fraction == scale + 1 and byte >= FIVE:
                up = 1
        if pos < end or digits <= 0:
            continue
        missing = scale - min(max(fraction, 0), scale)
        if number >= TENS[SAFE_DIGITS - missing]:
            continue
        number = number * TENS[missing] + up
        if number < limit:
            values[row] = -number if negative else number
            marks[row] = READ


@compiled(f"boolean({BYTES}, int64, int64, {BYTES})")
def _spells(data: U8, begin: int, end: int, word: U8) -> bool:
    """Whether the span is the word, in letters of either case."""
    k = 0
    while k < len(word) and begin + k < end and data[begin + k] | LOWER == word[k]:
        k += 1
    return k == len(word) == end - begin


_TRUE = np.frombuffer(b"true", np.uint8).copy()
_FALSE = np.frombuffer(b"false", np.uint8).copy()


@compiled(CELLS + ", int64[::1])")
def read_booleans(data: U8, starts: I64, ends: I64, marks: U8, mark: int, values: I64) -> None:
    """true, t, 1, false, f, 0 in letters of either case."""
    for row in range(len(marks)):
        if marks[row] != mark:
            continue
        begin, end = trim(data, starts[row], ends[row])
        truth = -1
        if end - begin == 1:
            byte = data[begin]
            if byte == ZERO + 1 or byte | LOWER == _TRUE[0]:
                truth = 1
            elif byte == ZERO or byte | LOWER == _FALSE[0]:
                truth = 0
        elif _spells(data, begin, end, _TRUE):
            truth = 1
        elif _spells(data, begin, end, _FALSE):
            truth = 0
        if truth >= 0:
            values[row] = truth
            marks[row] = READ
