"""Bound expressions to programs that run on one row at a time (engine/expr/kernels/row_program), for loops.

Programs for long batches are made of these (`block_program`). The meaning is that of compile_expr. Functions
on texts, and those of the calendar, have no program: they work on the dictionary, which kernels cannot
add to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal, conjuncts
from kasen.engine.batch import ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT, double_bits
from kasen.engine.expr.kernels import instructions as vm
from kasen.engine.expr.kernels.row_program import OP, SIZE, P, Q
from kasen.engine.expr.row_program import Program
from kasen.engine.expr.scalar import exact
from kasen.engine.expr.vector import constant
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.expr.compiler import ExprCompiler
from kasen.types import MAX_DECIMAL_DIGITS, Kind, Type

_DOUBLE = {
    "+": vm.ADD_DOUBLE,
    "-": vm.SUBTRACT_DOUBLE,
    "*": vm.MULTIPLY_DOUBLE,
    "/": vm.DIVIDE_DOUBLE,
    "%": vm.MODULO_DOUBLE,
}
_COMPARE = {"=": vm.EQUAL, "<>": vm.UNEQUAL, "<": vm.LESS, "<=": vm.LESS_EQUAL}
_TURNED = {">": vm.LESS, ">=": vm.LESS_EQUAL}


class NoProgramError(Exception):
    """The expression needs what programs cannot do; the argument names it."""


def program_of_items(items: Sequence[Expr], dictionary: Dictionary) -> Program:
    """A program that computes every item of a SELECT list; plain columns are copied."""
    maker = _ProgramWriter(dictionary)
    results = [each.index if isinstance(each, Column) else -1 - maker.compile(each) for each in items]
    return maker.program(results)


def program_of_value(expr: Expr, dictionary: Dictionary) -> Program:
    """A program whose one result, in a register, is the expression's value."""
    maker = _ProgramWriter(dictionary)
    return maker.program([-1 - maker.compile(expr)])


def program_of_condition(condition: Expr, dictionary: Dictionary) -> Program:
    """A program whose one result is TRUE where the condition is. It ends at the first part that is not."""
    maker = _ProgramWriter(dictionary)
    result = maker.register()
    exits = []
    for part in conjuncts(condition):
        value = maker.compile(part)
        maker.emit(vm.MOVE, result, value)
        exits.append(maker.emit(vm.JUMP_NOT_TRUE, 0, result))
    maker.land(exits)
    return maker.program([-1 - result])


def order_of(type_: Type) -> int:
    codes = {Kind.DOUBLE: ORDER_DOUBLE, Kind.VARCHAR: ORDER_TEXT}
    return codes.get(type_.kind, ORDER_INTEGER)


class _ProgramWriter(ExprCompiler[int]):
    """Writes one program: a part becomes a register. Each value has its own, so constants keep theirs."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        self._code: list[list[int]] = []
        self._registers: list[tuple[int, int]] = []
        self._columns: dict[int, int] = {}
        self._loads: list[list[int]] = []

    def program(self, results: Sequence[int]) -> Program:
        # Columns are read before anything else, so that no jump can miss them.
        shift = len(self._loads) * SIZE
        code = [[*line[:P], line[P] + shift, *line[Q:]] if _jumps(line) else line for line in self._code]
        return Program(
            np.array([*self._loads, *code], np.int64).reshape(-1),
            np.array(self._registers, np.int64).reshape(-1),
            np.array(results, np.int64),
        )

    def register(self, value: int = 0, null: int = 0) -> int:
        self._registers.append((value, null))
        return len(self._registers) - 1

    def emit(self, op: int, to: int, a: int, b: int | None = None, p: int = 0, q: int = 0, r: int = 0) -> int:
        self._code.append([op, to, a, a if b is None else b, p, q, r])
        return len(self._code) - 1

    def land(self, jumps: Sequence[int]) -> None:
        """Lets jumps that were written lead to here."""
        for jump in jumps:
            self._code[jump][P] = len(self._code) * SIZE

    def _column(self, expr: Column) -> int:
        if expr.index not in self._columns:
            self._columns[expr.index] = to = self.register()
            self._loads.append([vm.LOAD, to, expr.index, 0, 0, 0, 0])
        return self._columns[expr.index]

    def _literal(self, expr: Literal) -> int:
        values, nulls = constant(expr.value, expr.type, self._dictionary)
        if nulls is not None:
            return self.register(0, 1)
        if expr.type.kind is Kind.DOUBLE:
            values = double_bits(values)
        return self.register(int(values[0]))

    def _lazy(self, expr: Call) -> int:
        """AND, OR, COALESCE: arguments in turn, until the result is certain."""
        leave = {"and": vm.JUMP_FALSE, "or": vm.JUMP_TRUE, "coalesce": vm.JUMP_NOT_NULL}[expr.op]
        combine = {"and": vm.AND, "or": vm.OR, "coalesce": vm.MOVE}[expr.op]
        result = self.register()
        self.emit(vm.MOVE, result, self.compile(expr.args[0]))
        exits = []
        for arg in expr.args[1:]:
            exits.append(self.emit(leave, 0, result))
            value = self.compile(arg)
            if combine == vm.MOVE:
                self.emit(vm.MOVE, result, value)
            else:
                self.emit(combine, result, result, value)
        self.land(exits)
        return result

    def _case(self, expr: Case) -> int:
        result = self.register()
        exits = []
        for test, value in expr.branches:
            skip = self.emit(vm.JUMP_NOT_TRUE, 0, self.compile(test))
            self.emit(vm.MOVE, result, self.compile(value))
            exits.append(self.emit(vm.JUMP, 0, result))
            self.land([skip])
        self.emit(vm.MOVE, result, self.compile(expr.otherwise))
        self.land(exits)
        return result

    def _call(self, expr: Call) -> int:
        kind = expr.args[0].type.kind
        args = [self.compile(arg) for arg in (expr.args[:1] if expr.op == "round" else expr.args)]
        to = self.register()
        first = args[0]
        match expr.op:
            case "+" | "-" | "*" | "/" | "%" | "ts_add" | "ts_diff":
                self._arithmetic(expr, to, *args)
            case "neg":
                self.emit(vm.NEGATE_DOUBLE if kind is Kind.DOUBLE else vm.NEGATE, to, first)
            case "abs":
                self.emit(vm.ABSOLUTE_DOUBLE if kind is Kind.DOUBLE else vm.ABSOLUTE, to, first)
            case "sign":
                self.emit(vm.SIGN, to, first)
            case "sqrt":
                self.emit(vm.ROOT, to, first)
            case "floor" | "ceil":
                self._whole(expr, to, first)
            case "round":
                self._round(expr, to, first)
            case "not":
                self.emit(vm.NOT, to, first)
            case "is_null":
                self.emit(vm.IS_NULL, to, first)
            case "is_distinct":
                self.emit(vm.IS_DISTINCT, to, *args)
            case "=" | "<>" | "<" | "<=":
                self.emit(_COMPARE[expr.op], to, args[0], args[1], order_of(expr.args[0].type))
            case ">" | ">=":
                self.emit(_TURNED[expr.op], to, args[1], args[0], order_of(expr.args[0].type))
            case "in":
                self._among(to, args)
            case "greatest" | "least":
                self.emit(vm.MOVE, to, first)
                order, sense = order_of(expr.args[0].type), int(expr.op == "greatest")
                for other in args[1:]:
                    self.emit(vm.PICK, to, to, other, order, sense)
            case _:
                raise NoProgramError(expr.op.upper())
        return to

    def _among(self, to: int, args: list[int]) -> None:
        self.emit(vm.EQUAL, to, args[0], args[1])
        for choice in args[2:]:
            equal = self.register()
            self.emit(vm.EQUAL, equal, args[0], choice)
            self.emit(vm.OR, to, to, equal)

    def _arithmetic(self, expr: Call, to: int, a: int, b: int) -> None:
        if expr.type.kind is Kind.DOUBLE:
            self.emit(_DOUBLE[expr.op], to, a, b)
        else:
            step = exact.arithmetic(expr.op, expr.type, [arg.type for arg in expr.args])
            self.emit(step.op, to, a, b, step.p, step.q, step.r)

    def _exact(self, step: exact.Exact | None, to: int, a: int) -> None:
        """An instruction that reads one operand; none if nothing changes."""
        if step is None:
            self.emit(vm.MOVE, to, a)
        else:
            self.emit(step.op, to, a, None, step.p, step.q, step.r)

    def _whole(self, expr: Call, to: int, a: int) -> None:
        arg = expr.args[0].type
        if arg.kind is Kind.DOUBLE:
            self.emit(vm.CEILING if expr.op == "ceil" else vm.FLOOR, to, a)
        else:
            self._exact(exact.whole(expr.op, arg), to, a)

    def _round(self, expr: Call, to: int, a: int) -> None:
        digits: int | None = None
        if len(expr.args) == 2:
            given = expr.args[1]
            while isinstance(given, Cast):
                given = given.arg
            if not isinstance(given, Literal):
                raise NoProgramError("ROUND to computed digits")
            if given.value is None:
                self.emit(vm.NULL_OF, to, a)
                return
            digits = int(given.value)
        type_ = expr.type
        if type_.kind is Kind.DOUBLE:
            if digits is None:
                self.emit(vm.ROUND_DOUBLE, to, a)
            elif abs(digits) > MAX_DECIMAL_DIGITS:
                raise NoProgramError("ROUND to that many digits")
            else:
                self.emit(vm.ROUND_DIGITS, to, a, p=_bits(10.0**digits))
            return
        places = type_.scale - (digits or 0)
        if places > MAX_DECIMAL_DIGITS:
            raise NoProgramError("ROUND to that many digits")
        self._exact(exact.rounded(type_, places) if places > 0 else None, to, a)

    def _cast(self, have: Type, want: Type, a: int) -> int:
        if have == want:
            return a
        to = self.register()
        if have.is_null:
            self.emit(vm.NULL_OF, to, a)
        elif Kind.VARCHAR in (have.kind, want.kind):
            raise NoProgramError(f"CAST from {have} to {want}")
        elif have.kind is Kind.BOOLEAN:
            self.emit(vm.MOVE, to, a)
        elif want.kind is Kind.BOOLEAN:
            self.emit(vm.UNEQUAL, to, a, self.register(0))
        else:
            self._cast_number(have, want, to, a)
        return to

    def _cast_number(self, have: Type, want: Type, to: int, a: int) -> None:
        if have.kind is Kind.DOUBLE:
            if want.kind is Kind.DECIMAL:
                self.emit(vm.DOUBLE_TO_DECIMAL, to, a, p=_bits(10.0**want.scale), q=exact.digits_limit(want))
            else:
                self.emit(vm.DOUBLE_TO_INT, to, a, p=exact.BITS[want.kind])
        elif want.kind is Kind.DOUBLE:
            self.emit(vm.DECIMAL_TO_DOUBLE, to, a, p=10**have.scale)
        else:
            self._exact(exact.cast(have, want), to, a)


def _bits(number: float) -> int:
    return int(np.float64(number).view(np.int64))


def _jumps(line: list[int]) -> bool:
    return vm.JUMP <= line[OP] <= vm.JUMP_NOT_NULL
