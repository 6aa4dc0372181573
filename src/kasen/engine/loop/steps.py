"""What the loop machine (kernels/machine) asks of the steps that it runs by itself: each lends it its state.

So an operator's state is the same whether the machine runs it or `process` does, and so is its snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from kasen.engine.batch import I64, Frontier
from kasen.engine.expr.row_program import Program
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.operator import Operator
from kasen.errors import InternalError

_NEVER = Frontier(loop_table.NEVER, loop_table.NEVER)


def lend(row: I64, field: int, array: npt.NDArray[Any], *, size: bool = True) -> None:
    """Writes where an array is, and how long, into two fields."""
    if not array.flags.c_contiguous or array.itemsize != 8:
        raise InternalError("the loop machine takes only plain arrays of words")
    row[field] = array.__array_interface__["data"][0]
    if size:
        row[field + 1] = len(array)


def lend_program(row: I64, program: Program) -> None:
    lend(row, loop_table.CODE, program.code)
    lend(row, loop_table.REGISTERS, program.registers)
    lend(row, loop_table.RESULTS, program.results)


def set_due(row: I64, due: Frontier | None) -> None:
    row[loop_table.DUE_TS], row[loop_table.DUE_SEQ_TICK] = due or _NEVER


class LoopStep:
    """A step that the machine runs. The defaults are those of a step without memory.

    The machine's table has one row per step; kernels/table names its fields. `lend_state` comes first,
    and again after anything else has used the step; between the two the arrays lent must stay where they
    are. `take_back` comes before anybody else looks at the step, and around `make_room`.
    """

    #: Which kernel runs it.
    loop_kind: int = loop_table.PASS
    #: Whether it may act without input.
    fires: bool = False

    def lend_state(self, row: I64) -> None:
        """Writes arrays and marks into the step's row."""

    def take_back(self, row: I64) -> None:
        """Reads the marks that the machine has moved."""

    def make_room(self, wanted: int) -> None:
        """More room for state: how much, or which, is between the step and its kernel."""
        raise AssertionError(f"{type(self).__name__} cannot grow by {wanted}")


class ProgramStep(LoopStep):
    """A filter or a projection."""

    def __init__(self, kind: int, program: Program) -> None:
        self.loop_kind = kind
        self._program = program

    def lend_state(self, row: I64) -> None:
        lend_program(row, self._program)


class CalledStep(LoopStep):
    """An operator that the machine does not know: it is called. Its inputs are the machine's steps."""

    loop_kind = loop_table.FOREIGN
    fires = True

    def __init__(self, operator: Operator, inputs: Sequence[int]) -> None:
        self.operator = operator
        self.inputs = tuple(inputs)

    def lend_state(self, row: I64) -> None:
        set_due(row, self.operator.next_instant())
