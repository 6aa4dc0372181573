"""The SELECT list: computes the columns of each change's row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.deferred_batch import DeferredBatch, RowSelection, selections_of
from kasen.engine.expr.block_program import BlockProgram, DeferredProgram
from kasen.engine.expr.vector import Evaluator, store
from kasen.engine.operator import Operator

#: A computed column: where it goes, what computes it, and the program that may do so faster.
_Item = tuple[int, Evaluator, DeferredProgram | None]


class Project(Operator):
    """Each item is the position of an input column, which is copied, or an expression.

    Different rows may become equal; netting them is left to those who care.
    """

    def __init__(
        self, items: Sequence[int | Evaluator], programs: Sequence[DeferredProgram | None] | None = None
    ) -> None:
        """`programs` compute the same as the items, for some of them."""
        self._sources = np.array([item if isinstance(item, int) else -1 for item in items], np.int64)
        wanted = self._sources.tolist()
        #: The first column, if columns are wanted one after the other; and how many words rows have then
        #: whose last columns these are.
        self._first = wanted[0] if wanted and wanted == list(range(wanted[0], wanted[-1] + 1)) else -1
        self._words = self._first + len(wanted) + 1
        programs = programs or [None] * len(items)
        self._computed = [
            (at, item, program)
            for at, (item, program) in enumerate(zip(items, programs, strict=True))
            if not isinstance(item, int)
        ]
        self.is_independent = not self._computed

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        if self._first >= 0 and type(batch) is Batch:
            data = batch.data
            if len(data) == self._words and not batch.has_nulls():
                # The last columns: they need not be moved.
                return Batch(batch.ts, batch.seq_tick, batch.diff, data[self._first :], True)
        fast: dict[int, BlockProgram] = {}
        for at, _, late in self._computed:
            program = late.suiting(batch) if late is not None else None
            if program is not None:
                fast[at] = program
        if not fast:
            picked = batch.pick(self._sources)
            self._store(batch, picked, self._computed)
            return picked
        failed: set[int] = set()

        def write(parts: Sequence[RowSelection], data: I64, core: int) -> None:
            for at, program in fast.items():
                if not program.write(parts, data[at], core):
                    failed.add(at)

        if isinstance(batch, DeferredBatch):
            picked = batch.pick(self._sources, write)
        else:
            picked = batch.pick(self._sources)
            write(selections_of(batch), picked.data, 0)
        self._store(
            batch, picked, [each for each in self._computed if each[0] not in fast or each[0] in failed]
        )
        return picked

    def _store(self, batch: Batch, picked: Batch, computed: Sequence[_Item]) -> None:
        for at, evaluate, _ in computed:
            picked.whole = False
            store(picked.data, at, evaluate(batch))
