"""The loop machine: document E's time-splitting (DTS), in one kernel for all loops.

The least instant at which anything in the loop can happen is finished by all its steps before the next one
begins. Steps stand in the order that comes of cutting the loop at its delays: a delay gives what is due
before its readers run, and takes what has come to it when all others are done. The points of firing are
the steps that act by themselves (inputs from outside, time windows, delays, whatever the kernel does not
know); no heartbeat is needed.
"""

from __future__ import annotations

from typing import Any

from kasen.kernels.compiled import M, V, compiled
from kasen.kernels.loop_rows import (
    read_input,
    run_filter,
    run_pad,
    run_project,
    run_streamify,
    run_union,
)
from kasen.kernels.loop_state import run_aggregate, run_bag, run_join, run_semi_join
from kasen.kernels.loop_table import (
    AGGREGATE,
    AT,
    BAG,
    CALLS,
    DATA,
    DELAY,
    DIFF,
    DONE,
    DUE_SUB,
    DUE_TS,
    FILLED,
    FILTER,
    FOREIGN,
    IN_A,
    IN_B,
    INPUT,
    INPUTS,
    INPUTS_SIZE,
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
    STREAMIFY,
    SUB,
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
from kasen.kernels.loop_windows import run_delay, run_partition, run_rows, run_timed, take_delayed
from kasen.kernels.report import FRONT
from kasen.kernels.views import matrix, vector

#: What the machine is doing: looking for the next instant, running its steps, filling the delays, gathering
#: what is wanted outside.
LOOK, RUN, TAKE, GATHER = range(4)

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


@compiled(f"boolean({M}, int64, {V})")
def is_active(table: Any, step: Any, control: Any) -> Any:
    """Whether the step has anything to do at the instant under way."""
    if table[step, DUE_TS] == control[TS] and table[step, DUE_SUB] == control[SUB]:
        return True
    if table[step, KIND] == DELAY or table[step, KIND] == INPUT:
        return False
    if table[step, KIND] == FOREIGN:
        inputs = vector(table[step, INPUTS], table[step, INPUTS_SIZE])
        any_changes = False
        for k in range(len(inputs)):
            any_changes |= table[inputs[k], N] > 0
        return any_changes
    one, other = table[step, IN_A], table[step, IN_B]
    return table[one, N] > 0 or (other >= 0 and table[other, N] > 0)


@compiled(f"int64({M}, int64, {V})", inline=False)
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
        rows[at + 1] = control[SUB]
        rows[at + 2] = diff[i]
        for word in range(words):
            rows[at + FRONT + word] = data[word, i]
        at += size
    table[step, KEPT_N] = kept + count
    return DONE


@compiled(f"boolean({M}, {V}, {V}, int64, int64)")
def look(table: Any, firing: Any, control: Any, upto_ts: Any, upto_sub: Any) -> Any:
    """Finds the next instant below the frontier and makes it the one under way; False if there is none."""
    ts = sub = NEVER
    for k in range(len(firing)):
        due = table[firing[k], DUE_TS]
        if due < ts or (due == ts and table[firing[k], DUE_SUB] < sub):
            ts, sub = due, table[firing[k], DUE_SUB]
    if ts > upto_ts or (ts == upto_ts and sub >= upto_sub):
        return False
    control[TS], control[SUB] = ts, sub
    control[FILLED] = 0
    control[INSTANTS] += 1
    return True


@compiled(f"int64({M}, {V}, {V}, {V}, {V}, {M}, {V}, int64, int64)", inline=False)
def run_loop(
    table: Any,
    firing: Any,  # the steps that act by themselves
    delays: Any,
    kept: Any,  # the steps that are read outside
    control: Any,
    work: Any,
    labels: Any,
    upto_ts: Any,
    upto_sub: Any,
) -> Any:
    """Runs the loop's instants below the frontier; says why it ended. Goes on where it was when it wanted."""
    while True:
        if control[PHASE] == LOOK:
            if not look(table, firing, control, upto_ts, upto_sub):
                return DONE
            if control[SUB] & _TICK > control[MAX_TICKS]:
                return TOO_MANY_TICKS
            for step in range(len(table)):
                table[step, N] = 0
            control[AT] = 0
            control[PHASE] = RUN
        at = control[AT]
        if control[PHASE] == RUN:
            while at < len(table):
                if is_active(table, at, control):
                    why = run_step(table, at, control, work, labels)
                    if why != DONE:
                        control[AT] = at
                        control[RESUMED] = 1
                        return why
                    control[RESUMED] = 0
                at += 1
            at = 0
            control[PHASE] = TAKE
        if control[PHASE] == TAKE:
            while at < len(delays):
                why = take_delayed(table, delays[at], control)
                if why != DONE:
                    control[AT] = at
                    return why
                at += 1
            at = 0
            control[PHASE] = GATHER
        while at < len(kept):
            if table[kept[at], N]:
                why = gather(table, kept[at], control)
                if why != DONE:
                    control[AT] = at
                    return why
            at += 1
        control[PHASE] = LOOK
