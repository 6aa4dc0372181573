"""Windows of several queries over the same panes: one sweep over the panes answers for all of them.

`panes` [power of two, PANE]: pane number p lies in row p & (rows - 1). Numbers ascend from 1; `cells` holds,
WORDS rows a pane, a column a group: how many rows, the extreme and the sum that its tuples have. A group
that a pane does not know has no rows there, and what combines with anything for an extreme.

At a boundary the sweep goes from the newest pane to the oldest that any window reaches, and combines. When
it has come to where a member's window begins, what it has is that member's answer: so a pane is looked at
once a boundary, however many members there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.sliding.kernels.panes import NEVER, ceiling
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_round import mean128
from kasen.engine.kernels.groups import KEY, KEY_NULLS, find_or_claim

S = "uint64[::1]"

#: A pane: from where to where it reaches, and its last tuple.
BEGIN, END, LAST, PANE = range(4)
#: What a pane holds of a group.
ROWS, EXTREME, SUM, WORDS = range(4)

#: Fields of `control`. What is fixed: how many columns are the key, the columns of the extreme and of the
#: sum (-1: none), 1 for the greatest and -1 for the least, the length of a pane.
KEYS, EXTREME_OF, SIGN, SUM_OF, LENGTH_OF_PANE = range(5)
#: The oldest pane and the newest; whether this one is open, else it is the next one to be made.
OLDEST, NEWEST, OPEN = range(5, 8)
#: Where the pass goes on: the next row; how many groups' columns are in use; up to which boundary.
NEXT, GROUPS, LIMIT, CONTROL = range(8, 12)

#: A member: its window; the panes [LOW, HIGH) that it reported last; where its rows of answers begin, and how
#: many calls it has.
LENGTH, SLIDE, LOW, HIGH, AT, CALLS, MEMBER = range(7)
#: A call: the word that answers it, or MEAN, then with the scale of what is summed. Whether it is a DOUBLE.
WORD, SCALE, IS_DOUBLE, CALL = range(4)
MEAN = WORDS

#: Why `enter` stops: all done, or the caller must make room and call again.
DONE, WANTS_GROUPS, WANTS_PANES = range(3)

_TURN = 0x7FFFFFFFFFFFFFFF


@compiled(f"void({V}, {M}, int64, int64)")
def _clear(control: Any, cells: Any, at: Any, groups: Any) -> None:
    """The words from a row of `cells` on are those of no tuple."""
    none = -_TURN - 1 if control[SIGN] > 0 else _TURN
    rows, extremes, sums = cells[at, :groups], cells[at + EXTREME, :groups], cells[at + SUM, :groups]
    for g in range(groups):
        rows[g] = 0
        extremes[g] = none
        sums[g] = 0


@compiled(f"void({V}, {M}, {M}, int64)")
def _open(control: Any, panes: Any, cells: Any, ts: Any) -> None:
    """A new pane, empty, for a tuple of this time."""
    row = control[NEWEST] & (len(panes) - 1)
    begin = ts // control[LENGTH_OF_PANE] * control[LENGTH_OF_PANE]
    before = (control[NEWEST] - 1) & (len(panes) - 1)
    if control[NEWEST] > control[OLDEST]:
        begin = max(begin, panes[before, END])  # that one may have been cut short
    panes[row, BEGIN] = begin
    panes[row, END] = ts // control[LENGTH_OF_PANE] * control[LENGTH_OF_PANE] + control[LENGTH_OF_PANE]
    _clear(control, cells, row * WORDS, cells.shape[1])
    control[OPEN] = 1


@compiled(f"int64({V}, {V}, {M}, {V}, {V}, {V}, int64, {M}, {M})", inline=False)
def enter(
    ts: Any,
    diff: Any,
    data: Any,
    control: Any,
    table: Any,  # of groups
    records: Any,
    width: Any,
    panes: Any,
    cells: Any,
) -> Any:
    """Rows from NEXT on go into panes; those that end up to LIMIT are closed. Says why it stopped.

    No argument is NULL, and no row leaves. One that a condition held back has diff 0.
    """
    n = len(ts)
    row = control[NEXT]
    why = DONE
    while row < n:
        at = control[NEWEST] & (len(panes) - 1)
        if control[OPEN] and ts[row] >= panes[at, END]:
            control[OPEN] = 0
            control[NEWEST] += 1
            continue
        if diff[row] == 0:
            row += 1
            continue
        if not control[OPEN]:
            if control[NEWEST] - control[OLDEST] >= len(panes):
                why = WANTS_PANES
                break
            _open(control, panes, cells, ts[row])
        slot = find_or_claim(data, row, control[KEYS], table, records, width)
        if slot == 0:
            why = WANTS_GROUPS
            break
        control[GROUPS] = max(control[GROUPS], slot + 1)
        at *= WORDS
        cells[at, slot] += diff[row]
        if control[EXTREME_OF] >= 0:
            value = data[control[EXTREME_OF], row]
            old = cells[at + EXTREME, slot]
            cells[at + EXTREME, slot] = max(old, value) if control[SIGN] > 0 else min(old, value)
        if control[SUM_OF] >= 0:
            cells[at + SUM, slot] += diff[row] * data[control[SUM_OF], row]
        panes[control[NEWEST] & (len(panes) - 1), LAST] = ts[row]
        row += 1
    if why == DONE and control[OPEN] and panes[control[NEWEST] & (len(panes) - 1), END] <= control[LIMIT]:
        control[OPEN] = 0
        control[NEWEST] += 1
    control[NEXT] = row
    return why


@compiled(f"int64({V}, {M}, {M}, int64)")
def next_report(control: Any, panes: Any, members: Any, m: Any) -> Any:
    """The next boundary at which a member's closed panes are not what it reported; NEVER if none."""
    mask = len(panes) - 1
    boundary = NEVER
    if members[m, HIGH] < control[NEWEST]:
        boundary = ceiling(panes[members[m, HIGH] & mask, END], members[m, SLIDE])
    if members[m, LOW] < members[m, HIGH]:
        leaves = panes[members[m, LOW] & mask, END] + members[m, LENGTH]
        boundary = min(boundary, ceiling(leaves, members[m, SLIDE]))
    return boundary


@compiled(f"void({V}, {M}, int64, {M}, int64)")
def _combine(control: Any, cells: Any, at: Any, sums: Any, groups: Any) -> None:
    """A pane, whose words begin at a row of `cells`, into what was combined of newer ones."""
    to, by = sums[ROWS, :groups], cells[at, :groups]
    for g in range(len(to)):
        to[g] += by[g]
    if control[EXTREME_OF] >= 0:
        to, by = sums[EXTREME, :groups], cells[at + EXTREME, :groups]
        if control[SIGN] > 0:
            for g in range(len(to)):
                to[g] = max(to[g], by[g])
        else:
            for g in range(len(to)):
                to[g] = min(to[g], by[g])
    if control[SUM_OF] >= 0:
        to, by = sums[SUM, :groups], cells[at + SUM, :groups]
        for g in range(len(to)):
            to[g] += by[g]


@compiled(f"void({M}, {M}, int64, {M}, int64, int64, {S})")
def _answer(members: Any, calls: Any, m: Any, answers: Any, at: Any, groups: Any, scratch: Any) -> None:
    """Writes what was combined, in the first rows of `answers`, as a member's rows from `at` on."""
    rows, sums = answers[ROWS, :groups], answers[SUM, :groups]
    to = answers[at, :groups]
    for g in range(len(to)):
        to[g] = rows[g]
    for c in range(members[m, CALLS]):
        call = members[m, AT] + c
        to = answers[at + 1 + c, :groups]
        if calls[call, WORD] != MEAN:
            by = answers[calls[call, WORD], :groups]
            for g in range(len(to)):
                to[g] = by[g]
        else:
            for g in range(len(to)):
                if rows[g]:
                    to[g] = mean128(sums[g], sums[g] >> 63, rows[g], calls[call, SCALE], scratch)


@compiled(f"int64({V}, {M}, {M}, {M}, {M}, {V}, {M}, {V}, {V}, {S})", inline=False)
def sweep(
    control: Any,
    panes: Any,
    cells: Any,
    members: Any,
    calls: Any,
    due: Any,  # scratch: a place for every member
    answers: Any,  # [WORDS + boundaries * rows of all members]: first the scratch of the sweep
    boundaries: Any,  # gets the boundaries
    told: Any,  # [boundaries * members]: gets 1 where a member answers
    scratch: Any,
) -> Any:
    """Answers at the next boundaries up to LIMIT, as many as there is room for; how many these are."""
    mask = len(panes) - 1
    groups = control[GROUPS]
    size = len(calls) + len(members)
    done = 0
    while done < len(boundaries):
        boundary = NEVER
        for m in range(len(members)):
            boundary = min(boundary, next_report(control, panes, members, m))
        if boundary > control[LIMIT]:
            break
        boundaries[done] = boundary
        count = 0
        for m in range(len(members)):
            told[done * len(members) + m] = 0
            if boundary % members[m, SLIDE]:
                continue
            low, high = members[m, LOW], members[m, HIGH]
            while high < control[NEWEST] and panes[high & mask, END] <= boundary:
                high += 1
            while low < high and panes[low & mask, END] <= boundary - members[m, LENGTH]:
                low += 1
            if low == members[m, LOW] and high == members[m, HIGH]:
                continue
            members[m, LOW], members[m, HIGH] = low, high
            told[done * len(members) + m] = 1
            # Those whose windows begin later come first. Mostly they are in that order, or in the opposite.
            at = count
            while at > 0 and members[due[at - 1], LOW] < low:
                due[at] = due[at - 1]
                at -= 1
            due[at] = m
            count += 1
        _clear(control, answers, 0, groups)
        at = members[due[0], HIGH]
        for i in range(count):
            m = due[i]
            while at > members[m, LOW]:
                at -= 1
                _combine(control, cells, (at & mask) * WORDS, answers, groups)
            to = WORDS + done * size + members[m, AT] + m
            _answer(members, calls, m, answers, to, groups, scratch)
        done += 1
    return done


@compiled(f"boolean({M}, int64, {M}, int64, int64, int64)")
def _differ(old: Any, was: Any, new: Any, now: Any, calls: Any, g: Any) -> Any:
    different = False
    for c in range(1, calls + 1):
        different |= old[was + c, g] != new[now + c, g]
    return different


@compiled(f"boolean({M}, {M}, int64, {M}, int64, int64, int64, int64)")
def _ascends(kinds: Any, old: Any, was: Any, new: Any, now: Any, first: Any, calls: Any, g: Any) -> Any:
    """Whether a group's old row comes before its new one in order of value."""
    for c in range(1, calls + 1):
        a, b = old[was + c, g], new[now + c, g]
        if a != b:
            if kinds[first + c - 1, IS_DOUBLE]:
                a ^= _TURN if a < 0 else 0
                b ^= _TURN if b < 0 else 0
            return a < b
    return True


@compiled(f"void({M}, int64, {M}, {M}, {V}, int64, {V})", inline=False)
def count_changes(
    members: Any, done: Any, last: Any, answers: Any, told: Any, groups: Any, counts: Any
) -> None:
    """How many rows leave and enter as members go over to their answers, one boundary after the other."""
    size = len(last)
    for m in range(len(members)):
        calls = members[m, CALLS]
        first = members[m, AT] + m
        old, was = last, first
        rows = 0
        for b in range(done):
            if not told[b * len(members) + m]:
                continue
            now = WORDS + b * size + first
            for g in range(1, groups):
                before, after = old[was, g] > 0, answers[now, g] > 0
                if not before or not after:
                    rows += before + after
                elif _differ(old, was, answers, now, calls, g):
                    rows += 2
            old, was = answers, now
        counts[m] = rows


@compiled(f"int64({M}, int64, int64, {M}, int64, {M}, int64, {V}, {V})")
def _pick(
    kinds: Any, first: Any, calls: Any, old: Any, was: Any, new: Any, now: Any, order: Any, picks: Any
) -> Any:
    """The changes at a boundary in order of value, as 2 * group, and 1 more if its new row enters."""
    before, after = old[was], new[now]
    count = 0
    for i in range(len(order)):
        g = order[i]
        if before[g] > 0 and after[g] > 0:
            if not _differ(old, was, new, now, calls, g):
                continue
            ascends = 1 if _ascends(kinds, old, was, new, now, first, calls, g) else 0
            picks[count] = 2 * g + 1 - ascends
            picks[count + 1] = 2 * g + ascends
            count += 2
        elif before[g] > 0 or after[g] > 0:
            picks[count] = 2 * g + (1 if after[g] > 0 else 0)
            count += 1
    return count


@compiled(f"void({M}, {M}, int64, int64, {M}, {M}, {V}, {V}, int64, {V}, {V}, {V}, int64, {M})", inline=False)
def put_out(
    members: Any,
    kinds: Any,  # the calls
    m: Any,
    done: Any,
    last: Any,  # what members have put out
    answers: Any,
    told: Any,
    boundaries: Any,
    groups: Any,
    order: Any,  # the groups in order of their keys
    picks: Any,  # scratch: two places for every group
    records: Any,
    width: Any,
    out: Any,  # ts, diff, the columns and the NULL bits of as many rows as there are changes
) -> None:
    """Writes a member's changes, in order of instant and value, and remembers its last answers."""
    calls = members[m, CALLS]
    keys = len(out) - 3 - calls
    size = len(last)
    first = members[m, AT] + m
    old, was = last, first
    row = 0
    one, step = np.uint64(1), np.uint64(width)
    for b in range(done):
        if not told[b * len(members) + m]:
            continue
        now = WORDS + b * size + first
        count = _pick(kinds, members[m, AT], calls, old, was, answers, now, order, picks)
        # A column at a time: short loops that do one thing, over memory side by side.
        picked = picks[:count]
        to, diff = out[0, row : row + count], out[1, row : row + count]
        for i in range(len(picked)):
            to[i] = boundaries[b]
            diff[i] = 2 * (picked[i] & 1) - 1
        for k in range(keys + 1):
            to = out[2 + k if k < keys else len(out) - 1, row : row + count]
            place = np.uint64(KEY + k if k < keys else KEY_NULLS)
            for i in range(len(picked)):
                to[i] = records[(np.uint64(picked[i]) >> one) * step + place]
        for c in range(calls):
            to = out[2 + keys + c, row : row + count]
            leaving, entering = old[was + 1 + c], answers[now + 1 + c]
            for i in range(len(picked)):
                g = np.uint64(picked[i]) >> one
                to[i] = entering[g] if picked[i] & 1 else leaving[g]
        row += count
        old, was = answers, now
    if was != first:  # so it has answered
        for r in range(calls + 1):
            to, by = last[first + r, :groups], answers[was + r, :groups]
            for i in range(len(to)):
                to[i] = by[i]


@compiled(f"int64({M}, int64, {V}, {V}, int64, {V})", inline=False)
def claim_all(data: Any, keys: Any, table: Any, records: Any, width: Any, slots: Any) -> Any:
    """Writes the slot of each row's group; how many found theirs before there was no room."""
    for row in range(data.shape[1]):
        slots[row] = find_or_claim(data, row, keys, table, records, width)
        if slots[row] == 0:
            return row
    return data.shape[1]
