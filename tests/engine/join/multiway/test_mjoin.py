"""MJoin against models: the windows by their definition, the join recomputed at every instant."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial

import numpy as np
import pytest

from kasen.engine.batch import END, Batch, Frontier
from kasen.engine.join.multiway import mjoin, parallel_mjoin, rings
from kasen.engine.join.multiway.mjoin import JoinInput, MJoin
from kasen.engine.join.multiway.parallel_mjoin import ParallelMJoin, Workers
from kasen.engine.join.multiway.probe_order import KeyClass, find_keys, order
from tests.engine.cuts import Change, all_cuts, batch, netted
from tests.engine.join.pair.two_windows import STRESS, assert_matches_in_order

Instant = tuple[int, int]
Tuple = tuple[int, ...]
WINDOWS = [
    (rings.ROWS, 1), (rings.ROWS, 2), (rings.ROWS, 5), (rings.RANGE, 0), (rings.RANGE, 3), (rings.NOW, 0),
    (rings.UNBOUNDED, 0), (rings.BAG, 0),
]  # fmt: skip


def alive(changes: list[Change], kind: int, length: int, at: Instant) -> Counter[Tuple]:
    """What a window holds at an instant, from its definition."""
    past = [change for change in changes if change[:2] <= at]
    if kind == rings.BAG:
        bag: Counter[Tuple] = Counter()
        for _, _, diff, row in past:
            bag[row] += diff
        return +bag
    if kind == rings.ROWS:
        return Counter(row for *_, row in past[-length:])
    if kind == rings.RANGE:
        return Counter(row for ts, _, _, row in past if ts + length >= at[0])
    if kind == rings.NOW:
        return Counter(row for ts, seq_tick, _, row in past if (ts, seq_tick) == at)
    return Counter(row for *_, row in past)


def joined(bags: list[Counter[Tuple]], classes: list[KeyClass]) -> Counter[Tuple]:
    answer: Counter[Tuple] = Counter()
    for rows in itertools.product(*(bag.items() for bag in bags)):
        equal = all(len({rows[i][0][column] for i, column in each.items()}) == 1 for each in classes)
        known = all(not rows[i][0][-1] >> column & 1 for each in classes for i, column in each.items())
        if equal and known:
            nulls = sum(row[-1] << i * (len(row) - 1) for i, (row, _) in enumerate(rows))
            words = [word for row, _ in rows for word in row[:-1]]
            answer[(*words, nulls)] += int(np.prod([n for _, n in rows]))
    return answer


def model(
    inputs: list[list[Change]], windows: list[tuple[int, int]], classes: list[KeyClass], end: int
) -> dict[Instant, Counter[Tuple]]:
    """The net change of the join at every instant below `end` at which anything can happen."""
    instants = {change[:2] for changes in inputs for change in changes}
    instants |= {(ts, seq_tick + 1) for ts, seq_tick in instants} | {(ts, 0) for ts in range(end)}
    before: Counter[Tuple] = Counter()
    net: dict[Instant, Counter[Tuple]] = {}
    for at in sorted(instants):
        pairs = zip(inputs, windows, strict=True)
        now = joined([alive(changes, *window, at) for changes, window in pairs], classes)
        moved = Counter({row: now[row] - before[row] for row in {*now, *before} if now[row] != before[row]})
        if moved and at < (end, 0):
            net[at] = moved
        before = now
    return net


def arrivals(random: np.random.Generator, columns: int, kind: int, tuples: int) -> list[Change]:
    """Random changes; a BAG's rows leave again, sometimes."""
    ts = np.sort(random.integers(0, 9, tuples)).tolist()
    subs = random.integers(0, 2, tuples).tolist()
    held: list[Tuple] = []
    changes: list[Change] = []
    for at in sorted(zip(ts, subs, strict=True)):
        if kind == rings.BAG and held and random.random() < 0.4:
            row = held.pop(int(random.integers(len(held))))
            changes.append((*at, -1, row))
            continue
        nulls = int(random.integers(1 << columns)) if random.random() < 0.1 else 0
        words = random.integers(0, 3, columns).tolist()
        row = (*(0 if nulls >> c & 1 else word for c, word in enumerate(words)), nulls)
        held.append(row)
        changes.append((*at, 1, row))
    return changes


def random_classes(random: np.random.Generator, inputs: int, columns: int) -> list[KeyClass]:
    """From no key at all to two: all share one, or chains of them."""
    shape = int(random.integers(4))
    if shape == 0:
        return []
    if shape == 1:
        return [dict.fromkeys(range(inputs), 0)]
    if shape == 2:
        return [dict.fromkeys(range(inputs), 0), dict.fromkeys(range(inputs), 1)]
    return [{i: columns - 1, i + 1: 0} for i in range(inputs - 1)]


@pytest.mark.parametrize("mode", [mjoin.ALL, mjoin.MIXED, mjoin.NETTED])
@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_every_instant_is_as_if_recomputed(inputs: int, mode: int) -> None:
    columns, end = 2, 14
    for seed in range(12 if inputs < 4 else 5):
        random = np.random.default_rng([seed, inputs])
        windows = [WINDOWS[int(random.integers(len(WINDOWS)))] for _ in range(inputs)]
        changes = [arrivals(random, columns, kind, 14 if inputs == 2 else 9) for kind, _ in windows]
        classes = random_classes(random, inputs, columns)
        seen = [JoinInput(columns, kind, length) for kind, length in windows]
        places = [(i, c) for i in range(inputs) for c in range(columns)]
        parts = [batch(each, columns) for each in changes]
        whole = all_cuts(lambda: MJoin(seen, classes, places, mode=mode), parts, end, seed)  # noqa: B023
        found = netted(whole)
        expected = model(changes, windows, classes, end)
        if mode != mjoin.ALL:
            expected, found = entered(expected), entered(found)
        assert found == expected, f"{seed=} {windows=} {classes=}"


@pytest.mark.parametrize("mode", [mjoin.ALL, mjoin.MIXED, mjoin.NETTED])
@pytest.mark.parametrize("workers", [1, 3])
def test_in_parallel_every_instant_is_as_if_recomputed(
    workers: int, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_mjoin, "_WORTH_IT", 1)  # hand over even the smallest piece of work
    columns, end = 2, 14
    for seed in range(8):
        random = np.random.default_rng([seed, workers])
        inputs = int(random.integers(2, 5))
        windows = [WINDOWS[int(random.integers(len(WINDOWS) - 1))] for _ in range(inputs)]
        changes = [arrivals(random, columns, kind, 9) for kind, _ in windows]
        classes: list[KeyClass] = [dict.fromkeys(range(inputs), 0)]
        if random.random() < 0.5:
            classes.append({0: 1, inputs - 1: 1})
        seen = [JoinInput(columns, kind, length) for kind, length in windows]
        places = [(i, c) for i in range(inputs) for c in range(columns)]
        parts = [batch(each, columns) for each in changes]
        whole = all_cuts(
            lambda: ParallelMJoin(seen, classes, places, mode=mode, workers=workers),  # noqa: B023
            parts,
            end,
            seed,
        )
        expected, found = model(changes, windows, classes, end), netted(whole)
        if mode != mjoin.ALL:
            expected, found = entered(expected), entered(found)
        assert found == expected, f"{seed=} {windows=} {classes=}"


def test_workers_tell_of_what_went_wrong() -> None:
    def fail() -> None:
        raise ValueError("here")

    def pass_() -> None:
        return None

    with pytest.raises(ValueError, match="here"):
        Workers(1).run([partial(pass_), partial(fail)])


def entered(net: dict[Instant, Counter[Tuple]]) -> dict[Instant, Counter[Tuple]]:
    return {at: +rows for at, rows in net.items() if +rows}


def test_a_netted_join_puts_out_nothing_that_leaves() -> None:
    rows = [(ts, 0, 1, (ts % 2, 0, 0)) for ts in range(20)]
    join = MJoin([JoinInput(2, rings.ROWS, 2)] * 2, [{0: 0, 1: 0}], [(0, 0), (1, 1)], mode=mjoin.NETTED)
    answer = join.process([batch(rows, 2), batch(rows, 2)], END)
    assert (answer.diff > 0).all()


def stream(arrivals_: list[tuple[int, int]], columns: int = 1) -> Batch:
    """Arrivals as (ts, key)."""
    return batch([(ts, 0, 1, (key, *[ts] * (columns - 1), 0)) for ts, key in arrivals_], columns)


def test_the_order_hazard_of_document_a() -> None:
    """Windows of 1, arrivals a, 1, b, 2: (a,1), (b,1) and (b,2). A late look at the window loses (b,1)."""
    columns = [(0, 0), (1, 0)]
    join = MJoin([JoinInput(1, rings.ROWS, 1)] * 2, [], columns, mode=mjoin.NETTED)
    letters, digits = stream([(1, 10), (3, 11)]), stream([(2, 1), (4, 2)])
    answer = join.process([letters, digits], END)
    assert answer.data[:2].T.tolist() == [[10, 1], [11, 1], [11, 2]]
    assert answer.ts.tolist() == [2, 3, 4]


def test_simultaneous_arrivals_pair_exactly_once() -> None:
    for kind, length in WINDOWS[:-1]:
        join = MJoin([JoinInput(1, kind, length)] * 2, [{0: 0, 1: 0}], [(0, 0), (1, 0)])
        answer = join.process([stream([(1, 7)]), stream([(1, 7)])], Frontier(1, 1))
        assert answer.data[:2].T.tolist() == [[7, 7]], kind


@STRESS
def test_millions_of_arrivals_match_in_order(sizes: tuple[int, int], keys: int, count: int) -> None:
    seen = [JoinInput(2, rings.ROWS, size) for size in sizes]
    join = MJoin(seen, [{0: 0, 1: 0}], [(0, 1), (1, 1)], mode=mjoin.NETTED)
    assert_matches_in_order(join, sizes, keys, count, newest_first=True)


def test_rows_are_probed_where_a_key_leads_first() -> None:
    """0 and 1 share a key, 2 shares none: it comes last, however few rows it has."""
    keys = find_keys(3, [{0: 0, 1: 0}])
    assert order(keys, 0, [9.0, 9.0, 0.0]) == [1, 2]
    assert order(keys, 1, [9.0, 9.0, 0.0]) == [0, 2]


def test_the_probe_order_follows_what_is_found() -> None:
    """Input 1 always matches, input 2 never: rows of input 0 soon ask input 2 first; then it turns round."""
    join = MJoin([JoinInput(1, rings.ROWS, 4)] * 3, [{0: 0, 1: 0, 2: 0}], [(0, 0)], mode=mjoin.NETTED)
    assert join.orders[0] == [1, 2]
    n = 5000
    ts = np.arange(n)
    for rare, expected in ((2, [2, 1]), (1, [1, 2])):
        for _ in range(3):
            parts = []
            for i in range(3):
                keys = [-1 if i == rare else 5] * n
                parts.append(stream(list(zip((3 * ts + i).tolist(), keys, strict=True))))
            join.process(parts, END)
        assert join.orders[0] == expected


def test_what_the_state_depends_on_is_the_oldest_row() -> None:
    join = MJoin([JoinInput(1, rings.ROWS, 2), JoinInput(1, rings.RANGE, 5)], [], [(0, 0)])
    assert join.needs_input_since() is None
    join.process([stream([(1, 1), (2, 1), (3, 1)]), stream([(3, 1)])], Frontier(4))
    assert join.needs_input_since() == (2, 0)
