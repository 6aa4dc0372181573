"""A join in two stages on two cores says what it says on one, in the same order, whichever core is ahead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine import parallel
from kasen.engine.batch import Batch, Frontier
from kasen.engine.join.multiway import rings
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.multiway.probe_order import KeyClass
from kasen.engine.join.pair import pair_join
from kasen.engine.join.pair import stages as pair_stages
from kasen.engine.join.pair.pair_join import PairJoin

I64 = npt.NDArray[np.int64]
Task = Callable[[], object]
CALL, CALLS = 60_000, 6


def here_first(there: Task, here: Task) -> tuple[object, object]:
    """The first stage of a piece, and the moves of rows before it, before the second of the last piece."""
    mine = here()
    return there(), mine


def there_first(there: Task, here: Task) -> tuple[object, object]:
    return there(), here()


ORDERS = {"at once": parallel.both, "here first": here_first, "there first": there_first}

BY_KEY: list[KeyClass] = [{0: 0, 1: 0}]
BY_BOTH: list[KeyClass] = [{0: 0, 1: 0}, {0: 1, 1: 1}]
#: The windows, how many keys there are, what is joined, and whether arrivals share instants.
CASES = {
    "rows 1 and 1": ((rings.ROWS, 1), (rings.ROWS, 1), 3, BY_KEY, "apart"),
    "rows 7 and 1000": ((rings.ROWS, 7), (rings.ROWS, 1000), 200, BY_KEY, "apart"),
    "rows 1000 and 1000": ((rings.ROWS, 1000), (rings.ROWS, 1000), 500, BY_KEY, "apart"),
    "rows longer than a piece": ((rings.ROWS, 9000), (rings.ROWS, 30_000), 20_000, BY_KEY, "apart"),
    "rows far longer than a piece": ((rings.ROWS, 20_000), (rings.ROWS, 25_000), 20_000, BY_KEY, "apart"),
    "rows and range": ((rings.ROWS, 300), (rings.RANGE, 900), 200, BY_KEY, "apart"),
    "range and now": ((rings.RANGE, 500), (rings.NOW, 0), 100, BY_KEY, "mixed"),
    "unbounded and rows": ((rings.UNBOUNDED, 0), (rings.ROWS, 100), 60_000, BY_KEY, "apart"),
    "several columns": ((rings.ROWS, 800), (rings.RANGE, 2000), 20, BY_BOTH, "apart"),
    "a few instants of several arrivals": ((rings.ROWS, 500), (rings.ROWS, 400), 300, BY_KEY, "few together"),
    "many of them": ((rings.ROWS, 500), (rings.RANGE, 400), 300, BY_KEY, "mixed"),
    "more at an instant than a piece has": ((rings.ROWS, 60), (rings.ROWS, 5), 4, BY_KEY, "crowded"),
}


def times(random: np.random.Generator, how: str, begin: int) -> I64:
    """The times of the next arrivals of both sides, ascending."""
    if how == "apart":
        return np.arange(begin, begin + CALL)
    if how == "crowded":
        return begin + np.sort(random.integers(0, 12, CALL))
    steps = random.random(CALL) < (0.9998 if how == "few together" else 0.7)
    return begin + np.cumsum(steps)


def calls(how: str, keys: int) -> list[list[Batch]]:
    """What arrives, call by call. Keys are often equal, values too, and some are NULL in the last call."""
    random = np.random.default_rng(keys)
    found, begin = [], 0
    for call in range(CALLS):
        ts = times(random, how, begin)
        begin = int(ts[-1]) + 1
        side = random.random(CALL) < 0.4
        nulls = (random.random(CALL) < 0.05) * random.integers(0, 4, CALL) * (call == CALLS - 1)
        words = np.vstack([random.integers(0, keys, CALL), random.integers(0, 50, CALL), nulls])
        subs = random.integers(0, 2, CALL).cumsum() if how == "apart" and call else np.zeros(CALL, np.int64)
        found.append(
            [
                Batch(ts[at], subs[at], np.ones(int(at.sum()), np.int64), np.ascontiguousarray(words[:, at]))
                for at in (side, ~side)
            ]
        )
    return found


def run(case: str, monkeypatch: pytest.MonkeyPatch, order: str | None) -> list[I64]:
    left, right, keys, classes, how = CASES[case]
    # In short pieces rows of long windows move in place, to where the last piece's may still be read.
    monkeypatch.setattr(pair_join, "_PIECE", 300 if case == "rows far longer than a piece" else 5000)
    monkeypatch.setattr(parallel, "worth", lambda _: order is not None)
    if order is not None:
        monkeypatch.setattr(pair_stages, "both", ORDERS[order])
    join = PairJoin([JoinInput(2, *left), JoinInput(2, *right)], classes, [(0, 0), (0, 1), (1, 0), (1, 1)])
    found: list[I64] = []
    for each in calls(how, keys):
        answer = join.process(each, Frontier(int(max(part.ts[-1] for part in each)) + 1))
        found += [answer.ts, answer.seq_tick, answer.diff, *answer.data, *join.snapshot().values()]
    return found


@pytest.mark.parametrize("case", CASES)
def test_two_cores_say_what_one_says_in_the_same_order(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(case, monkeypatch, None)
    assert sum(map(len, expected)) > 1000
    for order in ORDERS:
        found = run(case, monkeypatch, order)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one, other), f"{order=}"
