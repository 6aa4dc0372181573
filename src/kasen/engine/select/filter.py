"""WHERE and HAVING: keeps the changes of rows for which a condition is TRUE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import Batch, Frontier, empty
from kasen.engine.expr.block_program import DeferredProgram
from kasen.engine.expr.vector import Condition
from kasen.engine.operator import Operator


class Filter(Operator):
    """A row enters and leaves the output as it does the input, if the condition is TRUE for it."""

    def __init__(self, condition: Condition, program: DeferredProgram | None = None) -> None:
        self._condition = condition
        self._program = program
        self._nothing: Batch | None = None

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        size = len(batch)
        program = self._program.suiting(batch) if self._program is not None else None
        if program is not None and (chosen := program.chosen(batch)) is not None:
            return batch if len(chosen) == size else chosen
        keep = self._condition(batch)
        kept = int(np.count_nonzero(keep)) if size != 1 else keep.item(0)
        if kept == size:
            return batch
        if kept == 0:
            if self._nothing is None:
                self._nothing = empty(batch.columns)
            return self._nothing
        return batch.where(keep)
