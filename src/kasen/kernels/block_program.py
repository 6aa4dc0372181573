"""Expressions a block of rows at a time, as programs: for batches too long for the processor's cache.

`code` holds instructions of SIZE words: what to do, the register to set, the registers read. A register is a
row of `registers` and holds one value a row of the block, as a batch has it; those of constants are filled
once, when the program is made. What an instruction does is found out once a block, and a block's values stay
in the nearest cache from the first instruction to the last, so that a row costs little more than reading it.

Only for rows without NULLs. A program that fails for any row gives up: what a failure means, and for which
rows it counts, is the business of those who evaluate the expression the slow way then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.kernels.compiled import M, V, compiled
from kasen.kernels.scalar import product_overflows

OP, TO, A, B, SIZE = range(5)

LOAD, EQUAL, UNEQUAL, LESS, LESS_EQUAL, AND, OR, NOT = range(8)
ADD, SUBTRACT, MULTIPLY = range(8, 11)
ADD_DOUBLE, SUBTRACT_DOUBLE, MULTIPLY_DOUBLE, COMPARABLE = range(11, 15)

#: How many rows a block has at most, and how many different columns a program may read.
BLOCK, COLUMNS = 512, 4

_TURN = 0x7FFFFFFFFFFFFFFF
#: The product of two numbers below this fits.
_HALF = 2**31


@compiled(f"boolean({V}, {V}, {V}, int64)")
def _multiply(a: Any, b: Any, to: Any, size: Any) -> Any:
    """a * b; False if any product does not fit. Few are so great that each must be looked at."""
    bits = 0
    for i in range(size):
        bits |= (a[i] ^ (a[i] >> 63)) | (b[i] ^ (b[i] >> 63))
    for i in range(size):
        to[i] = a[i] * b[i]
    if bits < _HALF:
        return True
    for i in range(size):  # noqa: SIM110, all() of a generator does not compile
        if product_overflows(a[i], b[i]):
            return False
    return True


@compiled(f"boolean(int64, {V}, {V}, {V}, int64)")
def _add(op: Any, a: Any, b: Any, to: Any, size: Any) -> Any:
    """a + b or a - b; False if any does not fit."""
    wrong = 0
    if op == ADD:
        for i in range(size):
            result = a[i] + b[i]
            wrong |= (a[i] ^ result) & (b[i] ^ result)
            to[i] = result
    else:
        for i in range(size):
            result = a[i] - b[i]
            wrong |= (a[i] ^ b[i]) & (a[i] ^ result)
            to[i] = result
    return wrong >= 0


@compiled(f"void(int64, {V}, {V}, {V}, int64)")
def _decide(op: Any, a: Any, b: Any, to: Any, size: Any) -> None:
    """Comparisons and what joins them; TRUE is 1."""
    if op == EQUAL:
        for i in range(size):
            to[i] = a[i] == b[i]
    elif op == UNEQUAL:
        for i in range(size):
            to[i] = a[i] != b[i]
    elif op == LESS:
        for i in range(size):
            to[i] = a[i] < b[i]
    elif op == LESS_EQUAL:
        for i in range(size):
            to[i] = a[i] <= b[i]
    elif op == AND:
        for i in range(size):
            to[i] = a[i] & b[i]
    elif op == OR:
        for i in range(size):
            to[i] = a[i] | b[i]
    else:
        for i in range(size):
            to[i] = 1 - a[i]


@compiled(f"void(int64, {V}, {V}, {V}, int64)")
def _double(op: Any, a: Any, b: Any, to: Any, size: Any) -> None:
    """Arithmetic of DOUBLEs, to their canonical bits: one NaN, one zero."""
    x, y, result = a.view(np.float64), b.view(np.float64), to.view(np.float64)
    if op == ADD_DOUBLE:
        for i in range(size):
            result[i] = x[i] + y[i]
    elif op == SUBTRACT_DOUBLE:
        for i in range(size):
            result[i] = x[i] - y[i]
    else:
        for i in range(size):
            result[i] = x[i] * y[i]
    for i in range(size):
        value = result[i]
        result[i] = np.nan if value != value else value + 0.0


@compiled(f"void({V}, {V}, boolean, int64, {V}, int64)")
def _load(column: Any, rows: Any, chosen: Any, first: Any, to: Any, size: Any) -> None:
    if chosen:
        places = rows[first : first + size]
        for i in range(size):
            to[i] = column[np.uint64(places[i])]
    else:
        part = column[first : first + size]
        for i in range(size):
            to[i] = part[i]


@compiled(f"int64({V}, {V}, {V}, {V}, {V}, boolean, int64, boolean, {M}, {M}, {V})", inline=False)
def evaluate(
    c0: Any,  # the columns that the program reads; any array for one that it does not
    c1: Any,
    c2: Any,
    c3: Any,
    rows: Any,  # which rows of the columns are meant, if they are
    chosen: Any,  # only some
    n: Any,  # how many rows that is
    select: Any,
    code: Any,
    registers: Any,
    out: Any,  # [n]
) -> Any:
    """Writes the last register's value of each row; or, to `select`, the rows for which it is TRUE.

    How many were written, or -1 if the program failed.
    """
    count = 0
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        for p in range(len(code)):
            op = code[p, OP]
            to = registers[code[p, TO]]
            if op == LOAD:
                which = code[p, A]
                column = c0 if which == 0 else c1 if which == 1 else c2 if which == 2 else c3
                _load(column, rows, chosen, first, to, size)
                continue
            a, b = registers[code[p, A]], registers[code[p, B]]
            if op <= NOT:
                _decide(op, a, b, to, size)
            elif op == MULTIPLY:
                if not _multiply(a, b, to, size):
                    return -1
            elif op <= SUBTRACT:
                if not _add(op, a, b, to, size):
                    return -1
            elif op == COMPARABLE:
                for i in range(size):
                    to[i] = a[i] ^ _TURN if a[i] < 0 else a[i]
            else:
                _double(op, a, b, to, size)
        result = registers[code[len(code) - 1, TO]]
        if not select:
            part = out[first : first + size]
            for i in range(size):
                part[i] = result[i]
            count += size
        else:
            for i in range(size):
                # Written for every row and overwritten until it is one to keep: no branch to mispredict.
                out[np.uint64(count)] = rows[first + i] if chosen else first + i
                count += result[i]
    return count
