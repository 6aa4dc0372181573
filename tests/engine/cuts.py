"""Runs an operator over a stretch of instants cut in different ways: the answers must be the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kasen.engine.batch import Batch, Frontier
from kasen.engine.operator import Operator

Change = tuple[int, int, int, tuple[int, ...]]  # ts, seq_tick, diff, the row with its NULL word last
Make = Callable[[], Operator]


def batch(changes: Iterable[Change], columns: int) -> Batch:
    rows = list(changes)
    data = np.array([row for *_, row in rows], np.int64).reshape(len(rows), columns + 1).T
    ts, seq_tick, diff = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Batch(ts, seq_tick, diff, np.ascontiguousarray(data))


def changes_of(found: Batch) -> list[Change]:
    rows = found.data.T.tolist()
    instants = zip(found.ts.tolist(), found.seq_tick.tolist(), found.diff.tolist(), rows, strict=True)
    return [(ts, seq_tick, diff, tuple(row)) for ts, seq_tick, diff, row in instants]


def netted(changes: Iterable[Change]) -> dict[tuple[int, int], Counter[tuple[int, ...]]]:
    """The net change of each row at each instant."""
    net: dict[tuple[int, int], Counter[tuple[int, ...]]] = {}
    for ts, seq_tick, diff, row in changes:
        net.setdefault((ts, seq_tick), Counter())[row] += diff
    cleaned = {at: Counter({row: n for row, n in rows.items() if n}) for at, rows in net.items()}
    return {at: rows for at, rows in sorted(cleaned.items()) if rows}


def run_cut(
    make: Make, inputs: Sequence[Batch], frontiers: Sequence[Frontier], *, restart: bool
) -> list[Change]:
    """The answer of the operator, called once a frontier; with `restart` from a snapshot each time."""
    operator = make()
    begin = min((first_of(each) for each in inputs if len(each)), default=Frontier(0))
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
        assert all((ts, seq_tick) < upto for ts, seq_tick, *_ in answer)
        assert answer == sorted(answer, key=lambda change: change[:2])
        found += answer
        if restart:
            state = operator.snapshot()
            operator = make()
            operator.restore(state)
    return found


def first_of(each: Batch) -> Frontier:
    return Frontier(int(each.ts[0]), int(each.seq_tick[0]))


def position(each: Batch, upto: Frontier) -> int:
    instants = list(zip(each.ts.tolist(), each.seq_tick.tolist(), strict=True))
    return sum(instant < upto for instant in instants)


def all_cuts(make: Make, inputs: Sequence[Batch], end: int, seed: int) -> list[Change]:
    """The answer up to time `end`, after checking that no way of cutting changes its net."""
    random_ = random.Random(seed)
    whole = run_cut(make, inputs, [Frontier(end)], restart=False)
    every = [Frontier(ts) for ts in range(end + 1)]
    instants = {
        Frontier(int(ts), int(seq_tick) + 1)
        for each in inputs
        for ts, seq_tick in zip(each.ts, each.seq_tick, strict=True)
    }
    finest = sorted({*every, *(at for at in instants if at < Frontier(end))})
    some = sorted({*random_.sample(every, len(every) // 3), Frontier(end)})
    for frontiers in (every, some, finest):
        for restart in (False, True):
            found = run_cut(make, inputs, frontiers, restart=restart)
            assert netted(found) == netted(whole), f"seed {seed}, restart {restart}, frontiers {frontiers}"
    return whole
