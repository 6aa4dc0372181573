"""Reads aggregates from a group's accumulators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kasen.engine.kernels import ordered
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_round import magnitude, magnitude128, mean, mean128, variance
from kasen.engine.kernels.exact_sum import INFINITY, NAN_BITS, SIGN_BIT

#: A call: how it is read, and where in the record are the count, the sum (or value) and the squares that it
#: is read from. OUT_LOW, OUT_WIDTH: the span of sums of doubles. SCALE, DIGITS: a DECIMAL argument's scale,
#: and how many digits a sum may have (0: a BIGINT). LOST: degrees of freedom. ROOT: whether to take the
#: square root. SHARE: a percentile's, as bits.
HOW, OF_COUNT, OF_VALUE, OF_SQUARES, OUT_LOW, OUT_WIDTH, SCALE, DIGITS, LOST, ROOT, SHARE, OUT = range(12)

READ_COUNT = 0
READ_SUM_INTEGER = 1
READ_SUM_DOUBLE = 2
READ_MEAN_INTEGER = 3
READ_MEAN_DOUBLE = 4
READ_VARIANCE_INTEGER = 5
READ_VARIANCE_DOUBLE = 6
READ_EXTREME = 7
READ_LEAST = 8
READ_GREATEST = 9
READ_CONT = 10
READ_DISC = 11

S = "uint64[::1]"


@compiled(f"float64(int64, {S})")
def _double(bits: Any, scratch: Any) -> Any:
    scratch.view(np.int64)[0] = bits
    return scratch.view(np.float64)[0]


@compiled(f"int64(float64, {S})")
def _bits(value: Any, scratch: Any) -> Any:
    """As a batch holds it: one NaN, one zero."""
    if math.isnan(value):
        return NAN_BITS
    scratch.view(np.float64)[0] = value + 0.0
    return scratch.view(np.int64)[0]


@compiled(f"int64({V}, int64)")
def _special(records: Any, at: Any) -> Any:
    """What NaNs and infinities make of a sum of doubles, or 0 if there are none."""
    if records[at] or (records[at + 1] and records[at + 2]):
        return NAN_BITS
    if records[at + 1]:
        return INFINITY
    if records[at + 2]:
        return SIGN_BIT | INFINITY
    return 0


@compiled(f"int64({M}, {V}, int64, int64, float64, {S})", inline=False)
def _percentile_cont(pool: Any, records: Any, tree: Any, count: Any, share: Any, scratch: Any) -> Any:
    """low + (high - low) * fraction at rank share * (count - 1)."""
    rank = share * (count - 1)
    below = np.int64(math.floor(rank))
    low_bits = ordered.kth(pool, records, tree, below)
    if rank == below:
        return low_bits
    high_bits = ordered.kth(pool, records, tree, below + 1)
    if low_bits == high_bits:
        return low_bits  # nothing lies between equal values, and inf - inf would be NaN
    low = _double(low_bits, scratch)
    high = _double(high_bits, scratch)
    return _bits(low + (high - low) * (rank - below), scratch)


@compiled("int64(int64, float64)", inline=False)
def disc_rank(count: Any, share: Any) -> Any:
    """The least k with (k + 1) / count >= share; share * count is only near it."""
    k = min(max(np.int64(math.ceil(share * count)) - 1, 0), count - 1)
    while k > 0 and k / count >= share:
        k -= 1
    while (k + 1) / count < share:
        k += 1
    return k


@compiled(f"UniTuple(int64, 2)({M}, int64, {V}, int64, {M}, {S})")
def render(outs: Any, call: Any, records: Any, base: Any, pool: Any, scratch: Any) -> Any:
    """A call's value, and 1 if it is NULL. The record's sums are settled."""
    how = outs[call, HOW]
    count = records[base + outs[call, OF_COUNT]]
    if how == READ_COUNT:
        return count, 0
    if count <= outs[call, LOST]:
        return 0, 1
    at = base + outs[call, OF_VALUE]
    if how == READ_EXTREME:
        return records[at + 1], 0
    if how == READ_LEAST:
        return ordered.least(pool, records, at), 0
    if how == READ_GREATEST:
        return ordered.greatest(pool, records, at), 0
    if how == READ_SUM_INTEGER:
        total = records[at]
        fits = records[at + 1] == total >> 63
        if outs[call, DIGITS] and not -(10**18) < total < 10**18:
            fits = False
        return (total, 0) if fits else (0, 1)
    if how == READ_MEAN_INTEGER:
        return mean128(records[at], records[at + 1], count, outs[call, SCALE], scratch), 0
    if how == READ_CONT:
        return _percentile_cont(pool, records, at, count, _double(outs[call, SHARE], scratch), scratch), 0
    if how == READ_DISC:
        k = disc_rank(count, _double(outs[call, SHARE], scratch))
        return ordered.kth(pool, records, at, k), 0
    low = outs[call, OUT_LOW]
    width = outs[call, OUT_WIDTH]
    if how in (READ_SUM_DOUBLE, READ_MEAN_DOUBLE):
        special = _special(records, at)
        if special:
            return special, 0
        return mean(records, at + 3, width, low, count if how == READ_MEAN_DOUBLE else 1, scratch), 0
    squares = base + outs[call, OF_SQUARES]
    if how == READ_VARIANCE_INTEGER:
        magnitude128(records[at], records[at + 1], scratch, 0)
        magnitude(records, squares, 8, scratch, 4)
        value = variance(scratch, 4, 0, count, outs[call, LOST], outs[call, SCALE])
    elif _special(records, at):
        return NAN_BITS, 0
    else:
        magnitude(records, at + 3, width, scratch, 0)
        magnitude(records, squares, 2 * width, scratch, width)
        value = variance(scratch, width, low, count, outs[call, LOST], 0)
    if outs[call, ROOT]:
        value = _bits(math.sqrt(_double(value, scratch)), scratch)
    return value, 0
