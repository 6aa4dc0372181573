"""Programs over blocks of rows, made of those for one row; not all can be, and those need none."""

from __future__ import annotations

import numpy as np

from kasen.cql.expr import Call, Expr, walk
from kasen.engine.batch import ORDER_DOUBLE, ORDER_TEXT
from kasen.engine.expr.block_program import BlockProgram
from kasen.engine.expr.kernels import block_program as kernel
from kasen.engine.expr.kernels import instructions as vm
from kasen.engine.expr.kernels.row_program import SIZE, Q
from kasen.engine.expr.row_program import Program
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.expr.row_program import NoProgramError, program_of_value

#: A longer program would not stay in the nearest cache; nor would a longer list for IN.
_MOST_REGISTERS, _MOST_CHOICES = 32, 8


def block_program(expr: Expr, dictionary: Dictionary) -> BlockProgram | None:
    """A program for the expression, or None if there is none."""
    if any(
        isinstance(part, Call) and part.op == "in" and len(part.args) > 1 + _MOST_CHOICES
        for part in walk(expr)
    ):
        return None
    try:
        writer = _Writer(program_of_value(expr, dictionary))
    except NoProgramError:
        return None
    if not writer.columns:
        return None
    return BlockProgram(writer.columns, np.array(writer.code, np.int64), writer.constants)


class _Writer:
    """Every instruction sets a register of its own: then loops may go over several rows at a time.

    The rows of a block have no NULLs and stay together: an argument that some of them do not need is computed
    for all, and if that fails for any row, the program gives up.
    """

    def __init__(self, program: Program) -> None:
        self._count = 0
        self._known: dict[tuple[int, ...], int] = {}
        self._places: dict[int, int] = {}  # the registers by those of the program for one row
        self._registers = program.registers.reshape(-1, 2).tolist()
        self.columns: list[int] = []
        self.code: list[tuple[int, int, int, int]] = []
        self.constants: dict[int, int] = {}
        for line in program.code.reshape(-1, SIZE).tolist():
            self._translate(*line[:Q])
        if self.code and self._place(-1 - int(program.results[0])) != self.code[-1][kernel.TO]:
            raise NoProgramError("a result that is not computed last")

    def _translate(self, op: int, to: int, a: int, b: int, order: int) -> None:
        if op == vm.LOAD:
            self._places[to] = self._load(a)
        elif op == vm.MOVE:
            self._places[to] = self._place(a)
        elif op in kernel.SUPPORTED:
            left, right = self._place(a), self._place(b)
            if op in (vm.LESS, vm.LESS_EQUAL):
                left, right = self._comparable(left, order), self._comparable(right, order)
            self._places[to] = self._do(op, left, right)
        elif op not in (vm.JUMP_FALSE, vm.JUMP_TRUE):
            raise NoProgramError("what blocks cannot do")

    def _place(self, register: int) -> int:
        """The register that holds what a register of the program for one row does."""
        if register not in self._places:  # nothing has set it, so it is a constant
            value, null = self._registers[register]
            if null:
                raise NoProgramError("NULL")
            self._places[register] = self._constant(value)
        return self._places[register]

    def _comparable(self, place: int, order: int) -> int:
        if order == ORDER_TEXT:
            raise NoProgramError("the order of texts")
        return self._do(kernel.COMPARABLE, place, place) if order == ORDER_DOUBLE else place

    def _load(self, column: int) -> int:
        if column not in self.columns:
            if len(self.columns) == kernel.COLUMNS:
                raise NoProgramError("more columns")
            self.columns.append(column)
        return self._do(vm.LOAD, self.columns.index(column), 0)

    def _constant(self, value: int) -> int:
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
        self._count += 1
        if self._count > _MOST_REGISTERS:
            raise NoProgramError("more registers")
        return self._count - 1
