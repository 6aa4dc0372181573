"""Runs an operator over a stretch of instants cut in different ways: the answers must be the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kasen.engine.batch import Batch, Bound
from kasen.engine.operator import Operator

Change = tuple[int, int, int, tuple[int, ...]]  # ts, sub, diff, the row with its NULL word last
Make = Callable[[], Operator]


def batch(changes: Iterable[Change], columns: int) -> Batch:
    rows = list(changes)
    data = np.array([row for *_, row in rows], np.int64).reshape(len(rows), columns + 1).T
    ts, sub, diff = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Batch(ts, sub, diff, np.ascontiguousarray(data))


def changes_of(found: Batch) -> list[Change]:
    rows = found.data.T.tolist()
    instants = zip(found.ts.tolist(), found.sub.tolist(), found.diff.tolist(), rows, strict=True)
    return [(ts, sub, diff, tuple(row)) for ts, sub, diff, row in instants]


def netted(changes: Iterable[Change]) -> dict[tuple[int, int], Counter[tuple[int, ...]]]:
    """The net change of each row at each instant."""
    net: dict[tuple[int, int], Counter[tuple[int, ...]]] = {}
    for ts, sub, diff, row in changes:
        net.setdefault((ts, sub), Counter())[row] += diff
    cleaned = {at: Counter({row: n for row, n in rows.items() if n}) for at, rows in net.items()}
    return {at: rows for at, rows in sorted(cleaned.items()) if rows}


def run_cut(
    make: Make, inputs: Sequence[Batch], frontiers: Sequence[Bound], *, restart: bool
) -> list[Change]:
    """The answer of the operator, called once a frontier; with `restart` from a snapshot each time."""
    operator = make()
    begin = min((first_of(each) for each in inputs if len(each)), default=Bound(0))
    if hasattr(operator, "begin"):
        operator.begin(begin)
    done = [0] * len(inputs)
    found: list[Change] = []
    for upto in frontiers:
        parts = []
        for i, each in enumerate(inputs):
            end = position(each, upto)
            parts.append(each.take(np.arange(done[i], end)))
            done[i] = end
        answer = changes_of(operator.process(parts, upto))
        assert all((ts, sub) < upto for ts, sub, *_ in answer)
        assert answer == sorted(answer, key=lambda change: change[:2])
        found += answer
        if restart:
            state = operator.snapshot()
            operator = make()
            operator.restore(state)
    return found


def first_of(each: Batch) -> Bound:
    return Bound(int(each.ts[0]), int(each.sub[0]))


def position(each: Batch, upto: Bound) -> int:
    instants = list(zip(each.ts.tolist(), each.sub.tolist(), strict=True))
    return sum(instant < upto for instant in instants)


def all_cuts(make: Make, inputs: Sequence[Batch], end: int, seed: int) -> list[Change]:
    """The answer up to time `end`, after checking that no way of cutting changes its net."""
    random_ = random.Random(seed)
    whole = run_cut(make, inputs, [Bound(end)], restart=False)
    every = [Bound(ts) for ts in range(end + 1)]
    instants = {
        Bound(int(ts), int(sub) + 1) for each in inputs for ts, sub in zip(each.ts, each.sub, strict=True)
    }
    finest = sorted({*every, *(at for at in instants if at < Bound(end))})
    some = sorted({*random_.sample(every, len(every) // 3), Bound(end)})
    for frontiers in (every, some, finest):
        for restart in (False, True):
            found = run_cut(make, inputs, frontiers, restart=restart)
            assert netted(found) == netted(whole), f"seed {seed}, restart {restart}, frontiers {frontiers}"
    return whole
