"""CAST: a value that does not fit fails."""

from __future__ import annotations

import numpy as np

from kasen.engine.expr.kernels import decimal
from kasen.engine.expr.scalar.arithmetic import digits_limit
from kasen.engine.expr.scalar.lift import checked_unary, unary, unary_kernel
from kasen.engine.expr.scalar.memo import Memo, encode
from kasen.engine.expr.scalar.parse import parser, printer
from kasen.engine.expr.vector import BOOL, DOUBLE, INT, Operation, Vector, dtype_of
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

_BITS = {Kind.INTEGER: 32, Kind.BIGINT: 64}


def cast(have: Type, want: Type, dictionary: Dictionary, failures: Failures) -> Operation | None:
    """The conversion; None if it changes nothing."""
    if have == want or _holds(have, want):
        return None
    if have.is_null:
        null = np.zeros(1, dtype_of(want)), np.ones(1, BOOL)
        return lambda _: null
    if have.kind is Kind.VARCHAR:
        return Memo(parser(want), want, dictionary, failures)
    if want.kind is Kind.VARCHAR:
        return _to_text(have, want, dictionary, failures)
    if have.kind is Kind.BOOLEAN:
        return unary(lambda values: values.astype(INT))
    if want.kind is Kind.BOOLEAN:
        return unary(lambda values: values != 0)
    return _number(have, want, failures)


def _holds(have: Type, want: Type) -> bool:
    """Whether every value of `have` is, as it is held, the same value of `want`."""
    if have.kind is Kind.DECIMAL:
        return want.kind is Kind.DECIMAL and want.scale == have.scale and want.precision >= have.precision
    return have.kind is Kind.INTEGER and want.kind is Kind.BIGINT


def _number(have: Type, want: Type, failures: Failures) -> Operation:
    """Between numbers. Integers are decimals of scale 0."""
    if have.kind is Kind.DOUBLE:
        if want.kind is Kind.DECIMAL:
            limit = digits_limit(want)
            return checked_unary(decimal.double_to_decimal, INT, failures, 10.0**want.scale, limit)
        return checked_unary(decimal.double_to_int, INT, failures, _BITS[want.kind])
    if want.kind is Kind.DOUBLE:
        return unary_kernel(decimal.decimal_to_double, DOUBLE, 10**have.scale)
    if want.kind is not Kind.DECIMAL:
        return checked_unary(decimal.truncate_units, INT, failures, 10**have.scale, _BITS[want.kind])
    if want.scale >= have.scale:
        factor = 10 ** (want.scale - have.scale)
        return checked_unary(decimal.scale_up, INT, failures, factor, digits_limit(want))
    unit = 10 ** (have.scale - want.scale)
    return checked_unary(decimal.scale_down, INT, failures, unit, digits_limit(want))


def _to_text(have: Type, want: Type, dictionary: Dictionary, failures: Failures) -> Operation:
    """Each different value is printed once a batch."""
    if have.kind is Kind.BOOLEAN:
        words = np.array([dictionary.constant("false"), dictionary.constant("true")], INT)
        return unary(lambda values: words[values.astype(INT)])
    show = printer(have)

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        there = values if nulls is None else values[np.broadcast_to(~nulls, values.shape)]
        different = np.unique(there)
        texts = [show(value) for value in different.tolist()]
        if not texts:
            return np.zeros(len(values), INT), nulls
        at = np.minimum(np.searchsorted(different, values), len(different) - 1)
        if None in texts:
            nulls = failures.null(np.array([text is None for text in texts])[at], nulls)
        return encode(texts, want, dictionary)[at], nulls

    return operation
