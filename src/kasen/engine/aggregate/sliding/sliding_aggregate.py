"""GROUP BY over [RANGE ... SLIDE ...] as one step: the cost of a tuple does not depend on RANGE / SLIDE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.aggregate.accumulators import (
    FIRST_SPAN,
    WINDOW_BOUNDS,
    AggregateSpec,
    DepartureOrder,
    RecordLayout,
    WordSpan,
    longer,
)
from kasen.engine.aggregate.kernels import accumulate, blocks, candidates
from kasen.engine.aggregate.sliding.kernels import panes
from kasen.engine.aggregate.sliding.kernels import slide as kernel
from kasen.engine.aggregate.sliding.pane_reduction import PaneReduction
from kasen.engine.batch import I64, Batch, Frontier, are_ones
from kasen.engine.kernels import groups, ordered
from kasen.engine.kernels.exact_round import SCRATCH
from kasen.engine.operator import Operator, State, bound_from_array, bound_to_array
from kasen.engine.record_table import RecordTable
from kasen.engine.row_buffer import RowBuffer
from kasen.engine.text.dictionary import Dictionary

#: Words of a record between the values put out last and the parts: the bounds, the open pane's row count,
#: the stamp of a group that changed.
_BOUNDS, _PANE_ROWS, _CHANGED, _FIXED = 0, 4, 5, 6

_MERGEABLE = frozenset(
    {"count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop", *WINDOW_BOUNDS}
)
_STATE_OF_CONTROL = slice(kernel.OPEN_END, kernel.CONTROL)


class SlidingAggregate(Operator):
    """Input: a stream of `keys` group keys, then arguments. Output: a relation of the keys, then the calls.

    The relation changes at (k * slide, 0) only, to the aggregates of the tuples in [k * slide - length,
    k * slide). Without keys there is always one row, from `begin` on. `window_start` and `window_end` without
    an argument are the report's bounds. A tuple with diff 0 is in its window, which therefore reports, but
    in no aggregate: so a condition between window and aggregate keeps the reports as they are.
    No DISTINCT and no percentiles: their panes could not be merged.
    """

    is_independent = True

    def __init__(
        self,
        keys: int,
        calls: tuple[AggregateSpec, ...],
        length: int,
        slide: int,
        dictionary: Dictionary,
    ) -> None:
        assert all(call.function in _MERGEABLE and not call.distinct for call in calls), calls
        self._keys = keys
        self._calls = calls
        self._dictionary = dictionary
        self._begins: Frontier | None = None
        #: Shared with the like of this one, if there are any.
        self.reduction: PaneReduction | None = None
        self._layout = self._layout_of(WordSpan(*FIRST_SPAN))
        self._shape: I64 = np.zeros(panes.SHAPE, np.int64)
        self._configure()
        self._groups = RecordTable(keys, int(self._shape[panes.RECORD]), lone=not keys)
        self._dirty: I64 = np.zeros(len(self._groups.touched), np.int64)
        self._guesses: I64 = np.zeros(blocks.GUESSES, np.int64)
        self._slots: I64 = np.zeros(blocks.BLOCK, np.int64)
        self._ring: I64 = np.zeros((16, self._entry_words), np.int64)
        self._out = RowBuffer(keys + len(calls))
        self._queues: I64 = np.zeros((1, candidates.CANDIDATE), np.int64)
        self._pool: I64 = np.zeros((1, ordered.NODE), np.int64)
        self._scratch = np.zeros(SCRATCH + len(self._layout.parts) + 1, np.uint64)
        self._texts = any(call.order == ordered.TEXT for call in calls)
        self._no_labels: I64 = np.zeros(0, np.int64)
        self._control: I64 = np.zeros(kernel.CONTROL, np.int64)
        self._control[kernel.KEYS] = keys
        self._control[kernel.LENGTH] = length
        self._control[kernel.SLIDE] = slide
        self._control[kernel.EXTREMES] = self._extremes
        if any(call.function in WINDOW_BOUNDS for call in calls):
            self._control[kernel.BOUNDS] = self._layout.fixed + _BOUNDS
        # Later than the stamps of a record never touched; and entry 0 is none.
        self._control[kernel.STAMPED] = self._control[kernel.DIRTY_STAMP] = 1
        self._control[kernel.OLDEST] = self._control[kernel.NEWEST] = 1
        self._control[kernel.LAST] = -panes.NEVER
        self._control[kernel.REPORT_AT] = panes.NEVER

    def begin(self, at: Frontier) -> None:
        if not self._keys and not self._groups.records[self._groups.width + groups.REPORTED]:
            self._begins = at

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0] if self.reduction is None else self.reduction.reduced(inputs[0])
        control = self._control
        if self._begins is not None and self._begins < upto:
            control[kernel.BEGINS] = 1
            control[kernel.BEGIN_TS], control[kernel.BEGIN_SEQ_TICK] = self._begins
            self._begins = None
        control[kernel.NEXT] = control[kernel.PUT_OUT] = 0
        control[kernel.ENTERING], control[kernel.WHOLE] = are_ones(batch.diff), batch.whole
        # A boundary is the instant (ts, 0), so that of upto.ts is reached only if upto goes beyond it.
        control[kernel.LIMIT] = min(upto.ts if upto.seq_tick > 0 else upto.ts - 1, panes.NEVER - 1)
        while why := self._go_on(batch):
            self._make_room(why)
        return self._out.take(int(control[kernel.PUT_OUT]))

    @property
    def calls(self) -> tuple[AggregateSpec, ...]:
        return self._calls

    @property
    def groups(self) -> int:
        return len(self._groups)

    @property
    def layout(self) -> RecordLayout:
        return self._layout

    def contents(self) -> I64:
        return self._groups.reported(len(self._calls))

    def held(self) -> tuple[I64, I64]:
        """What panes hold, the open one too, as the ring's entries; and the keys of their groups."""
        control, shape = self._control, self._shape
        opened = self._groups.touched[: control[kernel.OPEN]]
        records = self._groups.records.reshape(-1, self._groups.width)
        more = np.zeros((len(opened), self._entry_words), np.int64)
        more[:, panes.SLOT] = opened
        more[:, panes.END] = control[kernel.OPEN_END]
        more[:, panes.ENTRY_ROWS] = records[opened, shape[panes.PANE_ROWS]]
        first = int(shape[panes.FIRST] + shape[panes.RUN])
        more[:, panes.PARTS :] = records[opened, first : first + int(shape[panes.RUN])]
        entries = np.concatenate([self._entries(), more])
        return entries, self._groups.keys_of(entries[:, panes.SLOT])

    @property
    def last(self) -> int:
        """The time of the last tuple in any window."""
        return int(self._control[kernel.LAST])

    def next_instant(self) -> Frontier | None:
        if self._begins is not None:
            return self._begins
        boundary = int(kernel.next_boundary(self._control, self._ring))
        if self._control[kernel.OPEN]:
            slide = int(self._control[kernel.SLIDE])
            boundary = min(boundary, int(panes.ceiling(int(self._control[kernel.OPEN_END]), slide)))
        return None if boundary >= panes.NEVER else Frontier(boundary)

    def last_instant(self) -> Frontier | None:
        control = self._control
        if control[kernel.OLDEST] == control[kernel.NEWEST] and not control[kernel.OPEN]:
            return None
        slide = int(control[kernel.SLIDE])
        left = int(control[kernel.LAST]) + int(control[kernel.LENGTH])
        return Frontier((left // slide + 1) * slide)

    def needs_input_since(self) -> Frontier | None:
        """The beginning of the oldest pane that a report to come depends on."""
        oldest, newest = self._control[kernel.OLDEST], self._control[kernel.NEWEST]
        if oldest < newest:
            end = self._ring[oldest & (len(self._ring) - 1), panes.END]
        elif self._control[kernel.OPEN]:
            end = self._control[kernel.OPEN_END]
        elif self._control[kernel.REPORT_AT] < panes.NEVER:
            return Frontier(int(self._control[kernel.LAST]))  # held back, but its window reports
        elif self._control[kernel.BOUNDS] and not self._keys and self._control[kernel.LAST] > -panes.NEVER:
            return Frontier(int(self._control[kernel.LAST]))  # the last report's bounds stay shown
        else:
            return None
        control = self._control
        return Frontier(
            int(panes.pane_begin(int(end), int(control[kernel.LENGTH]), int(control[kernel.SLIDE])))
        )

    def snapshot(self) -> State:
        control = self._control
        return {
            "span": np.array([self._layout.span.low, self._layout.span.high], np.int64),
            "control": control[_STATE_OF_CONTROL].copy(),
            "records": self._groups.used(),
            "opened": self._groups.touched[: control[kernel.OPEN]].copy(),
            "dirty": self._dirty[: control[kernel.DIRTY]].copy(),
            "entries": self._entries(),
            "queues": self._queues[: int(self._queues[0, candidates.EVER]) + 1].copy(),
            "begins": bound_to_array(self._begins),
        }

    def restore(self, state: State) -> None:
        arrays = {name: array.astype(np.int64) for name, array in state.items()}
        low, high = arrays["span"].tolist()
        self._layout = self._layout_of(WordSpan(low, high))
        self._configure()
        self._control[_STATE_OF_CONTROL] = arrays["control"]
        self._groups.replace(arrays["records"], int(self._shape[panes.RECORD]))
        self._groups.touched[: len(arrays["opened"])] = arrays["opened"]
        self._dirty = np.zeros(len(self._groups.touched), np.int64)
        self._dirty[: len(arrays["dirty"])] = arrays["dirty"]
        self._queues = arrays["queues"]
        self._set_ring(arrays["entries"].reshape(-1, self._entry_words), 0)
        self._begins = bound_from_array(arrays["begins"])

    def take_over(self, other: Operator, places: tuple[int, ...], at: int) -> None:
        """With the groups goes what panes hold. Both have the same calls but for COUNT(*)."""
        other = other.by_itself()
        assert isinstance(other, SlidingAggregate), type(other).__name__
        old = other._layout
        new = self._layout_of(old.span)
        records = other._groups.used().reshape(-1, other._groups.width)
        moved = old.regrouped(records, self._keys, new, places)
        # Panes that closed since the last report are among a group's rows, and not yet in what it shows.
        slide = int(self._control[kernel.SLIDE])
        entries = other._entries()
        unseen = entries[entries[:, panes.END] > (at - 1) // slide * slide]
        for place in (groups.KEY + self._keys + i for i, each in enumerate(places) if each < 0):
            np.subtract.at(moved[:, place], unseen[:, panes.SLOT], unseen[:, panes.ENTRY_ROWS])
        moved = np.concatenate([moved, records[:, old.begin :]], axis=1)
        self.restore({**other.snapshot(), "records": moved.reshape(-1)})

    # ------------------------------------------------------------ running

    def _layout_of(self, span: WordSpan) -> RecordLayout:
        return RecordLayout(self._keys, self._calls, DepartureOrder.NEVER, span, fixed=_FIXED)

    def _configure(self) -> None:
        layout = self._layout
        run = layout.width - layout.begin
        self._extremes = layout.count(accumulate.LEAST, accumulate.GREATEST)
        self._shape[panes.RECORD] = layout.width + run + panes.ENDS * self._extremes
        self._shape[panes.FIRST] = layout.begin
        self._shape[panes.RUN] = run
        self._shape[panes.LINKS] = layout.width + run
        self._shape[panes.PANE_ROWS] = layout.fixed + _PANE_ROWS
        self._shape[panes.CHANGED] = layout.fixed + _CHANGED
        self._entry_words = panes.PARTS + run

    def _go_on(self, batch: Batch) -> int:
        labels = self._dictionary.labels if self._texts else self._no_labels
        why = kernel.slide(
            batch.ts, batch.diff, batch.data, self._layout.parts, self._layout.outs,
            self._groups.table, self._groups.records, self._ring, self._groups.touched, self._dirty,
            self._guesses, self._slots, self._queues, self._pool, labels, self._out.buffer,
            self._control, self._shape, self._scratch,
        )  # fmt: skip
        return int(why)

    # ------------------------------------------------------------ making room

    def _make_room(self, why: int) -> None:
        control = self._control
        if why == kernel.WANTS_BUFFER:
            self._out.make_room(int(control[kernel.PUT_OUT]), 2 * int(control[kernel.DIRTY]))
            control[kernel.PUT_OUT] = 0
        elif why == kernel.WANTS_SPAN:
            self._widen(WordSpan(int(control[kernel.NEED_LOW]), int(control[kernel.NEED_HIGH])))
        elif why == kernel.WANTS_GROUPS:
            self._groups.grow()
            dirty = np.zeros(len(self._groups.touched), np.int64)
            dirty[: len(self._dirty)] = self._dirty
            self._dirty = dirty
        elif why == kernel.WANTS_CANDIDATES:
            self._queues = longer(self._queues, int(control[kernel.OPEN]) * self._extremes)
        else:
            self._set_ring(self._entries(), int(control[kernel.OPEN]))

    def _entries(self) -> I64:
        """The ring's entries, the oldest first."""
        oldest, newest = int(self._control[kernel.OLDEST]), int(self._control[kernel.NEWEST])
        first = oldest & (len(self._ring) - 1)
        straight = min(newest - oldest, len(self._ring) - first)
        around = self._ring[: newest - oldest - straight]
        return np.concatenate([self._ring[first : first + straight], around])

    def _set_ring(self, entries: I64, more: int) -> None:
        """A ring of these entries, the oldest first, with room for so many more."""
        size = 1 << max(4, (2 * (len(entries) + more) - 1).bit_length())
        self._ring = np.zeros((size, self._entry_words), np.int64)
        first = int(self._control[kernel.OLDEST]) & (size - 1)
        straight = min(len(entries), size - first)
        self._ring[first : first + straight] = entries[:straight]
        self._ring[: len(entries) - straight] = entries[straight:]

    def _widen(self, need: WordSpan) -> None:
        """Lays everything out anew for sums over a wider span."""
        old, new = self._layout, self._layout_of(self._layout.span | need)
        old_links, old_run = int(self._shape[panes.LINKS]), old.width - old.begin
        records = self._groups.records.reshape(-1, int(self._shape[panes.RECORD]))
        entries = self._entries()
        self._layout = new
        self._configure()
        run = int(self._shape[panes.RUN])
        wide = np.zeros((len(records), int(self._shape[panes.RECORD])), np.int64)
        wide[:, : new.begin] = records[:, : old.begin]
        old.move_parts(records[:, old.begin :], new, wide[:, new.begin :])
        old.move_parts(records[:, old.begin + old_run :], new, wide[:, new.begin + run :])
        wide[:, new.begin + 2 * run :] = records[:, old_links:]
        self._groups.replace(wide.reshape(-1), wide.shape[1])
        wide_entries = np.zeros((len(entries), self._entry_words), np.int64)
        wide_entries[:, : panes.PARTS] = entries[:, : panes.PARTS]
        old.move_parts(entries[:, panes.PARTS :], new, wide_entries[:, panes.PARTS :])
        self._set_ring(wide_entries, 0)
