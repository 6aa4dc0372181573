"""Netting: what sinks, streamify operators and windows over streams look at."""

from __future__ import annotations

from kasen.engine.batch import Batch
from kasen.engine.stream.kernels.net import consolidate


def net(batch: Batch) -> Batch:
    """The batch with equal rows of one instant made one change, and those that cancel left out.

    A diff in the answer carries multiplicity: +3 is three equal rows entering, -2 two leaving. The
    instants keep their order; within one, rows stay in the order of their first change.
    """
    if len(batch) == 1 and batch.diff[0]:
        return batch
    rows, diff = consolidate(batch.ts, batch.seq_tick, batch.diff, batch.data)
    if len(rows) == len(batch):
        return batch  # each row stood alone in its instant, and none was zero
    netted = batch.take(rows)
    netted.diff = diff
    return netted
