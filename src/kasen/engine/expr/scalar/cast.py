"""CAST: a value that does not fit fails."""

from __future__ import annotations

from functools import partial

import numpy as np

from kasen.engine.expr.kernels import decimal
from kasen.engine.expr.scalar import exact
from kasen.engine.expr.scalar.lift import checked_unary, exact_unary, unary, unary_kernel
from kasen.engine.expr.scalar.memo import Memo, encode
from kasen.engine.expr.vector import BOOL, DOUBLE, INT, Operation, Vector, dtype_of
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.text_values import parse_text, printer
from kasen.types import Kind, Type


def cast(have: Type, want: Type, dictionary: Dictionary, failures: Failures) -> Operation | None:
    """The conversion; None if it changes nothing."""
    if have == want or exact.holds(have, want):
        return None
    if have.is_null:
        null = np.zeros(1, dtype_of(want)), np.ones(1, BOOL)
        return lambda _: null
    if have.kind is Kind.VARCHAR:
        return Memo(partial(parse_text, type_=want), want, dictionary, failures)
    if want.kind is Kind.VARCHAR:
        return _to_text(have, want, dictionary, failures)
    if have.kind is Kind.BOOLEAN:
        return unary(lambda values: values.astype(INT))
    if want.kind is Kind.BOOLEAN:
        return unary(lambda values: values != 0)
    return _number(have, want, failures)


def _number(have: Type, want: Type, failures: Failures) -> Operation:
    """Between numbers."""
    if have.kind is Kind.DOUBLE:
        if want.kind is Kind.DECIMAL:
            limit = exact.digits_limit(want)
            return checked_unary(decimal.double_to_decimal, INT, failures, 10.0**want.scale, limit)
        return checked_unary(decimal.double_to_int, INT, failures, exact.BITS[want.kind])
    if want.kind is Kind.DOUBLE:
        return unary_kernel(decimal.decimal_to_double, DOUBLE, 10**have.scale)
    step = exact.cast(have, want)
    assert step is not None, "casts that change nothing are left out"
    return exact_unary(step, failures)


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
