"""The table that configures a loop: a row for each of its steps, in the order of one instant.

A step's answer at the instant under way lies in its own memory, or, where nothing changes, in that of the
step it reads (`alias`): N changes, their diffs at DIFF, their words at DATA as [WORDS, N]. All are at the
same instant, so times are not kept.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.views import vector

#: Fields that all rows have. OWN_*: the step's own memory, with room for ROOM changes. DUE: the next
#: instant at which it acts by itself. KEPT: where changes that are wanted outside are gathered, as in
#: engine/aggregate/kernels/report.
KIND, IN_A, IN_B, WORDS, ROOM, N, DIFF, DATA, OWN_DIFF, OWN_DATA, DUE_TS, DUE_SEQ_TICK = range(12)
KEPT_AT, KEPT_ROOM, KEPT_N = range(12, 15)
#: From here on fields are the kind's own.
OWN = 15
FIELDS = 48

#: Kinds of steps. An INPUT stands for a step outside of the loop. FOREIGN ones are not run by the kernel.
INPUT, FOREIGN, FILTER, PROJECT, UNION, PAD, STREAMIFY, PASS = range(8)
TIMED, ROWS, PARTITION, DELAY, JOIN, SEMI_JOIN, AGGREGATE, BAG = range(8, 16)

#: Fields of a program: filters, projections, and the residuals of joins.
CODE, CODE_SIZE, REGISTERS, REGISTERS_SIZE, RESULTS, RESULTS_SIZE = range(OWN, OWN + 6)

#: Fields of `control`. Where the machine is: the phase, the step, the instant, how many rows of the work
#: arrays hold that instant, whether the step has begun. What it wants, and how much. What it counted.
PHASE, AT, TS, SEQ_TICK, FILLED, RESUMED, WANTED, FAILED, INSTANTS, MAX_TICKS, CONTROL = range(11)

#: Sets of steps are bits, so many in a word; `active` has those with something to do now, then those that
#: have acted.
BITS = 62

#: Why a run of the kernel ends. WANTS_*: the caller makes room and calls again.
DONE, WANTS_ROOM, WANTS_STATE, WANTS_KEPT, CALLS, TOO_MANY_TICKS = range(6)

#: Rows of `work`: the instant's ts and seq_tick, once per change; positions; room for sorting and netting.
NOW_TS, NOW_SEQ_TICK, PLACES, SPARE, WEIGHTS, HASHES, WORK = range(7)

NEVER = 2**63 - 1


@compiled(f"void({M}, int64, int64)")
def alias(table: Any, step: Any, source: Any) -> None:
    """The step's answer is that of the step it reads."""
    table[step, N] = table[source, N]
    table[step, DIFF] = table[source, DIFF]
    table[step, DATA] = table[source, DATA]


@compiled(f"void({M}, int64, int64)")
def own(table: Any, step: Any, count: Any) -> None:
    """The step's answer is what it has written into its own memory."""
    table[step, N] = count
    table[step, DIFF] = table[step, OWN_DIFF]
    table[step, DATA] = table[step, OWN_DATA]


@compiled(f"boolean({M}, int64, int64, {V})")
def lacks_room(table: Any, step: Any, count: Any, control: Any) -> Any:
    """Whether so many changes do not fit; then this is what is wanted."""
    control[WANTED] = count
    return count > table[step, ROOM]


@compiled(f"void({M}, {V}, int64)")
def fill_now(work: Any, control: Any, count: Any) -> None:
    """At least so many rows of the work arrays hold the instant under way."""
    for i in range(control[FILLED], count):
        work[NOW_TS, i] = control[TS]
        work[NOW_SEQ_TICK, i] = control[SEQ_TICK]
    control[FILLED] = max(control[FILLED], count)


@compiled(f"void({M}, int64, int64, int64, {V})")
def squeeze(table: Any, step: Any, room: Any, kept: Any, places: Any) -> None:
    """Of changes written into own memory as [WORDS, room], leaves those at `places` (ascending)."""
    words = table[step, WORDS]
    flat = vector(table[step, OWN_DATA], words * room)
    diff = vector(table[step, OWN_DIFF], room)
    for j in range(kept):
        diff[j] = diff[places[j]]
    # What is written never lies behind what is still to be read.
    for word in range(words):
        for j in range(kept):
            flat[word * kept + j] = flat[word * room + places[j]]


@compiled(f"void({M}, int64, int64, int64)")
def shrink(table: Any, step: Any, room: Any, kept: Any) -> None:
    """As squeeze, leaving the first ones."""
    if kept == room:
        return
    words = table[step, WORDS]
    flat = vector(table[step, OWN_DATA], words * room)
    for word in range(1, words):
        for j in range(kept):
            flat[word * kept + j] = flat[word * room + j]
