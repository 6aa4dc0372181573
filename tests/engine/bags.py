"""Random changes of relations, and a model that recomputes an operator's answer at every instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import numpy as np

from kasen.engine.batch import END, Batch, Frontier
from kasen.engine.operator import Operator

Row = tuple[int | None, ...]
#: (ts, seq_tick), diff, row
Change = tuple[tuple[int, int], int, Row]
Bag = Counter[Row]


def to_batch(changes: Sequence[Change], columns: int) -> Batch:
    n = len(changes)
    data = np.zeros((columns + 1, n), np.int64)
    for i, (_, _, row) in enumerate(changes):
        for column, value in enumerate(row):
            data[column, i] = value or 0
            data[columns, i] |= (value is None) << column
    ts = np.array([instant[0] for instant, _, _ in changes], np.int64)
    seq_tick = np.array([instant[1] for instant, _, _ in changes], np.int64)
    return Batch(ts, seq_tick, np.array([diff for _, diff, _ in changes], np.int64), data)


def from_batch(batch: Batch) -> list[Change]:
    changes: list[Change] = []
    for i in range(len(batch)):
        nulls = int(batch.nulls[i])
        values = (None if nulls >> c & 1 else int(batch.data[c, i]) for c in range(batch.columns))
        changes.append(((int(batch.ts[i]), int(batch.seq_tick[i])), int(batch.diff[i]), tuple(values)))
    assert all(batch.data[c, i] == 0 for i in range(len(batch)) for c in range(batch.columns)
               if int(batch.nulls[i]) >> c & 1), "a NULL's value is 0"  # fmt: skip
    return changes


def random_changes(
    random: np.random.Generator, instants: Sequence[tuple[int, int]], columns: int, values: int, null: float
) -> list[Change]:
    """A relation's changes: a proper bag after each instant, in any order and not netted within one."""
    bag: list[Row] = []
    changes: list[Change] = []
    for instant in instants:
        if random.random() < 0.3:
            continue
        now: list[Change] = []
        for _ in range(random.integers(0, 6)):
            drawn = random.integers(0, values, columns)
            row = tuple(None if random.random() < null else int(value) for value in drawn)
            now.append((instant, 1, row))
            bag.append(row)
        for _ in range(min(int(random.integers(0, 5)), len(bag))):
            now.append((instant, -1, bag.pop(int(random.integers(len(bag))))))  # noqa: PERF401
        if bag and random.random() < 0.3:
            row = bag[int(random.integers(len(bag)))]
            now += [(instant, -1, row), (instant, 1, row)]
        if random.random() < 0.2:
            row = tuple(int(value) for value in random.integers(0, values, columns))
            now += [(instant, 3, row), (instant, -3, row)]
        random.shuffle(now)
        changes += now
    return changes


def random_instants(random: np.random.Generator, n: int) -> list[tuple[int, int]]:
    return sorted({(int(random.integers(0, n)), int(random.integers(0, 2))) for _ in range(n)})


def expected(
    inputs: Sequence[Sequence[Change]], answer: Callable[[list[Bag]], Bag]
) -> dict[tuple[int, int], Bag]:
    """The changes of the answer at each instant at which it changes."""
    merged = [(change[0], side, change) for side, changes in enumerate(inputs) for change in changes]
    merged.sort(key=lambda entry: entry[0])
    bags: list[Bag] = [Counter() for _ in inputs]
    before: Bag = Counter()
    changed = {}
    for instant, group in groupby(merged, lambda entry: entry[0]):
        for _, side, (_, diff, row) in group:
            bags[side][row] += diff
        assert all(count >= 0 for bag in bags for count in bag.values()), "the input is a bag"
        after = answer(bags)
        difference = Counter(after)
        difference.subtract(before)
        if any(difference.values()):
            changed[instant] = Counter({row: diff for row, diff in difference.items() if diff})
        before = after
    return changed


def netted(changes: Sequence[Change]) -> dict[tuple[int, int], Bag]:
    net: dict[tuple[int, int], Bag] = {}
    for instant, diff, row in changes:
        net.setdefault(instant, Counter())[row] += diff
    cleaned = {instant: Counter({row: n for row, n in bag.items() if n}) for instant, bag in net.items()}
    return {instant: bag for instant, bag in cleaned.items() if bag}


def run(
    make: Callable[[], Operator], inputs: Sequence[Sequence[Change]], columns: Sequence[int], cut: int
) -> list[Change]:
    """The operator's answer, given `cut` instants a call (0: all), with a restart half-way."""
    instants = sorted({change[0] for changes in inputs for change in changes})
    cuts = [*instants[::cut], None] if cut else [instants[0], None]
    operator = make()
    answer: list[Change] = []
    for step, (begin, end) in enumerate(pairwise(cuts)):
        if step == len(cuts) // 2:
            state = operator.snapshot()
            operator = make()
            operator.restore(state)
        batches = [
            to_batch([c for c in changes if begin <= c[0] and (end is None or c[0] < end)], width)  # type: ignore[operator]
            for changes, width in zip(inputs, columns, strict=True)
        ]
        part = from_batch(operator.process(batches, END if end is None else Frontier(*end)))
        assert all(begin <= instant and (end is None or instant < end) for instant, _, _ in part)  # type: ignore[operator]
        answer += part
    assert [change[0] for change in answer] == sorted(change[0] for change in answer), "in instant order"
    return answer
