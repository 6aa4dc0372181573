"""Functions of texts, evaluated once for each text.

A column of texts is a column of codes, and a text keeps its code as long as anything holds it. So a
function of one text column is a table by code, filled as codes are first met; from then on it costs a
look-up a row. When texts are forgotten, the table is, too: codes in it may come to stand for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.expr.kernels.logic import look_up
from kasen.engine.expr.vector import BOOL, DOUBLE, INT, Nulls, Operation, Values, Vector, either, expand
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

#: What a function of texts gives; None if it fails.
Result = str | int | float | None

_UNKNOWN, _KNOWN, _FAILED = 0, 1, 2


class Memo:
    """A function of one text column, as an operation on vectors. May fail."""

    def __init__(
        self, function: Callable[[str], Result], result: Type, dictionary: Dictionary, failures: Failures
    ) -> None:
        self._function = function
        self._result = result
        self._dictionary = dictionary
        self._failures = failures
        self._begin()

    def _begin(self) -> None:
        self._generation = self._dictionary.generation
        self._known = np.zeros(16, np.uint8)
        self._results = np.zeros(16, INT)

    def __call__(self, arg: Vector) -> Vector:
        codes, nulls = arg
        if self._generation != self._dictionary.generation:
            self._begin()
        if len(self._known) < len(self._dictionary):
            self._grow()
        out, failed = np.empty(len(codes), INT), np.empty(len(codes), BOOL)
        met = look_up(codes, self._known, self._results, out, failed)
        if met & 2:
            self._learn(codes)
            met = look_up(codes, self._known, self._results, out, failed)
        if met:
            nulls = self._failures.null(failed, nulls)
        return as_values(out, self._result), nulls

    def _grow(self) -> None:
        room = 2 * len(self._dictionary) - len(self._known)
        self._known = np.concatenate([self._known, np.zeros(room, np.uint8)])
        self._results = np.concatenate([self._results, np.zeros(room, INT)])

    def _learn(self, codes: I64) -> None:
        fresh = np.unique(codes[self._known[codes] == _UNKNOWN])
        found = [self._function(text) for text in self._dictionary.decode(fresh)]
        self._results[fresh] = encode(found, self._result, self._dictionary)
        self._known[fresh] = [_FAILED if one is None else _KNOWN for one in found]


def row_by_row(
    function: Callable[..., Result],
    args: Sequence[Type],
    result: Type,
    dictionary: Dictionary,
    failures: Failures,
) -> Operation:
    """A function of several columns. May fail."""

    def operation(*vectors: Vector) -> Vector:
        rows = next((len(values) for values, _ in vectors if len(values) != 1), 1)
        nulls: Nulls = None
        for vector in vectors:
            nulls = either(nulls, vector[1])
        columns = [
            _decode(values, type_, rows, dictionary) for (values, _), type_ in zip(vectors, args, strict=True)
        ]
        found: list[Result]
        if nulls is None:
            found = [function(*row) for row in zip(*columns, strict=True)]
        else:
            skip = expand((nulls, None), rows)[0].tolist()
            found = [None if null else function(*row) for null, *row in zip(skip, *columns, strict=True)]
        if None in found:
            failed = np.array([one is None for one in found], BOOL)
            nulls = failures.null(failed, nulls)
        return as_values(encode(found, result, dictionary), result), nulls

    return operation


def _decode(values: Values, type_: Type, rows: int, dictionary: Dictionary) -> list[object]:
    cells: list[object] = [*dictionary.decode(values)] if type_.kind is Kind.VARCHAR else values.tolist()
    return cells * rows if len(cells) == 1 else cells


def encode(found: Sequence[Result], type_: Type, dictionary: Dictionary) -> I64:
    """Results as int64: codes, numbers, or a double's bits; 0 for None."""
    if type_.kind is Kind.VARCHAR:
        codes = np.zeros(len(found), INT)
        there = [index for index, one in enumerate(found) if one is not None]
        codes[there] = dictionary.encode_made([str(found[index]) for index in there])
        return codes
    if type_.kind is Kind.DOUBLE:
        return np.array([one or 0.0 for one in found], DOUBLE).view(INT)
    return np.array([one or 0 for one in found], INT)


def as_values(cells: I64, type_: Type) -> Values:
    """int64 as the values of a type."""
    if type_.kind is Kind.DOUBLE:
        return cells.view(DOUBLE)
    return cells != 0 if type_.kind is Kind.BOOLEAN else cells
