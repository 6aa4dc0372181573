"""Conditions and expressions over long batches, a block of rows at a time: see kernels/block_program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from kasen.kernels import block_program as kernel
from kasen.operators import two_cores
from kasen.operators.batch import I64, Batch
from kasen.operators.lazy import Lazy, Part, for_two_cores, part_of

#: From how many rows on a program is worth its while.
_WORTH = 256

_NONE: I64 = np.zeros(0, np.int64)


class BlockProgram:
    """A program of `code`, with constants in registers, over some columns of a batch."""

    def __init__(self, columns: Sequence[int], code: I64, constants: dict[int, int]) -> None:
        assert len(columns) <= kernel.COLUMNS
        self._columns = tuple(columns)
        self._code = code
        registers = 1 + max(int(code[:, kernel.TO].max()), *constants, 0)
        self._registers: I64 = np.zeros((registers, kernel.BLOCK), np.int64)
        for register, value in constants.items():
            self._registers[register] = value
        self._others: I64 | None = None  # the second core's registers

    def chosen(self, batch: Batch) -> Batch | None:
        """The changes for which the condition is TRUE; None if it failed for any row."""
        pieces = _pieces(batch)
        found = self._evaluated(pieces, True, np.empty(len(batch), np.int64))
        parts = []
        for piece, (count, rows) in zip(pieces, found, strict=True):
            if count < 0:
                return None
            if count == piece.size:
                parts.append(piece)
            elif count:
                parts.append(piece._replace(rows=rows[:count]))
        return Lazy(parts or [pieces[0]._replace(rows=_NONE)])

    def write(self, batch: Batch, out: I64) -> bool:
        """Writes the expression's values into a column; False if it failed for any row."""
        return all(count >= 0 for count, _ in self._evaluated(_pieces(batch), False, out))

    def _evaluated(self, pieces: Sequence[Part], select: bool, out: I64) -> list[tuple[int, I64]]:
        """What the program says of each piece, and wrote."""
        work = []
        first = 0
        for piece in pieces:
            work.append((piece, out[first : first + piece.size]))
            first += piece.size
        if len(work) == 1 or not two_cores.worth(len(out)):
            return [self._run(piece, select, to, self._registers) for piece, to in work]
        if self._others is None:
            self._others = self._registers.copy()
        cut = two_cores.middle([piece.size for piece in pieces])

        def run(part: Sequence[tuple[Part, I64]], registers: I64) -> list[tuple[int, I64]]:
            return [self._run(piece, select, to, registers) for piece, to in part]

        there, here = two_cores.both(
            partial(run, work[cut:], self._others), partial(run, work[:cut], self._registers)
        )
        return here + there

    def _run(self, part: Part, select: bool, out: I64, registers: I64) -> tuple[int, I64]:
        columns = [part.columns[index] for index in self._columns]
        columns += columns[:1] * (kernel.COLUMNS - len(columns))
        rows, chosen = (_NONE, False) if part.rows is None else (part.rows, True)
        what = part.size, select, self._code, registers, out
        count = kernel.evaluate(*columns, rows, chosen, *what)  # type: ignore[call-arg]
        return int(count), out


class LateProgram:
    """A program that is made when a batch comes which it is good for; there may be none."""

    def __init__(self, make: Callable[[], BlockProgram | None]) -> None:
        self._made = cache(make)

    def suiting(self, batch: Batch) -> BlockProgram | None:
        if len(batch) < _WORTH or (program := self._made()) is None:
            return None
        return None if batch.has_nulls() else program


def _pieces(batch: Batch) -> Sequence[Part]:
    return for_two_cores(batch.parts if isinstance(batch, Lazy) else [part_of(batch)])
