"""Relations from outside: rows that come with +1 or -1.

Within one instant insertions are applied before deletions. A deletion takes out the oldest row that is
equal but for its time; one that finds none is refused.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from kasen.engine.batch import Batch, ones, zeros
from kasen.engine.operator import State
from kasen.runtime.input.feed import InputRows


class Relation:
    """The rows now in an outside relation, by everything but their time."""

    def __init__(self, columns: int, timestamp: int | None) -> None:
        self._columns = columns
        kept = [column for column in range(columns + 1) if column != timestamp]
        self._identity = np.array(kept, np.intp)
        self._rows: dict[bytes, deque[bytes]] = {}

    def apply(self, rows: InputRows, batch: Batch) -> tuple[Batch, InputRows]:
        """The changes (deletions name the very row that leaves), and the deletions that found no row."""
        order = np.lexsort((-rows.diff, batch.seq_tick, batch.ts))
        refused: list[int] = []
        taken: list[int] = []
        columns: list[bytes] = []
        for index in order.tolist():
            row = batch.data[:, index].tobytes()
            identity = batch.data[self._identity, index].tobytes()
            if rows.diff[index] > 0:
                self._rows.setdefault(identity, deque()).append(row)
            else:
                held = self._rows.get(identity)
                if not held:
                    refused.append(index)
                    continue
                row = held.popleft()
                if not held:
                    del self._rows[identity]
            taken.append(index)
            columns.append(row)
        chosen = batch.take(np.array(taken, np.intp))
        if taken:
            data = np.frombuffer(b"".join(columns), np.int64).reshape(len(taken), -1)
            chosen = Batch(chosen.ts, chosen.seq_tick, np.sign(chosen.diff), data.T.copy(order="C"))
        return chosen, rows.take(np.array(refused, np.intp))

    def contents(self) -> Batch:
        """The rows now in the relation, as insertions."""
        data = self.snapshot()["rows"].T.copy(order="C")
        count = data.shape[1]
        return Batch(zeros(count), zeros(count), ones(count), data)

    def snapshot(self) -> State:
        rows = [row for held in self._rows.values() for row in held]
        data = np.frombuffer(b"".join(rows), np.int64).reshape(len(rows), self._columns + 1)
        return {"rows": data}

    def restore(self, state: State) -> None:
        for row in np.ascontiguousarray(state["rows"], np.int64):
            self._rows.setdefault(row[self._identity].tobytes(), deque()).append(row.tobytes())
