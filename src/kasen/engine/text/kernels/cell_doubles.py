"""Cells of text to DOUBLEs; see cell_values for what all such functions keep to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.cell_values import (
    CELLS,
    LOWER,
    MINUS,
    PLUS,
    POINT,
    ZERO,
    is_digit,
    unsigned_part,
)
from kasen.engine.text.kernels.marks import READ, ROUND

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

#: Integers up to here, and powers of ten up to 22, are exact as doubles: one operation on them rounds once.
EXACT_MANTISSA = 2**53
EXACT_POWER = 22

_TENS = np.array([10.0**k for k in range(EXACT_POWER + 1)])
_LETTER_E = 101


@compiled(CELLS + ", float64[::1])")
def read_doubles(
    data: U8, starts: I64, ends: I64, marks: U8, mark: int, values: npt.NDArray[np.float64]
) -> None:
    """Digits with an optional point and exponent. Well formed but not exact in one step: marked ROUND."""
    for row in range(len(marks)):
        if marks[row] != mark:
            continue
        negative, pos, end = unsigned_part(data, starts[row], ends[row])
        mantissa, digits, power = 0, 0, 0
        seen_point, exact = False, True
        while pos < end and (is_digit(data[pos]) or (data[pos] == POINT and not seen_point)):
            byte = data[pos]
            pos += 1
            if byte == POINT:
                seen_point = True
                continue
            digits += 1
            power -= seen_point
            if mantissa >= EXACT_MANTISSA // 10:
                # One more digit may or may not fit; the sum below would still be right, the next not.
                exact = exact and mantissa * 10 + (byte - ZERO) <= EXACT_MANTISSA
            mantissa = mantissa * 10 + (byte - ZERO) if exact else mantissa
        if digits == 0:
            continue
        if pos < end and data[pos] | LOWER == _LETTER_E:
            pos += 1
            down = pos < end and data[pos] == MINUS
            if pos < end and (down or data[pos] == PLUS):
                pos += 1
            exponent, count = 0, end - pos
            while pos < end and is_digit(data[pos]):
                exponent = min(exponent * 10 + (data[pos] - ZERO), 100_000)
                pos += 1
            if count == 0:
                continue
            power += -exponent if down else exponent
        if pos < end:
            continue
        if not exact or not -EXACT_POWER <= power <= EXACT_POWER:
            marks[row] = ROUND
            continue
        number = float(mantissa)
        number = number * _TENS[power] if power >= 0 else number / _TENS[-power]
        values[row] = -number if negative else number
        marks[row] = READ
