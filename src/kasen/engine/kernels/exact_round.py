"""From exact sums to doubles: sums, means and variances, each rounded once, ties to even.

A magnitude is a run of digits in [0, 2^32), the least first, in an array of uint64; digit i counts
multiples of 2^(32 (low + i)). Quotients are cut off somewhere below the digits that matter; whether
anything was cut off ("sticky") is all that rounding needs to know of the rest. Every function answers
with a double's bits, and 0 for both zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import compiled
from kasen.engine.kernels.exact_sum import HALF, INFINITY, MASK, ONE, SIGN_BIT, ZERO

#: Digits to append before dividing, so that three digits of the quotient are right: two for each divisor
#: below 2^64, and two more below the first one.
MEAN_EXTRA = 6
VARIANCE_EXTRA = 10

#: A scratch array of this size serves every function here: `variance` over the full span takes 362.
SCRATCH = 512


@compiled("int64(int64[::1], int64, int64, uint64[::1], int64)")
def magnitude(words: Any, at: Any, width: Any, digits: Any, to: Any) -> Any:
    """Writes the magnitude of a carried sum to digits[to : to + width] and returns its sign."""
    sign = -1 if words[at + width - 1] < 0 else 1
    over = 0
    for i in range(width):
        digit = sign * words[at + i] + over
        digits[to + i] = np.uint64(digit & 0xFFFFFFFF)
        over = digit >> 32
    return sign


@compiled("int64(int64, int64, uint64[::1], int64)")
def magnitude128(low: Any, high: Any, digits: Any, to: Any) -> Any:
    """Writes |(low, high)| to digits[to : to + 4] and returns its sign."""
    lower = np.uint64(low)
    upper = np.uint64(high)
    if high < 0:
        lower = ~lower + ONE
        upper = ~upper + (ONE if lower == ZERO else ZERO)
    digits[to] = lower & MASK
    digits[to + 1] = lower >> HALF
    digits[to + 2] = upper & MASK
    digits[to + 3] = upper >> HALF
    return -1 if high < 0 else 1


@compiled("boolean(uint64[::1], int64, int64)", inline=False)
def divide(digits: Any, size: Any, divisor: Any) -> Any:
    """Divides digits[:size] in place; whether there was a remainder."""
    by = np.uint64(divisor)
    rest = ZERO
    for i in range(size - 1, -1, -1):
        if rest == ZERO and digits[i] == ZERO:
            continue
        if by <= MASK:
            whole = (rest << HALF) | digits[i]
            digits[i] = whole // by
            rest = whole % by
        else:
            quotient = ZERO
            for bit in range(31, -1, -1):
                rest = (rest << ONE) | ((digits[i] >> np.uint64(bit)) & ONE)
                quotient <<= ONE
                if rest >= by:
                    rest -= by
                    quotient |= ONE
            digits[i] = quotient
    return rest != ZERO


@compiled("boolean(uint64[::1], int64, int64)", inline=False)
def divide_by_power_of_ten(digits: Any, size: Any, power: Any) -> Any:
    sticky = False
    while power > 0:
        step = min(power, 9)
        sticky |= divide(digits, size, 10**step)
        power -= step
    return sticky


@compiled("int64(uint64[::1], int64, int64, boolean, int64)", inline=False)
def round_digits(digits: Any, size: Any, low: Any, sticky: Any, sign: Any) -> Any:
    """The double nearest to sign * digits[:size]; `sticky`: the true magnitude is a little greater."""
    lead = size - 1
    while lead >= 0 and digits[lead] == ZERO:
        lead -= 1
    if lead < 0:
        return 0
    length = 0
    while digits[lead] >> np.uint64(length):
        length += 1
    b = np.uint64(length)
    second = digits[lead - 1] if lead >= 1 else ZERO
    third = digits[lead - 2] if lead >= 2 else ZERO
    top = (digits[lead] << (np.uint64(64) - b)) | (second << (HALF - b)) | (third >> b)
    sticky |= (third & ((ONE << b) - ONE)) != ZERO
    for i in range(lead - 2):
        if digits[i] != ZERO:
            sticky = True
            break
    exponent = 32 * (low + lead) + length - 1  # of the first bit
    if exponent > 1023:
        bits = np.int64(INFINITY)
    else:
        keep = 53 if exponent >= -1022 else 53 + 1022 + exponent
        if keep < 0:
            return 0
        drop = np.uint64(64 - keep)
        kept = top >> drop if keep else ZERO
        rest = top - (kept << drop if keep else ZERO)
        half = ONE << (drop - ONE)
        if rest > half or (rest == half and (sticky or kept & ONE)):
            kept += ONE
        # A kept part that rounds up to the next power of two runs over into the exponent, as it should.
        bits = np.int64(kept) + (exponent + 1022 << 52 if exponent >= -1022 else 0)
    return bits if sign > 0 or bits == 0 else bits | SIGN_BIT


@compiled("int64(int64[::1], int64, int64, int64, int64, uint64[::1])", inline=False)
def mean(words: Any, at: Any, width: Any, low: Any, count: Any, scratch: Any) -> Any:
    """The mean of `count` doubles whose carried sum is the run at `at`; with count 1, the sum."""
    if count == 1:
        sign = magnitude(words, at, width, scratch, 0)
        return round_digits(scratch, width, low, False, sign)
    scratch[:MEAN_EXTRA] = ZERO
    sign = magnitude(words, at, width, scratch, MEAN_EXTRA)
    size = width + MEAN_EXTRA
    sticky = divide(scratch, size, count)
    return round_digits(scratch, size, low - MEAN_EXTRA, sticky, sign)


@compiled("int64(int64, int64, int64, int64, uint64[::1])", inline=False)
def mean128(low: Any, high: Any, count: Any, scale: Any, scratch: Any) -> Any:
    """The mean of `count` integers whose sum is (low, high), in units of 10^-scale."""
    if high == low >> 63 and -(2**53) <= low <= 2**53 and scale <= 15 and count <= 2**53 // 10**scale:
        # Both are doubles, and one division rounds once.
        scratch.view(np.float64)[0] = np.float64(low) / np.float64(count * 10**scale)
        return scratch.view(np.int64)[0]
    scratch[:MEAN_EXTRA] = ZERO
    sign = magnitude128(low, high, scratch, MEAN_EXTRA)
    size = 4 + MEAN_EXTRA
    sticky = divide(scratch, size, count)
    sticky |= divide_by_power_of_ten(scratch, size, scale)
    return round_digits(scratch, size, -MEAN_EXTRA, sticky, sign)


@compiled("int64(uint64[::1], int64, int64, int64, int64, int64)", inline=False)
def variance(scratch: Any, width: Any, low: Any, count: Any, lost: Any, scale: Any) -> Any:
    """(S2 - S1^2 / n) / (n - lost), in units of 10^-scale, with n = count > lost.

    On entry |S1| is in scratch[: width], its digits beginning at `low`, and S2 in the 2 * width digits
    that follow, beginning at 2 * low. Works on n S2 - S1^2 >= 0, divided by n and by n - lost.
    """
    squares = width
    size = 2 * width + 2
    difference = scratch[3 * width : 3 * width + size + VARIANCE_EXTRA]
    difference[:] = ZERO
    run = difference[VARIANCE_EXTRA:]
    parts = (np.uint64(count) & MASK, np.uint64(count) >> HALF)
    for place in range(2):  # n S2
        over = ZERO
        for i in range(2 * width):
            total = run[place + i] + scratch[squares + i] * parts[place] + over
            run[place + i] = total & MASK
            over = total >> HALF
        run[place + 2 * width] += over
    for i in range(width):  # minus S1^2
        if scratch[i] == ZERO:
            continue
        over = ZERO
        borrow = ZERO
        for j in range(size - i):
            product = over + (scratch[i] * scratch[j] if j < width else ZERO)
            over = product >> HALF
            taken = (product & MASK) + borrow
            borrow = ONE if run[i + j] < taken else ZERO
            run[i + j] = (run[i + j] - taken) & MASK
            if j >= width and over == ZERO and borrow == ZERO:
                break
    whole = size + VARIANCE_EXTRA
    sticky = divide(difference, whole, count)
    sticky |= divide(difference, whole, count - lost)
    sticky |= divide_by_power_of_ten(difference, whole, 2 * scale)
    return round_digits(difference, whole, 2 * low - VARIANCE_EXTRA, sticky, 1)
