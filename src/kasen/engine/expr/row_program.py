"""A compiled expression for one row at a time; see kernels/row_program."""

from __future__ import annotations

from dataclasses import dataclass

from kasen.engine.batch import I64


@dataclass(frozen=True, slots=True)
class Program:
    """`code` and `registers` as the kernel takes them, and where the results are.

    `results` has a number for each: a column of the row, or -1 minus a register. Registers are the
    program's own memory: nobody else may run it at the same time.
    """

    code: I64
    registers: I64
    results: I64
