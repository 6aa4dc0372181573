"""Random changes of a bag, as untidy as an operator may get them, and the bags that they make."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from tests.engine.cuts import Change

Row = tuple[int, ...]
Bags = dict[tuple[int, int], Counter[Row]]


def random_changes(
    rng: random.Random, draw: Callable[[random.Random], Row], end: int, *, deletions: bool = True
) -> list[Change]:
    """Changes at instants below `end`: the bag is proper after each instant, but not in its middle."""
    bag: list[Row] = []
    changes: list[Change] = []
    for ts in range(1, end):
        for seq_tick in range(rng.choice([0, 1, 1, 2])):
            now: list[Change] = []
            for _ in range(rng.choice([1, 1, 2, 5])):
                kind = rng.random()
                if kind < 0.5 or not bag or not deletions:
                    row = rng.choice(bag) if bag and kind < 0.15 else draw(rng)
                    times = rng.choice([1, 1, 1, 3])
                    bag += [row] * times
                    now.append((ts, seq_tick, times, row))
                elif kind < 0.9:
                    now.append((ts, seq_tick, -1, bag.pop(rng.randrange(len(bag)))))
                else:
                    row = draw(rng)
                    now += [(ts, seq_tick, 1, row), (ts, seq_tick, -1, row)]
            if deletions and rng.random() < 0.05:
                now += [(ts, seq_tick, -1, row) for row in bag]
                bag = []
            rng.shuffle(now)
            changes += now
    return changes


def queued_changes(
    rng: random.Random, draw: Callable[[random.Random], Row], end: int, group: Callable[[Row], Row]
) -> list[Change]:
    """Changes at instants below `end`: each group's rows leave in the order in which they came."""
    queues: dict[Row, deque[Row]] = {}
    changes: list[Change] = []
    for ts in range(1, end):
        for seq_tick in range(rng.choice([0, 1, 1, 2])):
            for _ in range(rng.choice([1, 1, 2, 5])):
                queue = rng.choice([*queues.values()]) if queues else None
                if queue and rng.random() < 0.45:
                    changes.append((ts, seq_tick, -1, queue.popleft()))
                else:
                    row = draw(rng)
                    queues.setdefault(group(row), deque()).append(row)
                    changes.append((ts, seq_tick, 1, row))
            if rng.random() < 0.05:
                changes += [(ts, seq_tick, -1, row) for queue in queues.values() for row in queue]
                queues.clear()
    return changes


def bags_of(changes: list[Change]) -> Bags:
    """The whole bag after each instant at which something changes."""
    bags: Bags = {}
    bag: Counter[Row] = Counter()
    for ts, seq_tick, diff, row in changes:
        bag[row] += diff
        bags[ts, seq_tick] = Counter({each: n for each, n in bag.items() if n})
    return bags


def differences(bags: Bags) -> Bags:
    """The net change of each row at each instant, instants of no change left out."""
    before: Counter[Row] = Counter()
    found: Bags = {}
    for at, bag in bags.items():
        net = Counter({row: bag[row] - before[row] for row in {*bag, *before} if bag[row] != before[row]})
        if net:
            found[at] = net
        before = bag
    return found
