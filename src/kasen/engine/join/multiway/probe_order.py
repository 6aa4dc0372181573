"""In which order a row of each input goes through the windows of the others (MJoin, [LowDelayJoin])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.join.multiway.kernels import mjoin as kernel

#: A class of equal columns: the column of each input that takes part.
KeyClass = dict[int, int]


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The keys that inputs share: classes with the same members are one key of several columns.

    `shared[g]` has for each member of key g its columns; `own[i]` are the keys of input i, in the order of
    its indexes. An input that no key leads to has the empty key, which all its rows share.
    """

    shared: tuple[dict[int, tuple[int, ...]], ...]
    own: tuple[tuple[int, ...], ...]

    def columns(self, i: int) -> tuple[tuple[int, ...], ...]:
        return tuple(self.shared[g][i] for g in self.own[i])


def find_keys(inputs: int, classes: Sequence[KeyClass]) -> SharedKeys:
    grouped: dict[frozenset[int], list[KeyClass]] = {}
    for each in classes:
        grouped.setdefault(frozenset(each), []).append(each)
    shared = [
        {i: tuple(each[i] for each in group) for i in sorted(members)} for members, group in grouped.items()
    ]
    if not _connected(inputs, shared):
        shared.append(dict.fromkeys(range(inputs), ()))
    own = tuple(tuple(g for g, key in enumerate(shared) if i in key) for i in range(inputs))
    return SharedKeys(tuple(shared), own)


def _connected(inputs: int, shared: Sequence[dict[int, tuple[int, ...]]]) -> bool:
    reached, ahead = {0}, [0]
    while ahead:
        i = ahead.pop()
        found = {j for key in shared if i in key for j in key} - reached
        reached |= found
        ahead += found
    return len(reached) == inputs


def order(keys: SharedKeys, start: int, matches: Sequence[float]) -> list[int]:
    """Where a row of input `start` goes: first to those that share a key; of these, fewest matches first."""
    bound, left = [start], [i for i in range(len(keys.own)) if i != start]
    while left:
        linked = [i for i in left if any(keys.shared[g][i] and _meets(keys, g, bound) for g in keys.own[i])]
        best = min(linked or left, key=lambda i: matches[i])
        bound.append(best)
        left.remove(best)
    return bound[1:]


def _meets(keys: SharedKeys, g: int, bound: Sequence[int]) -> bool:
    return any(i in keys.shared[g] for i in bound)


def plan(keys: SharedKeys, orders: Sequence[Sequence[int]], words_at: I64, first_index: I64) -> I64:
    """The kernel's `probe` table for these orders."""
    inputs = len(orders)
    columns = sum(max((len(key) for key in shared.values()), default=0) for shared in keys.shared)
    probe = np.zeros((inputs, max(inputs - 1, 1), kernel.SOURCES + 3 * columns + 2), np.int64)
    for i, targets in enumerate(orders):
        bound = [i]
        for depth, j in enumerate(targets):
            usable = [g for g in keys.own[j] if _meets(keys, g, bound)]
            # The longest key first; the arrival's own hash saves computing one.
            usable.sort(key=lambda g: (-len(keys.shared[g][j]), i not in keys.shared[g]))
            _step(probe[i, depth], keys, i, j, bound, usable, words_at, first_index)
            bound.append(j)
    return probe


def _step(
    step: I64,
    keys: SharedKeys,
    i: int,
    j: int,
    bound: list[int],
    usable: list[int],
    words_at: I64,
    first: I64,
) -> None:
    used, *checked = usable
    shared = keys.shared[used]
    source = i if i in shared else next(each for each in bound if each in shared)
    step[kernel.TARGET] = j
    step[kernel.X] = first[j] + keys.own[j].index(used)
    step[kernel.HASHED] = keys.own[i].index(used) if source == i else -1
    step[kernel.BOUND_KEYS] = len(shared[j])
    at = kernel.SOURCES
    for column in shared[source]:
        step[at : at + 2] = source, words_at[source] + column
        at += 2
    for g in checked:
        key = keys.shared[g]
        source = next(each for each in bound if each in key)
        for mine, theirs in zip(key[source], key[j], strict=True):
            step[at : at + 3] = source, words_at[source] + mine, words_at[j] + theirs
            at += 3
            step[kernel.CHECKS] += 1
