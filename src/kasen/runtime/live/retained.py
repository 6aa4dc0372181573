"""The past of streams declared RETAIN: a backfilled query starts from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kasen.engine.batch import Batch, ones
from kasen.engine.fifo import Fifo
from kasen.engine.operator import State
from kasen.plan.changes import Input


class RetainedStreams:
    """For each such stream, its tuples of the last d: a query that comes at t sees those from t - d on."""

    def __init__(self, inputs: Iterable[Input]) -> None:
        kept = [input_ for input_ in inputs if input_.retain is not None and not input_.is_relation]
        self._lengths = {input_.name: input_.retain or 0 for input_ in kept}
        self._tuples = {input_.name: Fifo(len(input_.schema)) for input_ in kept}

    def __bool__(self) -> bool:
        return bool(self._tuples)

    def add(self, sources: Mapping[str, Batch], upto: int) -> None:
        """Takes in the tuples that have run, and forgets those that no query to come may see."""
        for name, held in self._tuples.items():
            if name in sources:
                held.append(sources[name])
            held.drop(int(np.searchsorted(held.ts, upto - self._lengths[name], "left")))

    def since(self, time: int) -> dict[str, Batch]:
        """The tuples that a query sees that comes at a time."""
        found = {}
        for name, held in self._tuples.items():
            first = int(np.searchsorted(held.ts, time - self._lengths[name], "left"))
            rows = held.rows(first, len(held))
            ts, seq_tick = held.ts[first:].copy(), held.seq_tick[first:].copy()
            found[name] = Batch(ts, seq_tick, ones(len(ts)), rows)
        return found

    def snapshot(self) -> dict[str, State]:
        return {f"retained.{name}": held.snapshot() for name, held in self._tuples.items()}

    def restore(self, states: Mapping[str, State]) -> None:
        for name, held in self._tuples.items():
            held.restore(states[f"retained.{name}"])
