"""Bound expressions to programs over blocks of rows; not all can be, and those need none."""

from __future__ import annotations

import numpy as np

from kasen.cql.expr import Call, Cast, Column, Expr, Literal
from kasen.engine.batch import double_bits
from kasen.engine.expr.block_program import BlockProgram
from kasen.engine.expr.kernels import block_program as kernel
from kasen.engine.expr.vector import constant
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

_SIGNS = {"=": kernel.EQUAL, "<>": kernel.UNEQUAL, "<": kernel.LESS, "<=": kernel.LESS_EQUAL}
_TURNED = {">": kernel.LESS, ">=": kernel.LESS_EQUAL}
_INTEGERS = {"+": kernel.ADD, "-": kernel.SUBTRACT, "*": kernel.MULTIPLY}
_DOUBLES = {"+": kernel.ADD_DOUBLE, "-": kernel.SUBTRACT_DOUBLE, "*": kernel.MULTIPLY_DOUBLE}
_JOINED = {"and": kernel.AND, "or": kernel.OR}

#: A longer program would not stay in the nearest cache; nor would a longer list for IN.
_MOST_REGISTERS, _MOST_CHOICES = 32, 8


class _NoInstructionError(Exception):
    """The expression has a part that no instruction computes."""


def block_program(expr: Expr, dictionary: Dictionary) -> BlockProgram | None:
    """A program for the expression, or None if there is none."""
    writer = _Writer(dictionary)
    try:
        writer.write(expr)
    except _NoInstructionError:
        return None
    if not writer.columns:
        return None
    return BlockProgram(writer.columns, np.array(writer.code, np.int64), writer.constants)


class _Writer:
    """Every instruction sets a register of its own: then loops may go over several rows at a time."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._registers = 0
        self._known: dict[tuple[int, ...], int] = {}
        self.columns: list[int] = []
        self.code: list[tuple[int, int, int, int]] = []
        self.constants: dict[int, int] = {}

    def write(self, expr: Expr) -> int:
        """The register that holds the expression's value."""
        match expr:
            case Column(index=index):
                return self._load(index)
            case Literal(type=type_, value=value) if value is not None:
                return self._constant(constant(value, type_, self._dictionary)[0])
            case Cast(type=type_, arg=arg) if type_.kind is Kind.BIGINT and arg.type.kind is Kind.INTEGER:
                return self.write(arg)
            case Call(op="in", args=(arg, *choices)) if 0 < len(choices) <= _MOST_CHOICES:
                return self._either(self.write(arg), [self.write(each) for each in choices])
            case Call(op="not", args=(arg,)):
                place = self.write(arg)
                return self._do(kernel.NOT, place, place)
            case Call(op=op, args=args) if op in _JOINED:
                places = [self.write(arg) for arg in args]
                result = places[0]
                for place in places[1:]:
                    result = self._do(_JOINED[op], result, place)
                return result
            case Call(op=op, args=(a, b)) if op in _SIGNS:
                return self._compare(_SIGNS[op], a, b)
            case Call(op=op, args=(a, b)) if op in _TURNED:
                return self._compare(_TURNED[op], b, a)
            case Call(op=op, type=type_, args=(a, b)) if op in _INTEGERS:
                return self._do(_arithmetic(op, type_), self.write(a), self.write(b))
        raise _NoInstructionError

    def _compare(self, op: int, a: Expr, b: Expr) -> int:
        left, right = self.write(a), self.write(b)
        if op in (kernel.LESS, kernel.LESS_EQUAL):
            if a.type.kind is Kind.VARCHAR:
                raise _NoInstructionError
            if a.type.kind is Kind.DOUBLE:
                left, right = (self._do(kernel.COMPARABLE, each, each) for each in (left, right))
        return self._do(op, left, right)

    def _either(self, value: int, choices: list[int]) -> int:
        result = self._do(kernel.EQUAL, value, choices[0])
        for choice in choices[1:]:
            result = self._do(kernel.OR, result, self._do(kernel.EQUAL, value, choice))
        return result

    def _load(self, column: int) -> int:
        if column not in self.columns:
            if len(self.columns) == kernel.COLUMNS:
                raise _NoInstructionError
            self.columns.append(column)
        return self._do(kernel.LOAD, self.columns.index(column), 0)

    def _constant(self, values: np.ndarray) -> int:
        value = int((double_bits(values) if values.dtype == np.float64 else values.astype(np.int64))[0])
        for register, known in self.constants.items():
            if known == value:
                return register
        register = self._new()
        self.constants[register] = value
        return register

    def _do(self, op: int, a: int, b: int) -> int:
        """An instruction's register; what has been computed already is not computed again."""
        if (op, a, b) not in self._known:
            self._known[op, a, b] = self._new()
            self.code.append((op, self._known[op, a, b], a, b))
        return self._known[op, a, b]

    def _new(self) -> int:
        self._registers += 1
        if self._registers > _MOST_REGISTERS:
            raise _NoInstructionError
        return self._registers - 1


def _arithmetic(op: str, type_: Type) -> int:
    if type_.is_integer:
        return _INTEGERS[op]
    if type_.kind is Kind.DOUBLE:
        return _DOUBLES[op]
    raise _NoInstructionError
