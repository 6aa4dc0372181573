"""UNION ALL: the changes of all inputs."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.engine.batch import Batch, Frontier, merge
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep
from kasen.engine.operator import Operator


class Union(Operator, LoopStep):
    """Merges its inputs in instant order."""

    is_independent = True
    loop_kind = loop_table.UNION

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        return merge(inputs, self._columns)
