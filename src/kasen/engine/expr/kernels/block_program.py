"""Expressions a block of rows at a time, as programs: for batches too long for the processor's cache.

`code` holds some of the instructions of programs, of SIZE words each: what to do, the register to
set, the registers read. A register is a row of `registers` and holds one value per row of the block, as a
batch has it; those of constants are filled once, when the program is made. A register below zero is a
column itself, of which a block reads its part where it lies; the first column is -1. What an instruction
does is found out once per block, and a block's values stay in the nearest cache from the first instruction
to the last, so that a row costs little more than reading it.

Only for rows without NULLs. A program that fails for any row gives up: what a failure means, and for which
rows it counts, is the business of those who evaluate the expression the slow way then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.expr.kernels.instructions import (
    ADD,
    ADD_DOUBLE,
    AND,
    EQUAL,
    LESS,
    LESS_EQUAL,
    LOAD,
    MULTIPLY,
    MULTIPLY_DOUBLE,
    NOT,
    OR,
    SUBTRACT,
    SUBTRACT_DOUBLE,
    UNEQUAL,
)
from kasen.engine.expr.kernels.scalar import product_overflows
from kasen.engine.kernels.compiled import M, V, compiled

OP, TO, A, B, SIZE = range(5)

#: What blocks can do; and what only they do: DOUBLEs' bits to numbers that compare as the DOUBLEs do.
SUPPORTED = {
    *(LOAD, AND, OR, NOT, EQUAL, UNEQUAL, LESS, LESS_EQUAL, ADD, SUBTRACT, MULTIPLY),
    *(ADD_DOUBLE, SUBTRACT_DOUBLE, MULTIPLY_DOUBLE),
}
COMPARABLE = -1

#: How many rows a block has at most, and how many different columns a program may read.
BLOCK, COLUMNS = 1024, 4

_TURN = 0x7FFFFFFFFFFFFFFF
#: The product of two numbers below this fits.
_HALF = 2**31


@compiled(f"boolean({V}, {V}, {V}, int64)")
def _multiply(a: Any, b: Any, to: Any, size: Any) -> Any:
    """a * b; False if any product does not fit. Few are so great that each must be looked at."""
    bits = 0
    for i in range(size):
        bits |= (a[i] ^ (a[i] >> 63)) | (b[i] ^ (b[i] >> 63))
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


_COLUMNS = f"{V}, {V}, {V}, {V}"


@compiled(f"boolean({_COLUMNS}, {V}, boolean, int64, int64, {M}, {M}, {V})", inline=False)
def _run(
    c0: Any, c1: Any, c2: Any, c3: Any, rows: Any, chosen: Any, first: Any, size: Any, code: Any,
    registers: Any, last: Any,
) -> Any:  # fmt: skip
    """A program's instructions for one block; the last one's values go to `last`. False if it failed."""
    for p in range(len(code)):
        op, a_at, b_at = code[p, OP], code[p, A], code[p, B]
        to = last if p == len(code) - 1 else registers[np.uint64(code[p, TO])]
        if op == LOAD:
            column = c0 if a_at == 0 else c1 if a_at == 1 else c2 if a_at == 2 else c3
            _load(column, rows, chosen, first, to, size)
            continue
        if a_at < 0:
            column = c0 if a_at == -1 else c1 if a_at == -2 else c2 if a_at == -3 else c3
            a = column[first : first + size]
        else:
            a = registers[np.uint64(a_at)]
        if b_at < 0:
            column = c0 if b_at == -1 else c1 if b_at == -2 else c2 if b_at == -3 else c3
            b = column[first : first + size]
        else:
            b = registers[np.uint64(b_at)]
        if op == COMPARABLE:
            for i in range(size):
                to[i] = a[i] ^ _TURN if a[i] < 0 else a[i]
        elif op <= LESS_EQUAL:
            _decide(op, a, b, to, size)
        elif op == MULTIPLY:
            if not _multiply(a, b, to, size):
                return False
        elif op <= SUBTRACT:
            if not _add(op, a, b, to, size):
                return False
        else:
            _double(op, a, b, to, size)
    return True


@compiled(f"int64({_COLUMNS}, {V}, boolean, int64, {M}, {M}, {V})", inline=False)
def evaluate(
    c0: Any,  # the columns that the program reads; any array for one that it does not
    c1: Any,
    c2: Any,
    c3: Any,
    rows: Any,  # which rows of the columns are meant, if they are
    chosen: Any,  # only some
    n: Any,  # how many rows that is
    code: Any,
    registers: Any,
    out: Any,  # [n]
) -> Any:
    """Writes the last instruction's value of each row; how many, or -1 if the program failed."""
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        if not _run(c0, c1, c2, c3, rows, chosen, first, size, code, registers, out[first : first + size]):
            return -1
    return n


@compiled(f"int64({V}, {V}, boolean, int64, int64, {V}, int64)")
def _keep(result: Any, rows: Any, chosen: Any, first: Any, size: Any, out: Any, count: Any) -> Any:
    """Writes the rows of a block for which the result is TRUE; how many there are now."""
    # Written for every row and overwritten until it is one to keep: no branch to mispredict.
    if chosen:
        for i in range(size):
            out[np.uint64(count)] = rows[np.uint64(first + i)]
            count += result[i]
    else:
        for i in range(size):
            out[np.uint64(count)] = first + i
            count += result[i]
    return count


@compiled(f"int64({_COLUMNS}, {V}, boolean, int64, {M}, {M}, {V})", inline=False)
def choose(
    c0: Any, c1: Any, c2: Any, c3: Any, rows: Any, chosen: Any, n: Any, code: Any, registers: Any, out: Any
) -> Any:
    """Writes the rows for which the program says TRUE; how many, or -1 if it failed. Else like `evaluate`."""
    count = 0
    result = registers[code[len(code) - 1, TO]]
    for first in range(0, n, BLOCK):
        size = min(BLOCK, n - first)
        if not _run(c0, c1, c2, c3, rows, chosen, first, size, code, registers, result):
            return -1
        count = _keep(result, rows, chosen, first, size, out, count)
    return count
