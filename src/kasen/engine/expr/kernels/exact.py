"""Exact operations: on integers, and on decimals, which are scaled to int64 and have at most 18 digits.

What an instruction computes is said once, for one value: the result, and whether there is none. Programs for
one row do it so; KERNELS do it to vectors, as scalar.py says of operands, `out` and `failed`.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from kasen.engine.expr.kernels.instructions import (
    ABSOLUTE,
    ADD,
    ADD_DECIMAL,
    CEILING_UNITS,
    DIVIDE,
    FLOOR_UNITS,
    MODULO,
    MULTIPLY,
    MULTIPLY_DECIMAL,
    NEGATE,
    ROUND_UNIT,
    SCALE_DOWN,
    SCALE_UP,
    SUBTRACT,
    TRUNCATE_UNITS,
)
from kasen.engine.expr.kernels.scalar import minus, plus, product_overflows, step, times, truncated_quotient
from kasen.engine.kernels.compiled import V, compiled

_LEAST = -(2**63)


@njit("int64(int64, int64)", cache=True, nogil=True, error_model="numpy")
def _floor(a: Any, unit: Any) -> Any:
    return a // unit


@compiled("int64(int64, int64)")
def half_away(a: Any, unit: Any) -> Any:
    """a / unit, halves away from zero; 1 <= unit <= 10^18."""
    quotient = truncated_quotient(a, unit)
    rest = a - quotient * unit
    if abs(rest) >= unit - abs(rest):
        quotient += 1 if a > 0 else -1
    return quotient


@compiled("Tuple((int64, boolean))(int64, int64, int64)")
def integer(op: Any, a: Any, b: Any) -> Any:
    """Integers: what leaves int64 has no result."""
    if op == ADD:
        # An overflow shows as a sign that neither operand has.
        total = plus(a, b)
        return total, ((a ^ total) & (b ^ total)) < 0
    if op == SUBTRACT:
        rest = minus(a, b)
        return rest, ((a ^ b) & (a ^ rest)) < 0
    if op == MULTIPLY:
        return times(a, b), product_overflows(a, b)
    if op == DIVIDE:  # toward zero
        if b == 0 or (b == -1 and a == _LEAST):
            return 0, True
        return truncated_quotient(a, b), False
    if op == MODULO:  # with the sign of a
        if b == 0:
            return 0, True
        return 0 if b == -1 else a - truncated_quotient(a, b) * b, False
    if op == NEGATE:
        return minus(0, a), a == _LEAST
    # ABSOLUTE
    return minus(0, a) if a < 0 else a, a == _LEAST


@compiled("Tuple((int64, boolean))(int64, int64, int64, int64, int64, int64)")
def decimal(op: Any, a: Any, b: Any, p: Any, q: Any, r: Any) -> Any:
    """Decimals. A magnitude above the limit (10^digits - 1), which is the last setting, is no result."""
    if op == ADD_DECIMAL:
        # a * p + b * q, where one factor is a power of ten and the other 1 or -1. If a factor takes one side
        # out of int64, the sum has more than 18 digits whatever the other side is.
        wide = product_overflows(a, p) or product_overflows(b, q)
        left, right = times(a, p), times(b, q)
        total = plus(left, right)
        wide = wide or ((left ^ total) & (right ^ total)) < 0
        return total, wide or total > r or total < -r
    if op == MULTIPLY_DECIMAL:
        product = times(a, b)
        return product, product_overflows(a, b) or product > p or product < -p
    if op == SCALE_UP:  # more digits after the point
        scaled = times(a, p)
        return scaled, product_overflows(a, p) or scaled > q or scaled < -q
    if op == SCALE_DOWN:
        scaled = half_away(a, p)
        return scaled, scaled > q or scaled < -q
    if op == ROUND_UNIT:  # to the nearest multiple of p; a may be any int64
        quotient = half_away(a, p)
        rounded = times(quotient, p)
        return rounded, product_overflows(quotient, p) or rounded > q or rounded < -q
    if op == FLOOR_UNITS:
        return _floor(a, p), False
    if op == CEILING_UNITS:
        floor = _floor(a, p)
        return floor + 1 if floor * p != a else floor, False
    # TRUNCATE_UNITS: toward zero, to an integer of q bits
    quotient = a if p == 1 else truncated_quotient(a, p)
    most = (1 << (q - 1)) - 1
    return quotient, quotient > most or quotient < -most - 1


_BINARY = (ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, ADD_DECIMAL, MULTIPLY_DECIMAL)
_UNARY = (NEGATE, ABSOLUTE, SCALE_UP, SCALE_DOWN, ROUND_UNIT, FLOOR_UNITS, CEILING_UNITS, TRUNCATE_UNITS)


def _over_vectors(op: int) -> Any:
    unary = op in _UNARY

    # Each instruction has a loop of its own, in which it is a constant: then nothing is decided row by row.
    @compiled(f"int64({V}, {V}, int64, int64, int64, {V}, boolean[::1])", inline=False)
    def kernel(x: Any, y: Any, p: Any, q: Any, r: Any, out: Any, failed: Any) -> Any:
        dx, dy, failures = step(len(x)), step(len(y)), 0
        for i in range(len(out)):
            a, b = (x[i], 0) if unary else (x[i * dx], y[i * dy])
            out[i], failed[i] = integer(op, a, b) if op <= ABSOLUTE else decimal(op, a, b, p, q, r)
            failures += failed[i]
        return failures

    return kernel


#: Instructions on vectors: kernel(x, y, p, q, r, out, failed). Those with one operand do not read `y`.
KERNELS = {op: _over_vectors(op) for op in (*_BINARY, *_UNARY)}
