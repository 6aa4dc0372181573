"""Vectors: what expressions compute on.

A vector is (values, nulls). Values are int64 for integers, timestamps, scaled decimals and dictionary
codes, float64 for DOUBLE, bool for BOOLEAN. `nulls` is set where the row is NULL; None means nowhere.
Each of the two has one element a row, or a single one that stands for all rows: that is what a constant
is, and what operations on constants give. If values has a single one, so has nulls.

The value under a NULL may be anything its kind allows (a code is always one of the dictionary's). Vectors
share memory with batches and with each other, so nobody changes one.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch
from kasen.engine.kernels.columns import canonical_bits, null_mask, put_nulls
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Nulls = Mask | None
Vector = tuple[Values, Nulls]

#: An operation on vectors, for as many arguments as it takes.
Operation = Callable[..., Vector]
#: A part of an expression over a batch; the flag says whether any of its rows has a NULL.
Node = Callable[[Batch, bool], Vector]
#: A whole expression; its answer has one element a row.
Evaluator = Callable[[Batch], Vector]
#: A condition; set where it is TRUE.
Condition = Callable[[Batch], Mask]

INT, DOUBLE, BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)


def dtype_of(type_: Type) -> np.dtype[Any]:
    if type_.kind is Kind.DOUBLE:
        return DOUBLE
    return BOOL if type_.kind is Kind.BOOLEAN else INT


def either(left: Nulls, right: Nulls) -> Nulls:
    """Where either side is NULL."""
    if left is None:
        return right
    return left if right is None else left | right


def width(left: Values, right: Values) -> int:
    """The number of rows of an operation on both; one that is constant adapts to the other."""
    return len(left) if len(right) == 1 else len(right)


def load(column: int, type_: Type) -> Node:
    """Reads a column."""
    kind = type_.kind

    def load_column(batch: Batch, any_null: bool) -> Vector:
        values: Values = batch.column(column)
        if kind is Kind.DOUBLE:
            values = values.view(DOUBLE)
        elif kind is Kind.BOOLEAN:
            values = values != 0
        if not any_null:
            return values, None
        nulls = np.empty(len(values), BOOL)
        return values, nulls if null_mask(batch.column(-1), column, nulls) else None

    return load_column


def store(data: I64, column: int, vector: Vector) -> None:
    """Writes a column whose NULL bits are still clear."""
    values, nulls = vector
    if values.dtype == DOUBLE:
        canonical_bits(values, data[column])
    else:
        data[column] = values
    if nulls is not None:
        put_nulls(nulls, column, data)


def constant(value: bool | int | float | str | Decimal | None, type_: Type, dictionary: Dictionary) -> Vector:
    """A value as a vector. TIMESTAMPs and INTERVALs are int (µs), DECIMALs Decimal, None is NULL."""
    dtype = dtype_of(type_)
    if value is None:
        return np.zeros(1, dtype), np.ones(1, BOOL)
    if isinstance(value, str):
        value = dictionary.constant(value)
    elif isinstance(value, Decimal):
        value = int(value.scaleb(type_.scale))
    return np.array([value], dtype), None


def expand(vector: Vector, rows: int) -> Vector:
    """The vector with one element a row."""
    values, nulls = vector
    if len(values) != rows:
        values = np.repeat(values, rows)
    if nulls is not None and len(nulls) != rows:
        nulls = np.repeat(nulls, rows)
    return values, nulls
