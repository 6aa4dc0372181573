"""What groups have in panes, in the words of kernels/shared_panes: read from an aggregate, given to one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kasen.engine.aggregate.accumulators import AggregateSpec
from kasen.engine.aggregate.kernels import accumulate
from kasen.engine.aggregate.sliding.kernels import panes
from kasen.engine.aggregate.sliding.kernels import shared_panes as kernel
from kasen.engine.aggregate.sliding.pane_reduction import PaneRequirements
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.batch import I64, Batch, zeros

#: Sums in a pane stay below this, so that those of 2^13 panes are less than 10^18, as DECIMALs are.
MOST_SUM = 2**46


@dataclass(frozen=True, slots=True)
class PaneCells:
    """A column a group and pane: the pane's end, the words, and the group's key as a batch has it."""

    ends: I64
    words: I64
    keys: I64


def as_calls(calls: tuple[AggregateSpec, ...]) -> I64:
    """For each call the word that answers it."""
    found = np.zeros((len(calls), kernel.CALL), np.int64)
    words = {"count": kernel.ROWS, "min": kernel.EXTREME, "max": kernel.EXTREME, "sum": kernel.SUM}
    for row, call in zip(found, calls, strict=True):
        row[kernel.WORD] = words.get(call.function, kernel.MEAN)
        row[kernel.SCALE] = call.scale
        row[kernel.IS_DOUBLE] = call.function == "avg"
    return found


def read_cells(own: SlidingAggregate) -> PaneCells | None:
    """What the panes of an aggregate hold; None if there were NULLs, or sums are too great."""
    entries, keys = own.held()
    rows = entries[:, panes.ENTRY_ROWS]
    words = np.zeros((kernel.WORDS, len(entries)), np.int64)
    words[kernel.ROWS] = rows
    if (rows <= 0).any():
        return None
    for part in own.layout.parts.tolist():
        at = panes.PARTS + part[accumulate.AT] - own.layout.begin
        if part[accumulate.OP] == accumulate.COUNT:
            known = entries[:, at] == rows
        elif part[accumulate.OP] == accumulate.SUM_INTEGER:
            words[kernel.SUM] = entries[:, at]
            known = (entries[:, at + 1] == entries[:, at] >> 63) & (abs(entries[:, at]) < MOST_SUM)
        else:
            words[kernel.EXTREME] = entries[:, at + 1]
            known = entries[:, at] == 1
        if not known.all():
            return None
    return PaneCells(entries[:, panes.END].copy(), words, keys)


def as_rows(ts: I64, keys: I64, words: I64, wanted: PaneRequirements, columns: int) -> Batch:
    """Rows that mean to an aggregate what the words say: a group's copies, some with a sum of one more."""
    rows, extreme, total = words[kernel.ROWS], words[kernel.EXTREME], words[kernel.SUM]
    low = total // rows
    more = total - low * rows
    parts = []
    for copies, value in ((rows - more, low), (more, low + 1)):
        data = np.zeros((columns + 1, len(ts)), np.int64)
        data[: wanted.keys] = keys[:-1]
        data[-1] = keys[-1]
        if wanted.extreme >= 0:
            data[wanted.extreme] = extreme
        if wanted.total >= 0:
            data[wanted.total] = value
        parts.append((copies, data))
    diff = np.concatenate([copies for copies, _ in parts])
    data = np.concatenate([data for _, data in parts], axis=1)
    both = np.concatenate([ts, ts])
    order = np.argsort(both, kind="stable")
    order = order[diff[order] > 0]
    return Batch(both[order], zeros(len(order)).copy(), diff[order], np.ascontiguousarray(data[:, order]))


def takes(batch: Batch, wanted: PaneRequirements) -> bool:
    """Whether panes can hold these rows: no NULL is counted, and sums stay far from their limit."""
    if batch.has_nulls() and bool((batch.nulls >> wanted.keys).any()):
        return False
    if wanted.total < 0 or not len(batch):
        return True
    return float(np.abs(batch.column(wanted.total).astype(np.float64)) @ batch.diff) < MOST_SUM / 2
