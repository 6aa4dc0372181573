"""A loop of operators: the loop machine (engine/loop/kernels/machine), set up for one stage of the plan.

The kernel runs the loop's instants by itself. It comes back when it wants more room somewhere, and when an
operator that it does not know has to act.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from kasen.engine.batch import I64, TICK_BITS, Batch, Frontier
from kasen.engine.loop.kernels import machine as kernel
from kasen.engine.loop.kernels import row_steps as loop_rows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import CalledStep, LoopStep, lend, set_due
from kasen.engine.operator import Operator
from kasen.engine.row_buffer import RowBuffer
from kasen.errors import InternalError
from kasen.plan.lower.instantiate import Context
from kasen.plan.lower.loops import part_of
from kasen.plan.physical import Step
from kasen.types import Kind

_FIRST_ROOM = 16
_NO_LABELS = np.zeros(0, np.int64)


class Loop:
    """The steps of one stage, in the order of one instant, behind the steps outside that they read."""

    def __init__(
        self,
        plan: Mapping[int, Step],
        stage: Sequence[int],
        operators: Sequence[Operator | None],
        context: Context,
        max_ticks: int,
        kept: Sequence[int],
    ) -> None:
        """`kept`: the steps whose changes are wanted outside."""
        members = set(stage)
        self.stage = tuple(stage)
        self.kept = tuple(kept)
        self._outside = sorted(
            {source for step in stage for source in plan[step].inputs if source not in members}
        )
        steps = (*self._outside, *stage)
        self._at = {step: at for at, step in enumerate(steps)}
        self._context = context
        self._widths = [len(plan[step].node.schema) for step in steps]
        fields = [field for step in steps for field in plan[step].node.schema]
        self._texts = any(field.type.kind is Kind.VARCHAR for field in fields)
        self._table: I64 = np.zeros((len(steps), loop_table.FIELDS), np.int64)
        self._control: I64 = np.zeros(loop_table.CONTROL, np.int64)
        self._control[loop_table.MAX_TICKS] = min(max_ticks, (1 << TICK_BITS) - 2)
        words = -(-len(steps) // loop_table.BITS)
        self._readers: I64 = np.zeros((len(steps), words), np.int64)
        self._active: I64 = np.zeros((2, words), np.int64)
        self._work: I64 = np.zeros((loop_table.WORK, 4 * _FIRST_ROOM), np.int64)
        self._memory: list[tuple[I64, I64]] = []
        self._parts: list[LoopStep] = [_Input() for _ in self._outside]
        for step in stage:
            operator = operators[step]
            assert operator is not None
            inputs = [self._at[source] for source in plan[step].inputs]
            self._parts.append(part_of(plan[step].node, operator, inputs, context.dictionary))
        self._kept = {step: RowBuffer(self._widths[self._at[step]]) for step in kept}
        self._set_up(plan, steps)
        self.load()

    def _set_up(self, plan: Mapping[int, Step], steps: Sequence[int]) -> None:
        for at, step in enumerate(steps):
            row, part = self._table[at], self._parts[at]
            row[loop_table.KIND] = part.loop_kind
            inputs = () if at < len(self._outside) else plan[step].inputs
            sources = [self._at[source] for source in inputs]
            if part.loop_kind != loop_table.DELAY:
                self._readers[sources, at // loop_table.BITS] |= 1 << (at % loop_table.BITS)
            row[loop_table.IN_A] = sources[0] if sources else 0
            row[loop_table.IN_B] = sources[1] if len(sources) > 1 else -1
            row[loop_table.WORDS] = self._widths[at] + 1
            set_due(row, None)
            self._memory.append(_memory(self._widths[at] + 1, _FIRST_ROOM))
            self._lend_memory(at)
        fires = [at for at, part in enumerate(self._parts) if part.fires]
        self._firing: I64 = np.array(fires, np.int64)
        delays = [at for at, part in enumerate(self._parts) if part.loop_kind == loop_table.DELAY]
        self._delays: I64 = np.array(delays, np.int64)
        self._kept_at: I64 = np.array([self._at[step] for step in self._kept], np.int64)

    def _lend_memory(self, at: int) -> None:
        diff, data = self._memory[at]
        row = self._table[at]
        row[loop_table.ROOM] = len(diff)
        lend(row, loop_table.OWN_DIFF, diff, size=False)
        lend(row, loop_table.OWN_DATA, data, size=False)

    # ------------------------------------------------------------ state

    def load(self) -> None:
        """Takes the operators' state over; called when others have changed it."""
        for row, part in zip(self._table, self._parts, strict=True):
            part.lend_state(row)

    def save(self) -> None:
        """Lets the operators know how far the machine has moved them."""
        for row, part in zip(self._table, self._parts, strict=True):
            part.take_back(row)

    # ------------------------------------------------------------ running

    def run(self, out: list[Batch], upto: Frontier) -> Frontier | None:
        """Runs the instants below the frontier; `out` has the changes of all steps, and gets the loop's.

        Returns the instant at which there were too many ticks, or None.
        """
        for at, step in enumerate(self._outside):
            _Input.lend_batch(self._table[at], out[step])
        for step, buffer in self._kept.items():
            self._lend_kept(step, buffer)
        why = self._go_on(upto)
        while why not in (loop_table.DONE, loop_table.TOO_MANY_TICKS):
            self._serve(why)
            why = self._go_on(upto)
        self._context.failures.count += int(self._control[loop_table.FAILED])
        self._control[loop_table.FAILED] = 0
        for step, buffer in self._kept.items():
            out[step] = buffer.take(int(self._table[self._at[step], loop_table.KEPT_N]))
        return self._now() if why == loop_table.TOO_MANY_TICKS else None

    def _go_on(self, upto: Frontier) -> int:
        return int(
            kernel.run_loop(
                self._table,
                self._readers,
                self._active,
                self._firing,
                self._delays,
                self._kept_at,
                self._control,
                self._work,
                self._context.dictionary.labels if self._texts else _NO_LABELS,
                upto.ts,
                upto.seq_tick,
            )
        )

    def _now(self) -> Frontier:
        return Frontier(int(self._control[loop_table.TS]), int(self._control[loop_table.SEQ_TICK]))

    def _serve(self, why: int) -> None:
        """Does what the kernel came back for."""
        control = self._control
        at, wanted = int(control[loop_table.AT]), int(control[loop_table.WANTED])
        if why == loop_table.WANTS_KEPT:
            step = list(self._kept)[at]
            row = self._table[self._at[step]]
            self._kept[step].make_room(int(row[loop_table.KEPT_N]), wanted)
            self._lend_kept(step, self._kept[step])
        elif why == loop_table.WANTS_ROOM:
            self._widen(at, wanted)
        elif why == loop_table.WANTS_STATE:
            if control[loop_table.PHASE] == kernel.TAKE:
                at = int(self._delays[at])
            part, row = self._parts[at], self._table[at]
            part.take_back(row)
            part.make_room(wanted)
            part.lend_state(row)
        elif why == loop_table.CALLS:
            self._call(at)
        else:
            raise InternalError(f"the loop machine stopped for an unknown reason, {why}")

    def _lend_kept(self, step: int, buffer: RowBuffer) -> None:
        row = self._table[self._at[step]]
        lend(row, loop_table.KEPT_AT, buffer.buffer, size=False)
        row[loop_table.KEPT_ROOM] = buffer.room
        row[loop_table.KEPT_N] = 0

    def _widen(self, at: int, wanted: int) -> None:
        """Room for more changes at an instant. What a join has written so far stays, row by row of words."""
        diff, data = self._memory[at]
        room = max(2 * len(diff), wanted)
        words = self._widths[at] + 1
        new_diff, new_data = _memory(words, room)
        new_diff[: len(diff)] = diff
        new_data.reshape(words, room)[:, : len(diff)] = data.reshape(words, len(diff))
        self._memory[at] = new_diff, new_data
        self._lend_memory(at)
        # Some parts have room of their own for as many.
        self._parts[at].take_back(self._table[at])
        self._parts[at].lend_state(self._table[at])
        if 4 * room > self._work.shape[1]:
            work = np.zeros((loop_table.WORK, 4 * room), np.int64)
            work[:, : self._work.shape[1]] = self._work
            self._work = work

    # ------------------------------------------------------------ operators that the machine does not know

    def _call(self, at: int) -> None:
        part, instant = self._parts[at], self._now()
        assert isinstance(part, CalledStep)
        inputs = [self._changes(source, instant) for source in part.inputs]
        answer = part.operator.process(inputs, Frontier(instant.ts, instant.seq_tick + 1))
        row = self._table[at]
        count = len(answer)
        if count > row[loop_table.ROOM]:
            self._widen(at, count)
        diff, data = self._memory[at]
        diff[:count] = answer.diff
        data[: answer.data.size] = answer.data.reshape(-1)
        row[loop_table.N] = count
        row[loop_table.DIFF], row[loop_table.DATA] = row[loop_table.OWN_DIFF], row[loop_table.OWN_DATA]
        set_due(row, part.operator.next_instant())
        self._finish(at)

    def _finish(self, at: int) -> None:
        """As the kernel does when a step has answered."""
        word, bit = divmod(at, loop_table.BITS)
        self._active[kernel.ACTIVE, word] &= ~(1 << bit)
        self._active[kernel.ACTED, word] |= 1 << bit
        if self._table[at, loop_table.N]:
            self._active[kernel.ACTIVE] |= self._readers[at]
        self._control[loop_table.RESUMED] = 0

    def _changes(self, at: int, instant: Frontier) -> Batch:
        """A step's changes at the instant under way, copied."""
        row = self._table[at]
        count, words = int(row[loop_table.N]), int(row[loop_table.WORDS])
        diff = _copy(int(row[loop_table.DIFF]), count)
        data = _copy(int(row[loop_table.DATA]), words * count).reshape(words, count)
        return Batch(
            np.full(count, instant.ts, np.int64), np.full(count, instant.seq_tick, np.int64), diff, data
        )


class _Input(LoopStep):
    """A step outside of the loop: its changes come as a batch."""

    loop_kind = loop_table.INPUT
    fires = True

    @staticmethod
    def lend_batch(row: I64, batch: Batch) -> None:
        lend(row, loop_rows.BATCH_TS, batch.ts, size=False)
        lend(row, loop_rows.BATCH_SEQ_TICK, batch.seq_tick, size=False)
        lend(row, loop_rows.BATCH_DIFF, batch.diff, size=False)
        lend(row, loop_rows.BATCH_DATA, batch.data, size=False)
        row[loop_rows.BATCH_SIZE], row[loop_rows.BATCH_NEXT] = len(batch), 0
        set_due(row, Frontier(int(batch.ts[0]), int(batch.seq_tick[0])) if len(batch) else None)


def _memory(words: int, room: int) -> tuple[I64, I64]:
    return np.zeros(room, np.int64), np.zeros(words * room, np.int64)


def _copy(place: int, size: int) -> I64:
    if not size:
        return np.empty(0, np.int64)
    view = np.ctypeslib.as_array((ctypes.c_int64 * size).from_address(place))
    copy: I64 = view.astype(np.int64)
    return copy
