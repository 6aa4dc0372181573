"""Extremes of groups whose rows leave in the order in which they came.

Of such a group only the rows matter that may still become the extreme: a row that came before a better
one leaves before it. These *candidates* form a list from the oldest, which is the best, to the newest.
A row that enters removes the worse ones from the newest end, so it costs a constant, amortised; of random
values about the logarithm of the group's rows remain. Equal values are one candidate with a count.

`pool` [candidates, CANDIDATE]: the candidates of all groups. Row 0 is the header: the first free one, how
many were ever used, how many are free; free ones are chained through OLDER. A list is three words of the
caller's, all 0 when it is empty: the oldest, its value, the newest.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.ordered import rank

VALUE, TIMES, OLDER, NEWER, CANDIDATE = range(5)
OLDEST, BEST, NEWEST, WORDS = range(4)
FIRST_FREE, EVER, FREE = range(3)


@compiled(f"int64({M})")
def spare(pool: Any) -> Any:
    """How many candidates can still be taken."""
    return pool[0, FREE] + len(pool) - 1 - pool[0, EVER]


@compiled(f"int64({M})")
def take(pool: Any) -> Any:
    """A spare candidate; there is one."""
    taken = pool[0, FIRST_FREE]
    if taken:
        pool[0, FIRST_FREE] = pool[taken, OLDER]
        pool[0, FREE] -= 1
    else:
        pool[0, EVER] += 1
        taken = pool[0, EVER]
    return taken


@compiled(f"void({M}, int64)")
def give_back(pool: Any, candidate: Any) -> None:
    pool[candidate, OLDER] = pool[0, FIRST_FREE]
    pool[0, FIRST_FREE] = candidate
    pool[0, FREE] += 1


@compiled(f"void({M}, {V}, int64, boolean, int64, int64, int64, {V})")
def enter(
    pool: Any, words: Any, at: Any, least: Any, value: Any, times: Any, order: Any, labels: Any
) -> None:
    """A value enters `times` times; `least` says which extreme it is about. Needs a spare candidate."""
    new = rank(value, order, labels)
    last = words[at + NEWEST]
    equal = False
    while last:
        old = rank(pool[last, VALUE], order, labels)
        equal = old == new
        if equal or ((old < new) if least else (old > new)):
            break
        older = pool[last, OLDER]
        give_back(pool, last)
        last = older
    if equal:
        pool[last, TIMES] += times
        pool[last, NEWER] = 0
        words[at + NEWEST] = last
        return
    candidate = take(pool)
    pool[candidate, VALUE] = value
    pool[candidate, TIMES] = times
    pool[candidate, OLDER] = last
    pool[candidate, NEWER] = 0
    words[at + NEWEST] = candidate
    if last:
        pool[last, NEWER] = candidate
    else:
        words[at + OLDEST] = candidate
        words[at + BEST] = value


@compiled(f"void({M}, {V}, int64, int64, int64)")
def leave(pool: Any, words: Any, at: Any, value: Any, times: Any) -> None:
    """The group's oldest value leaves `times` times.

    If it was still a candidate it is the oldest of them, and so it is if the values are equal: a younger
    equal one would have been counted with it.
    """
    first = words[at + OLDEST]
    if first == 0 or words[at + BEST] != value:
        return
    pool[first, TIMES] -= times
    if pool[first, TIMES] != 0:
        return
    newer = pool[first, NEWER]
    give_back(pool, first)
    words[at + OLDEST] = newer
    words[at + BEST] = 0
    if newer:
        pool[newer, OLDER] = 0
        words[at + BEST] = pool[newer, VALUE]
    else:
        words[at + NEWEST] = 0
