"""Conditions and expressions over long batches, a block of rows at a time: see kernels/block_program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kasen.engine.batch import I64, Batch
from kasen.engine.deferred_batch import DeferredBatch, RowSelection, in_parallel, selections_of
from kasen.engine.expr.kernels import block_program as kernel
from kasen.engine.expr.kernels.instructions import LOAD

#: From how many rows on a program is worth its while.
_WORTH = 256

_NONE: I64 = np.zeros(0, np.int64)

#: Parts, each with room for a number a row.
_Work = Sequence[tuple[RowSelection, I64]]


class BlockProgram:
    """A program of `code`, with constants in registers, over some columns of a batch."""

    def __init__(self, columns: Sequence[int], code: I64, constants: dict[int, int]) -> None:
        assert len(columns) <= kernel.COLUMNS
        self._columns = tuple(columns)
        self._code = code
        self._in_place = _in_place(code)
        registers = 1 + max(int(code[:, kernel.TO].max()), *constants, 0)
        self._registers: I64 = np.zeros((registers, kernel.BLOCK), np.int64)
        for register, value in constants.items():
            self._registers[register] = value
        self._others: I64 | None = None  # the second core's registers

    def chosen(self, batch: Batch) -> Batch | None:
        """The changes for which the condition is TRUE; None if it failed for any row."""
        out = np.empty(len(batch), np.int64)
        found: dict[int, list[tuple[RowSelection, I64, int]]] = {}

        def choose(parts: Sequence[RowSelection], among: slice, core: int) -> None:
            work = _with_room(parts, out[among])
            counts = self._run(kernel.choose, work, core)
            found[core] = [(*each, count) for each, count in zip(work, counts, strict=True)]

        in_parallel(selections_of(batch), choose)
        chosen = []
        for part, rows, count in (*found[0], *found.get(1, ())):
            if count < 0:
                return None
            chosen.append(part if count == part.size else part._replace(rows=rows[:count]))
        return DeferredBatch([part for part in chosen if part.size] or chosen[:1])

    def write(self, parts: Sequence[RowSelection], out: I64, core: int) -> bool:
        """Writes the expression's values of some parts; False if it failed for any row."""
        return all(count >= 0 for count in self._run(kernel.evaluate, _with_room(parts, out), core))

    def _run(self, run: Callable[..., int], work: _Work, core: int) -> list[int]:
        """What a kernel says of each part."""
        if core and self._others is None:
            self._others = self._registers.copy()
        registers = self._others if core else self._registers
        found = []
        for part, out in work:
            columns = [part.columns[index] for index in self._columns]
            columns += columns[:1] * (kernel.COLUMNS - len(columns))
            if part.rows is None:
                count = run(*columns, _NONE, False, part.size, self._in_place, registers, out)
            else:
                count = run(*columns, part.rows, True, part.size, self._code, registers, out)
            found.append(int(count))
        return found


def _with_room(parts: Sequence[RowSelection], out: I64) -> _Work:
    """The parts, each with its piece of `out`."""
    work = []
    first = 0
    for part in parts:
        work.append((part, out[first : first + part.size]))
        first += part.size
    return work


def _in_place(code: I64) -> I64:
    """The same program for whole columns, which need not be loaded: they are read where they lie."""
    columns = {int(to): -1 - int(which) for op, to, which, _ in code if op == LOAD}
    last = len(code) - 1  # is to be written in any case
    return np.array(
        [
            (op, to, a, b) if op == LOAD else (op, to, columns.get(a, a), columns.get(b, b))
            for at, (op, to, a, b) in enumerate(code.tolist())
            if op != LOAD or at == last
        ],
        np.int64,
    )


class DeferredProgram:
    """A program that is made when a batch comes which it is good for; there may be none."""

    def __init__(self, make: Callable[[], BlockProgram | None]) -> None:
        self._make: Callable[[], BlockProgram | None] | None = make
        self._made: BlockProgram | None = None

    def suiting(self, batch: Batch) -> BlockProgram | None:
        if len(batch) < _WORTH:
            return None
        if self._make is not None:
            self._made = self._make()
            self._make = None
        return None if self._made is None or batch.has_nulls() else self._made
