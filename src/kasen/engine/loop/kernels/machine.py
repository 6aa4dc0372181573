"""The loop machine: time-splitting [DTS] in one kernel for all loops.

The least instant at which anything in the loop can happen is finished by all its steps before the next one
begins. Steps stand in the order that comes of cutting the loop at its delays: a delay gives what is due
before its readers run, and takes what has come to it when all others are done. The points of firing are
the steps that act by themselves (inputs from outside, time windows, delays, whatever the kernel does not
know); no heartbeat is needed.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.aggregate.kernels.report import FRONT
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.views import lowest_bit, matrix, vector
from kasen.engine.loop.kernels.queue_steps import run_delay, run_partition, run_rows, run_timed, take_delayed
from kasen.engine.loop.kernels.row_steps import (
    read_input,
    run_filter,
    run_pad,
    run_project,
    run_streamify,
    run_union,
)
from kasen.engine.loop.kernels.state_steps import run_aggregate, run_bag, run_join, run_semi_join
from kasen.engine.loop.kernels.table import (
    AGGREGATE,
    AT,
    BAG,
    BITS,
    CALLS,
    DATA,
    DELAY,
    DIFF,
    DONE,
    DUE_SEQ_TICK,
    DUE_TS,
    FILLED,
    FILTER,
    IN_A,
    INPUT,
    INSTANTS,
    JOIN,
    KEPT_AT,
    KEPT_N,
    KEPT_ROOM,
    KIND,
    MAX_TICKS,
    NEVER,
    PAD,
    PARTITION,
    PASS,
    PHASE,
    PROJECT,
    RESUMED,
    ROWS,
    SEMI_JOIN,
    SEQ_TICK,
    STREAMIFY,
    TIMED,
    TOO_MANY_TICKS,
    TS,
    UNION,
    WANTED,
    WANTS_KEPT,
    WORDS,
    N,
    alias,
)

#: What the machine is doing: looking for the next instant, running its steps, filling the delays, gathering
#: what is wanted outside.
LOOK, RUN, TAKE, GATHER = range(4)
#: Rows of `active`.
ACTIVE, ACTED = range(2)

_TICK = (1 << 24) - 1


@compiled(f"int64({M}, int64, {V}, {M}, {V})")
def run_step(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """One step at the instant under way: DONE, or what it wants."""
    kind = table[step, KIND]
    if kind == INPUT:
        return read_input(table, step, control, work, labels)
    if kind == TIMED:
        return run_timed(table, step, control, work, labels)
    if kind == JOIN:
        return run_join(table, step, control, work, labels)
    if kind == PROJECT:
        return run_project(table, step, control, work, labels)
    if kind == FILTER:
        return run_filter(table, step, control, work, labels)
    if kind == STREAMIFY:
        return run_streamify(table, step, control, work, labels)
    if kind == UNION:
        return run_union(table, step, control, work, labels)
    if kind == DELAY:
        return run_delay(table, step, control, work, labels)
    if kind == AGGREGATE:
        return run_aggregate(table, step, control, work, labels)
    if kind == PARTITION:
        return run_partition(table, step, control, work, labels)
    if kind == ROWS:
        return run_rows(table, step, control, work, labels)
    if kind == PASS:
        alias(table, step, table[step, IN_A])
        return DONE
    if kind == BAG:
        return run_bag(table, step, control, work, labels)
    if kind == SEMI_JOIN:
        return run_semi_join(table, step, control, work, labels)
    if kind == PAD:
        return run_pad(table, step, control, work, labels)
    return CALLS


@compiled(f"int64({M}, int64, {V})")
def gather(table: Any, step: Any, control: Any) -> Any:
    """Adds a step's changes to those that are wanted outside."""
    count, words, kept = table[step, N], table[step, WORDS], table[step, KEPT_N]
    if kept + count > table[step, KEPT_ROOM]:
        control[WANTED] = count
        return WANTS_KEPT
    size = words + FRONT
    rows = vector(table[step, KEPT_AT], (kept + count) * size)
    data, diff = matrix(table[step, DATA], words, count), vector(table[step, DIFF], count)
    at = kept * size
    for i in range(count):
        rows[at] = control[TS]
        rows[at + 1] = control[SEQ_TICK]
        rows[at + 2] = diff[i]
        for word in range(words):
            rows[at + FRONT + word] = data[word, i]
        at += size
    table[step, KEPT_N] = kept + count
    return DONE


@compiled(f"boolean({M}, {V}, {V}, {M}, int64, int64)")
def look(table: Any, firing: Any, control: Any, active: Any, upto_ts: Any, upto_seq_tick: Any) -> Any:
    """Finds the next instant below the frontier and makes it the one under way; False if there is none.

    The steps that fire at it are active; nothing has been said at it yet.
    """
    ts = seq_tick = NEVER
    for k in range(len(firing)):
        due = table[firing[k], DUE_TS]
        if due < ts or (due == ts and table[firing[k], DUE_SEQ_TICK] < seq_tick):
            ts, seq_tick = due, table[firing[k], DUE_SEQ_TICK]
    if ts > upto_ts or (ts == upto_ts and seq_tick >= upto_seq_tick):
        return False
    for word in range(active.shape[1]):
        bits = active[ACTED, word]
        active[ACTED, word] = 0
        while bits:
            table[word * BITS + lowest_bit(bits), N] = 0
            bits &= bits - 1
    for k in range(len(firing)):
        step = firing[k]
        if table[step, DUE_TS] == ts and table[step, DUE_SEQ_TICK] == seq_tick:
            active[ACTIVE, step // BITS] |= 1 << (step % BITS)
    control[TS], control[SEQ_TICK] = ts, seq_tick
    control[FILLED] = 0
    control[INSTANTS] += 1
    return True


@compiled(f"int64({M}, {M}, {M}, {V}, {M}, {V})")
def run_instant(table: Any, readers: Any, active: Any, control: Any, work: Any, labels: Any) -> Any:
    """Runs the active steps in order; whoever reads one that has changes becomes active. DONE, or a want."""
    for word in range(active.shape[1]):
        while active[ACTIVE, word]:
            bits = active[ACTIVE, word]
            step = word * BITS + lowest_bit(bits)
            why = run_step(table, step, control, work, labels)
            if why != DONE:
                control[AT] = step
                control[RESUMED] = 1
                return why
            control[RESUMED] = 0
            active[ACTIVE, word] &= bits & (bits - 1)
            active[ACTED, word] |= bits & -bits
            if table[step, N]:
                for other in range(active.shape[1]):
                    active[ACTIVE, other] |= readers[step, other]
    return DONE


@compiled(f"int64({M}, {M}, {M}, {V}, {V}, {V}, {V}, {M}, {V}, int64, int64)", inline=False)
def run_loop(
    table: Any,
    readers: Any,  # [steps, words]: who reads each step, apart from delays
    active: Any,  # [2, words]: ACTIVE and ACTED
    firing: Any,  # the steps that act by themselves
    delays: Any,
    kept: Any,  # the steps that are read outside
    control: Any,
    work: Any,
    labels: Any,
    upto_ts: Any,
    upto_seq_tick: Any,
) -> Any:
    """Runs the loop's instants below the frontier; says why it ended. Goes on where it was when it wanted."""
    while True:
        if control[PHASE] == LOOK:
            if not look(table, firing, control, active, upto_ts, upto_seq_tick):
                return DONE
            if control[SEQ_TICK] & _TICK > control[MAX_TICKS]:
                return TOO_MANY_TICKS
            control[PHASE] = RUN
        if control[PHASE] == RUN:
            why = run_instant(table, readers, active, control, work, labels)
            if why != DONE:
                return why
            control[AT] = 0
            control[PHASE] = TAKE
        if control[PHASE] == TAKE:
            while control[AT] < len(delays):
                why = take_delayed(table, delays[control[AT]], control)
                if why != DONE:
                    return why
                control[AT] += 1
            control[AT] = 0
            control[PHASE] = GATHER
        while control[AT] < len(kept):
            if table[kept[control[AT]], N]:
                why = gather(table, kept[control[AT]], control)
                if why != DONE:
                    return why
            control[AT] += 1
        control[PHASE] = LOOK
