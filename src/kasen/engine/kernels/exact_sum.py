"""Exact sums: what was added can be taken away again, in any order, and rounding happens once, at the end.

A sum of doubles is a run of `width` int64 words; word i counts multiples of 2^(32 (low + i)), so a double
touches three neighbouring words and no carry runs on. The words may leave [0, 2^32) until `carry` puts
them back, which must happen before 2^28 additions. `low` and `width` span only the exponents met so far
(see `span_of`), because a full span takes 70 words a group. NaN and the infinities are counted beside.

A sum of integers is two words, (low half, high half) of a 128-bit number: a sum may pass 2^63 on its way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import compiled

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ONE = np.uint64(1)
ZERO = np.uint64(0)
FRACTION = (1 << 52) - 1
INFINITY = 0x7FF << 52
NAN_BITS = 0x7FF8 << 48
SIGN_BIT = np.int64(-(2**63))

#: Bits above the greatest value that a span leaves free: sums of up to 2^63 values, and the sign.
_HEADROOM = 65


@compiled("UniTuple(int64, 2)(int64[::1], int64[::1], int64)")
def exponents(bits: Any, nulls: Any, column: Any) -> Any:
    """The least and greatest biased exponent among the finite values that are not 0; (2047, 0) if none."""
    least = 2047
    greatest = 0
    for i in range(len(bits)):
        if bits[i] & ~SIGN_BIT == 0 or (nulls[i] >> column) & 1:
            continue
        biased = max((bits[i] >> 52) & 0x7FF, 1)
        if biased < 2047:
            least = min(least, biased)
            greatest = max(greatest, biased)
    return least, greatest


@compiled("UniTuple(int64, 2)(int64, int64)")
def span_of(least: Any, greatest: Any) -> Any:
    """(low, high): the words, high not included, that sums of values with these biased exponents need."""
    low = (least - 1075) // 32
    high = (greatest - 1075 + 53 + _HEADROOM) // 32 + 1
    return low, max(high, low + 4)


@compiled("Tuple((uint64, int64))(int64)")
def unpack(bits: Any) -> Any:
    """A finite double's magnitude as m * 2^e."""
    biased = (bits >> 52) & 0x7FF
    fraction = np.uint64(bits & FRACTION)
    if biased == 0:
        return fraction, -1074
    return fraction | np.uint64(1 << 52), biased - 1075


@compiled("Tuple((int64, uint64, uint64, uint64))(uint64, int64, int64)")
def split(m: Any, e: Any, low: Any) -> Any:
    """m * 2^e as three digits of 32 bits, the first of them at word `at` of a run that begins at `low`."""
    position = e - 32 * low
    shift = np.uint64(position & 31)
    lower = m << shift
    upper = ZERO if shift == ZERO else m >> (np.uint64(64) - shift)
    return position >> 5, lower & MASK, lower >> HALF, upper


@compiled("void(int64[::1], int64, int64, uint64, int64)")
def _add_digit(words: Any, at: Any, shift: Any, digit: Any, sign: Any) -> None:
    """Adds digit * 2^shift (shift < 64) at word `at`. Leaves out zeros: their words may lie past the run."""
    word = at + (shift >> 5)
    shifted = digit << np.uint64(shift & 31)
    if shifted & MASK:
        words[word] += sign * np.int64(shifted & MASK)
    if shifted >> HALF:
        words[word + 1] += sign * np.int64(shifted >> HALF)


@compiled("void(int64[::1], int64, int64, int64, int64)")
def add_double(words: Any, at: Any, low: Any, bits: Any, weight: Any) -> None:
    """Adds weight times a finite double to the run at `at`."""
    m, e = unpack(bits)
    word, a, b, c = split(m, e, low)
    word += at
    sign = -1 if (bits < 0) != (weight < 0) else 1
    if weight == 1 or weight == -1:
        words[word] += sign * np.int64(a)
        words[word + 1] += sign * np.int64(b)
        words[word + 2] += sign * np.int64(c)
        return
    times = abs(weight)
    shift = 0
    while times > 0:
        if times & 1:
            _add_digit(words, word, shift, a, sign)
            _add_digit(words, word + 1, shift, b, sign)
            _add_digit(words, word + 2, shift, c, sign)
        times >>= 1
        shift += 1


@compiled("void(int64[::1], int64, int64, uint64, int64)")
def _add_product(words: Any, at: Any, shift: Any, product: Any, sign: Any) -> None:
    _add_digit(words, at, shift, product & MASK, sign)
    _add_digit(words, at + 1, shift, product >> HALF, sign)


@compiled("void(int64[::1], int64, int64, uint64, int64, int64)", inline=False)
def add_square(words: Any, at: Any, low: Any, m: Any, e: Any, weight: Any) -> None:
    """Adds weight times (m * 2^e)^2 to the run at `at`, which begins at 2 * low."""
    word, a, b, c = split(m, e, low)
    word = at + 2 * word
    sign = -1 if weight < 0 else 1
    times = abs(weight)
    shift = 0
    while times > 0:
        if times & 1:
            _add_product(words, word, shift, a * a, sign)
            _add_product(words, word + 1, shift, a * b, 2 * sign)
            _add_product(words, word + 2, shift, a * c, 2 * sign)
            _add_product(words, word + 2, shift, b * b, sign)
            _add_product(words, word + 3, shift, b * c, 2 * sign)
            _add_product(words, word + 4, shift, c * c, sign)
        times >>= 1
        shift += 1


@compiled("void(int64[::1], int64, uint64, int64)")
def add128(words: Any, at: Any, low: Any, high: Any) -> None:
    total = np.uint64(words[at]) + low
    words[at] = np.int64(total)
    words[at + 1] += high + (1 if total < low else 0)


@compiled("void(int64[::1], int64, int64, int64)")
def add_integer(words: Any, at: Any, value: Any, weight: Any) -> None:
    """Adds weight times value to the 128-bit number in words[at : at + 2]."""
    if weight == 1:
        add128(words, at, np.uint64(value), value >> 63)
        return
    if weight == -1:
        low = np.uint64(words[at])
        words[at] = np.int64(low - np.uint64(value))
        words[at + 1] -= (value >> 63) + (1 if low < np.uint64(value) else 0)
        return
    low = np.uint64(value)
    high = value >> 63
    if weight < 0:
        low = ~low + ONE
        high = ~high + (1 if low == ZERO else 0)
    times = abs(weight)
    while times > 0:
        if times & 1:
            add128(words, at, low, high)
        high = (high << 1) | np.int64(low >> np.uint64(63))
        low <<= ONE
        times >>= 1


@compiled("void(int64[::1], int64, int64)")
def carry(words: Any, at: Any, width: Any) -> None:
    """Brings all words but the last into [0, 2^32); the last one keeps the sign. The sum stays the same."""
    for i in range(at, at + width - 1):
        words[i + 1] += words[i] >> 32
        words[i] &= 0xFFFFFFFF
