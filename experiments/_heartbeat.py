"""The heartbeat scheduler that [DTS] compares with: a baseline, for its figures only.

Every operator has a queue for each of its inputs and runs on its own. It may act at an instant when each
queue has been told that nothing earlier can come: by a later tuple, or by a heartbeat. Heartbeats are sent by
the inputs and handed on by operators with nothing to say; here a queue keeps only the latest. An operator
that has produced hands over to its readers (a stack), after at most so many instants in a row. In a loop no
queue would ever hear of progress: only cut-open queries can run.

The operators are those of the loop machine, and so is their state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.batch import I64, Batch
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.views import matrix, vector
from kasen.engine.loop.kernels.machine import run_step
from kasen.engine.loop.kernels.queue_steps import take_delayed
from kasen.engine.loop.kernels.table import (
    CONTROL,
    DATA,
    DELAY,
    DIFF,
    DONE,
    DUE_SEQ_TICK,
    DUE_TS,
    FIELDS,
    FILLED,
    IN_A,
    IN_B,
    KIND,
    NEVER,
    OWN_DATA,
    OWN_DIFF,
    RESUMED,
    SEQ_TICK,
    TS,
    WORDS,
    N,
)
from kasen.engine.loop.steps import lend
from kasen.runtime.graph.loop import Loop

#: Fields of a port, an operator's queue: its first element, how many there are, and the instant before which
#: everything is known; who writes it, who reads it, and its row in the table.
HEAD, COUNT, KNOWN_TS, KNOWN_SEQ_TICK, READER, ROW, PORT = range(7)
_RING = 1 << 14
_ROOM = 64
_FRONT = 3
_MORE = 2


@compiled(f"void({M}, int64, int64, int64)")
def _learn(ports: Any, port: Any, ts: Any, seq_tick: Any) -> None:
    """A queue hears that nothing before an instant can come any more."""
    if ts > ports[port, KNOWN_TS] or (ts == ports[port, KNOWN_TS] and seq_tick > ports[port, KNOWN_SEQ_TICK]):
        ports[port, KNOWN_TS], ports[port, KNOWN_SEQ_TICK] = ts, seq_tick


@compiled(f"void({M}, {M}, {M}, int64, {V}, {M}, {V}, int64, int64)")
def _send(
    table: Any,
    ports: Any,
    rings: Any,
    step: Any,
    ends: Any,
    readers: Any,
    counts: Any,
    ts: Any,
    seq_tick: Any,
) -> None:
    """A step's changes at an instant go into the queues of its readers."""
    count, words = table[step, N], table[step, WORDS]
    counts[step] += count
    data, diff = matrix(table[step, DATA], words, count), vector(table[step, DIFF], count)
    size = words + _FRONT
    for k in range(ends[step]):
        port = readers[step, k]
        for i in range(count):
            at = ((ports[port, HEAD] + ports[port, COUNT]) % _RING) * size
            ports[port, COUNT] += 1
            rings[port, at], rings[port, at + 1], rings[port, at + 2] = ts, seq_tick, diff[i]
            for word in range(words):
                rings[port, at + _FRONT + word] = data[word, i]


@compiled(f"void({M}, {M}, {M}, int64, int64, int64)")
def _receive(table: Any, ports: Any, rings: Any, port: Any, ts: Any, seq_tick: Any) -> None:
    """The queue's elements of an instant become the answer of the port's row."""
    row = ports[port, ROW]
    words = table[row, WORDS]
    size = words + _FRONT
    count = 0
    while count < ports[port, COUNT]:
        at = ((ports[port, HEAD] + count) % _RING) * size
        if rings[port, at] != ts or rings[port, at + 1] != seq_tick:
            break
        count += 1
    data, diff = matrix(table[row, OWN_DATA], words, count), vector(table[row, OWN_DIFF], count)
    for i in range(count):
        at = ((ports[port, HEAD] + i) % _RING) * size
        diff[i] = rings[port, at + 2]
        for word in range(words):
            data[word, i] = rings[port, at + _FRONT + word]
    ports[port, HEAD] = (ports[port, HEAD] + count) % _RING
    ports[port, COUNT] -= count
    table[row, N] = count
    table[row, DIFF], table[row, DATA] = table[row, OWN_DIFF], table[row, OWN_DATA]


@compiled(f"int64({M}, {M}, {M}, int64, {M}, {V}, {M}, {V}, {V}, {M}, {V}, int64)", inline=False)
def _run(
    table: Any,
    ports: Any,
    rings: Any,
    step: Any,
    inputs: Any,  # [steps, 2]: its ports, or -1
    ends: Any,  # how many readers a step has
    readers: Any,
    counts: Any,
    control: Any,
    work: Any,
    labels: Any,
    most: Any,
) -> Any:
    """Lets a step act at up to `most` instants; whether its readers heard anything. -1: out of room.

    _MORE is set beside that if it could go on.
    """
    heard = 0
    for turn in range(most + 1):
        ts, seq_tick, known_ts, known_seq_tick = table[step, DUE_TS], table[step, DUE_SEQ_TICK], NEVER, NEVER
        for side in range(2):
            port = inputs[step, side]
            if port < 0:
                continue
            if ports[port, COUNT]:
                at = ports[port, HEAD] * (table[ports[port, ROW], WORDS] + _FRONT)
                if rings[port, at] < ts or (rings[port, at] == ts and rings[port, at + 1] < seq_tick):
                    ts, seq_tick = rings[port, at], rings[port, at + 1]
            if ports[port, KNOWN_TS] < known_ts or (
                ports[port, KNOWN_TS] == known_ts and ports[port, KNOWN_SEQ_TICK] < known_seq_tick
            ):
                known_ts, known_seq_tick = ports[port, KNOWN_TS], ports[port, KNOWN_SEQ_TICK]
        ready = ts < known_ts or (ts == known_ts and seq_tick < known_seq_tick)
        if not ready or turn == most:
            if ready:
                known_ts, known_seq_tick = ts, seq_tick
            for k in range(ends[step]):
                port = readers[step, k]
                before_ts, before_seq_tick = ports[port, KNOWN_TS], ports[port, KNOWN_SEQ_TICK]
                _learn(ports, port, known_ts, known_seq_tick)
                heard |= before_ts != ports[port, KNOWN_TS] or before_seq_tick != ports[port, KNOWN_SEQ_TICK]
            return heard | (_MORE if ready else 0)
        fires = table[step, DUE_TS] == ts and table[step, DUE_SEQ_TICK] == seq_tick
        for side in range(2):
            if inputs[step, side] >= 0:
                _receive(table, ports, rings, inputs[step, side], ts, seq_tick)
        control[TS], control[SEQ_TICK], control[FILLED], control[RESUMED] = ts, seq_tick, 0, 0
        table[step, N] = 0
        acts = table[step, KIND] != DELAY or fires
        if acts and run_step(table, step, control, work, labels) != DONE:
            return -1
        if table[step, KIND] == DELAY and take_delayed(table, step, control) != DONE:
            return -1
        if table[step, N]:
            _send(table, ports, rings, step, ends, readers, counts, ts, seq_tick)
            heard = 1
    return heard


@compiled(
    f"int64({M}, {M}, {M}, {M}, {V}, {M}, {V}, {V}, {M}, {V}, {V}, {V}, {V}, int64, int64)", inline=False
)
def run_heartbeats(
    table: Any,
    ports: Any,
    rings: Any,
    inputs: Any,
    ends: Any,
    readers: Any,
    counts: Any,
    control: Any,
    work: Any,
    labels: Any,
    stack: Any,  # [steps]
    waiting: Any,  # [steps]: 1 for those on the stack
    times: Any,  # of the main input
    scans: Any,  # how many inputs there are: the first rows of the table
    most: Any,
) -> Any:
    """Feeds `most` tuples of the main input at a time, and all others up to there; -1 if out of room."""
    fed = 0
    while fed < len(times):
        fed = min(fed + most, len(times))
        while fed < len(times) and times[fed] == times[fed - 1]:
            fed += 1
        upto = times[fed] if fed < len(times) else NEVER
        for scan in range(scans):
            while table[scan, DUE_TS] < upto:
                ts, seq_tick = table[scan, DUE_TS], table[scan, DUE_SEQ_TICK]
                control[TS], control[SEQ_TICK] = ts, seq_tick
                if run_step(table, scan, control, work, labels) != DONE:
                    return -1
                _send(table, ports, rings, scan, ends, readers, counts, ts, seq_tick)
            for k in range(ends[scan]):
                _learn(ports, readers[scan, k], upto, 0)
        top = 0
        for scan in range(scans):
            for k in range(ends[scan]):
                reader = ports[readers[scan, k], READER]
                if not waiting[reader]:
                    waiting[reader] = 1
                    stack[top] = reader
                    top += 1
        while top:
            top -= 1
            step = stack[top]
            waiting[step] = 0
            heard = _run(
                table, ports, rings, step, inputs, ends, readers, counts, control, work, labels, most
            )
            if heard < 0:
                return -1
            if heard & _MORE:
                waiting[step] = 1
                stack[top] = step
                top += 1
            for k in range(ends[step] if heard & 1 else 0):
                reader = ports[readers[step, k], READER]
                if not waiting[reader]:
                    waiting[reader] = 1
                    stack[top] = reader
                    top += 1
    return 0


class Heartbeats:
    """A cut-open query under the heartbeat scheduler. `loop` lends its steps, all of the plan's."""

    def __init__(self, loop: Loop, inputs: list[Batch], most: int) -> None:
        self._loop = loop  # keeps all arrays alive
        self._most = most
        table, outside = loop._table, len(inputs)
        steps = len(table)
        edges = [
            (step, side, int(table[step, field]))
            for step in range(outside, steps)
            for side, field in enumerate((IN_A, IN_B))
            if table[step, field] >= 0
        ]
        self._table: I64 = np.zeros((steps + len(edges), FIELDS), np.int64)
        self._table[:steps] = table
        self._ports: I64 = np.zeros((len(edges), PORT), np.int64)
        self._ports[:, KNOWN_TS] = -(2**63)
        self._inputs: I64 = np.full((steps, 2), -1, np.int64)
        self._ends: I64 = np.zeros(steps, np.int64)
        self._readers: I64 = np.zeros((steps, len(edges)), np.int64)
        self.counts: I64 = np.zeros(steps, np.int64)
        widest = int(table[:, WORDS].max()) + _FRONT
        self._rings: I64 = np.zeros((len(edges), _RING * widest), np.int64)
        self._memory: list[tuple[I64, I64]] = []
        for port, (step, side, source) in enumerate(edges):
            row, words = steps + port, int(table[source, WORDS])
            memory = np.zeros(_ROOM, np.int64), np.zeros(words * _ROOM, np.int64)
            self._memory.append(memory)
            lend(self._table[row], OWN_DIFF, memory[0], size=False)
            lend(self._table[row], OWN_DATA, memory[1], size=False)
            self._table[row, WORDS] = words
            self._table[step, (IN_A, IN_B)[side]] = row
            self._inputs[step, side] = port
            self._ports[port, READER], self._ports[port, ROW] = step, row
            self._readers[source, self._ends[source]] = port
            self._ends[source] += 1
        self._times = inputs[0].ts
        self._outside = outside

    def run(self) -> None:
        steps = len(self._ends)
        done = run_heartbeats(
            self._table, self._ports, self._rings, self._inputs, self._ends, self._readers, self.counts,
            np.zeros(CONTROL, np.int64), self._loop._work, np.zeros(0, np.int64), np.zeros(steps, np.int64),
            np.zeros(steps, np.int64), self._times, self._outside, self._most,
        )  # fmt: skip
        assert done >= 0, "a step ran out of room"
