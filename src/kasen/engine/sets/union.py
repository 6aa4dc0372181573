"""UNION ALL: the changes of all inputs."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.engine.batch import Batch, Frontier, merge
from kasen.engine.operator import Stateless


class Union(Stateless):
    """Merges its inputs in instant order."""

    def __init__(self, columns: int) -> None:
        self._columns = columns

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        return merge(inputs, self._columns)
