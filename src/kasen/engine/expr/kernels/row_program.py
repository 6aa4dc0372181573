"""Expressions one row at a time, as programs: for the instants of loops, where rows come one by one.

`code` holds instructions of SIZE words: what to do, the register to set, the registers read, and
constants. `registers` holds two words a register: its value as in a batch (DOUBLE as canonical bits), and
1 if it is NULL. Registers of constants are filled once, when the program is made. Arguments that SQL does
not need are jumped over, so what fails on the way is what counts as a failure (see engine/failures).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kasen.engine.expr.kernels.decimal import nearest_quotient, round_half_away
from kasen.engine.expr.kernels.exact import decimal, integer
from kasen.engine.expr.kernels.instructions import (
    ABSOLUTE,
    ABSOLUTE_DOUBLE,
    ADD_DOUBLE,
    AND,
    CEILING,
    DECIMAL_TO_DOUBLE,
    DIVIDE_DOUBLE,
    DOUBLE_TO_INT,
    EQUAL,
    FLOOR,
    IS_DISTINCT,
    IS_NULL,
    JUMP,
    JUMP_FALSE,
    JUMP_NOT_NULL,
    JUMP_NOT_TRUE,
    JUMP_TRUE,
    LESS,
    LESS_EQUAL,
    LOAD,
    MODULO_DOUBLE,
    MOVE,
    MULTIPLY_DOUBLE,
    NEGATE_DOUBLE,
    NOT,
    NULL_OF,
    OR,
    PICK,
    ROOT,
    ROUND_DIGITS,
    ROUND_DOUBLE,
    SIGN,
    SUBTRACT_DOUBLE,
    UNEQUAL,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.views import as_bits, as_double
from kasen.engine.stream.kernels.value_order import comparable

#: The words of an instruction.
OP, TO, A, B, P, Q, R, SIZE = range(8)

_EXACT_IN_DOUBLE = 2**53


@compiled("int64(float64)")
def canonical(value: Any) -> Any:
    """The bits of a DOUBLE: one NaN, one zero."""
    return as_bits(np.nan) if value != value else as_bits(value + 0.0)


@compiled("Tuple((int64, boolean))(int64, int64, int64, int64, int64, int64)", inline=False)
def _decimal(op: Any, a: Any, b: Any, p: Any, q: Any, r: Any) -> Any:
    return decimal(op, a, b, p, q, r)


@compiled("Tuple((int64, boolean))(int64, int64, int64, int64, int64)", inline=False)
def _inexact(op: Any, a: Any, b: Any, p: Any, q: Any) -> Any:
    """Doubles: the result's bits, and whether there is none."""
    if op == DECIMAL_TO_DOUBLE:
        if p == 1 or abs(a) <= _EXACT_IN_DOUBLE:
            return canonical(float(a) / float(p)), False
        return canonical(nearest_quotient(a, p) if a > 0 else -nearest_quotient(-a, p)), False
    x, y = as_double(a), as_double(b)
    if op == ADD_DOUBLE:
        return canonical(x + y), False
    if op == SUBTRACT_DOUBLE:
        return canonical(x - y), False
    if op == MULTIPLY_DOUBLE:
        return canonical(x * y), False
    if op == DIVIDE_DOUBLE:
        return (0, True) if y == 0.0 else (canonical(x / y), False)
    if op == MODULO_DOUBLE:
        return (0, True) if y == 0.0 else (canonical(np.fmod(x, y)), False)
    if op == NEGATE_DOUBLE:
        return canonical(-x), False
    if op == ABSOLUTE_DOUBLE:
        return canonical(abs(x)), False
    if op == SIGN:
        return canonical(1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)), False
    if op == ROOT:
        return (0, True) if x < 0.0 else (canonical(math.sqrt(x)), False)
    if op == FLOOR:
        return canonical(np.floor(x)), False
    if op == CEILING:
        return canonical(np.ceil(x)), False
    if op == ROUND_DOUBLE:
        return canonical(round_half_away(x)), False
    if op == ROUND_DIGITS:
        power = as_double(p)
        sign = 1.0 if x > 0.0 else (-1.0 if x < 0.0 else 0.0)
        return canonical(sign * np.floor(abs(x) * power + 0.5) / power), False
    if op == DOUBLE_TO_INT:
        edge = 2.0 ** (p - 1)
        whole = np.trunc(x)
        return (int(whole), False) if -edge <= whole < edge else (0, True)
    # DOUBLE_TO_DECIMAL
    edge = float(q + 1)
    rounded = round_half_away(x * as_double(p))
    return (int(rounded), False) if -edge < rounded < edge else (0, True)


@compiled(f"int64({V}, {V}, {M}, int64, int64, {V})", inline=False)
def evaluate(code: Any, registers: Any, data: Any, row: Any, diff: Any, labels: Any) -> Any:
    """Runs a program on a row of `data`; returns how many failures count for a change of `diff`."""
    failures = 0
    at = 0
    nulls = data[data.shape[0] - 1, row]
    while at < len(code):
        op = code[at + OP]
        to = 2 * code[at + TO]
        if op == LOAD:
            column = code[at + A]
            registers[to] = data[column, row]
            registers[to + 1] = (nulls >> column) & 1
            at += SIZE
            continue
        a = 2 * code[at + A]
        value, null = registers[a], registers[a + 1]
        if op >= JUMP and op <= JUMP_NOT_NULL:
            if op == JUMP_FALSE:
                jumps = null == 0 and value == 0
            elif op == JUMP_TRUE:
                jumps = null == 0 and value != 0
            elif op == JUMP_NOT_TRUE:
                jumps = null != 0 or value == 0
            elif op == JUMP_NOT_NULL:
                jumps = null == 0
            else:
                jumps = True
            at = code[at + P] if jumps else at + SIZE
            continue
        if op == MOVE:
            registers[to], registers[to + 1] = value, null
        elif op == NOT:
            registers[to], registers[to + 1] = 1 - value, null
        elif op == IS_NULL:
            registers[to], registers[to + 1] = null, 0
        elif op == NULL_OF:
            registers[to], registers[to + 1] = 0, 1
        else:
            b = 2 * code[at + B]
            other, other_null = registers[b], registers[b + 1]
            if op == AND:
                false = (null == 0 and value == 0) or (other_null == 0 and other == 0)
                registers[to + 1] = 0 if false else null | other_null
                registers[to] = 0 if false or registers[to + 1] else 1
            elif op == OR:
                true = (null == 0 and value != 0) or (other_null == 0 and other != 0)
                registers[to + 1] = 0 if true else null | other_null
                registers[to] = 1 if true else 0
            elif op == IS_DISTINCT:
                if null | other_null:
                    registers[to] = 1 if null != other_null else 0
                else:
                    registers[to] = 1 if value != other else 0
                registers[to + 1] = 0
            elif op == PICK:
                # `a`, unless it is NULL or `b` is there and better: greater if Q is 1, else less.
                order = code[at + P]
                better = False
                if not (null | other_null):
                    x, y = comparable(value, order, labels), comparable(other, order, labels)
                    better = y > x if code[at + Q] == 1 else y < x
                take = other_null == 0 and (null != 0 or better)
                registers[to] = other if take else value
                registers[to + 1] = null & other_null
            elif null | other_null:
                registers[to], registers[to + 1] = 0, 1
            elif op <= LESS_EQUAL:
                if op == EQUAL:
                    holds = value == other
                elif op == UNEQUAL:
                    holds = value != other
                else:
                    order = code[at + P]
                    x, y = comparable(value, order, labels), comparable(other, order, labels)
                    holds = x < y if op == LESS else x <= y
                registers[to], registers[to + 1] = 1 if holds else 0, 0
            else:
                if (op >= ADD_DOUBLE and op <= ROUND_DIGITS) or (
                    op >= DOUBLE_TO_INT and op <= DECIMAL_TO_DOUBLE
                ):
                    result, failed = _inexact(op, value, other, code[at + P], code[at + Q])
                elif op <= ABSOLUTE:
                    result, failed = integer(op, value, other)
                else:
                    settings = code[at + P], code[at + Q], code[at + R]
                    result, failed = _decimal(op, value, other, *settings)
                registers[to] = 0 if failed else result
                registers[to + 1] = 1 if failed else 0
                if failed and diff > 0:
                    failures += diff
        at += SIZE
    return failures
