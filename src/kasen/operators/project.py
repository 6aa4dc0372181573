"""The SELECT list: computes the columns of each change's row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.operators.base import Stateless
from kasen.operators.batch import I64, Batch, Bound
from kasen.operators.block_program import BlockProgram, LateProgram
from kasen.operators.lazy import Lazy, Part, parts_of
from kasen.operators.vector import Evaluator, store


class Project(Stateless):
    """Each item is the position of an input column, which is copied, or an expression.

    Different rows may become equal; netting them is left to those who care.
    """

    def __init__(
        self, items: Sequence[int | Evaluator], programs: Sequence[LateProgram | None] | None = None
    ) -> None:
        """`programs` compute the same as the items, for some of them."""
        self._sources = np.array([item if isinstance(item, int) else -1 for item in items], np.int64)
        programs = programs or [None] * len(items)
        self._computed = [
            (at, item, program)
            for at, (item, program) in enumerate(zip(items, programs, strict=True))
            if not isinstance(item, int)
        ]

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        del upto
        batch = inputs[0]
        fast: dict[int, BlockProgram] = {}
        for at, _, late in self._computed:
            program = late.suiting(batch) if late is not None else None
            if program is not None:
                fast[at] = program
        failed: set[int] = set()

        def write(parts: Sequence[Part], data: I64, core: int) -> None:
            for at, program in fast.items():
                if not program.write(parts, data[at], core):
                    failed.add(at)

        if isinstance(batch, Lazy):
            picked = batch.pick(self._sources, write)
        else:
            picked = batch.pick(self._sources)
            write(parts_of(batch), picked.data, 0)
        for at, evaluate, _ in self._computed:
            if at not in fast or at in failed:
                picked.whole = False
                store(picked.data, at, evaluate(batch))
        return picked
