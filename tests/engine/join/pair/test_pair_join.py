"""PairJoin against models: the windows by their definition, the join recomputed at every instant."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine import parallel
from kasen.engine.batch import END, Batch, Frontier
from kasen.engine.deferred_batch import DeferredBatch, selection_of
from kasen.engine.join.multiway import mjoin, rings
from kasen.engine.join.multiway.mjoin import JoinInput, MJoin
from kasen.engine.join.multiway.probe_order import KeyClass
from kasen.engine.join.pair import pair_join
from kasen.engine.join.pair.kernels import rows as kernel
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.errors import ResourceError
from tests.engine.cuts import all_cuts, batch, netted
from tests.engine.join.multiway.test_mjoin import WINDOWS, arrivals, entered, model, random_classes, stream
from tests.engine.join.pair.two_windows import STRESS, assert_matches_in_order, sides

KEPT_INSIDE = [window for window in WINDOWS if window[0] != rings.BAG]
I64 = npt.NDArray[np.int64]


@pytest.mark.parametrize("left", KEPT_INSIDE)
def test_every_instant_is_as_if_recomputed(left: tuple[int, int]) -> None:
    columns, end = 2, 14
    for seed, right in enumerate(KEPT_INSIDE * 2):
        random = np.random.default_rng([seed, *left])
        windows = [left, right]
        changes = [arrivals(random, columns, kind, 14) for kind, _ in windows]
        classes = random_classes(random, 2, columns)
        seen = [JoinInput(columns, kind, length) for kind, length in windows]
        places = [(i, c) for i in range(2) for c in range(columns)]
        parts = [batch(each, columns) for each in changes]
        found = all_cuts(lambda: PairJoin(seen, classes, places), parts, end, seed)  # noqa: B023
        assert entered(netted(found)) == entered(model(changes, windows, classes, end)), f"{seed=} {windows=}"
        assert all(diff > 0 for *_, diff, _ in found)


@STRESS
def test_millions_of_arrivals_match_in_order(sizes: tuple[int, int], keys: int, count: int) -> None:
    join = PairJoin([JoinInput(2, rings.ROWS, size) for size in sizes], [{0: 0, 1: 0}], [(0, 1), (1, 1)])
    assert_matches_in_order(join, sizes, keys, count, newest_first=False)


def test_the_order_hazard_of_document_a() -> None:
    """Windows of 1, arrivals a, 1, b, 2: (a,1), (b,1) and (b,2). A late look at the window loses (b,1)."""
    join = PairJoin([JoinInput(1, rings.ROWS, 1)] * 2, [], [(0, 0), (1, 0)])
    answer = join.process([stream([(1, 10), (3, 11)]), stream([(2, 1), (4, 2)])], END)
    assert answer.data[:2].T.tolist() == [[10, 1], [11, 1], [11, 2]]
    assert answer.ts.tolist() == [2, 3, 4]


@pytest.mark.parametrize("classes", [[], [{0: 0, 1: 0}], [{0: 0, 1: 0}, {0: 1, 1: 1}]])
@pytest.mark.parametrize("times", ["distinct", "some equal", "few"])
def test_it_says_what_the_general_join_says(classes: list[KeyClass], times: str) -> None:
    """Windows of all kinds, rows that are often equal, and pairs by the thousand."""
    for seed, windows in enumerate(
        itertools.product([(rings.ROWS, 9), (rings.RANGE, 30), *KEPT_INSIDE[5:]], repeat=2)
    ):
        random = np.random.default_rng([seed, len(classes)])
        parts = []
        for _ in range(2):
            ts = {
                "distinct": lambda: np.sort(random.permutation(3000)[:600]),  # noqa: B023
                "some equal": lambda: np.sort(random.integers(0, 900, 600)),  # noqa: B023
                "few": lambda: np.sort(random.integers(0, 40, 600)),  # noqa: B023
            }[times]()
            words = np.vstack([random.integers(0, 4, (2, 600)), np.zeros((1, 600), np.int64)])
            parts.append(Batch(ts, np.zeros(600, np.int64), np.ones(600, np.int64), words))
        seen = [JoinInput(2, *window) for window in windows]
        places = [(0, 0), (0, 1), (1, 0), (1, 1)]
        fast, general = PairJoin(seen, classes, places), MJoin(seen, classes, places, mode=mjoin.NETTED)
        for upto in (200, 210, 5000):
            cut = [
                each.where((each.ts < upto) & (each.ts >= upto - (4790 if upto > 999 else upto % 100 or 200)))
                for each in parts
            ]
            answers = [join.process(cut, Frontier(upto)) for join in (fast, general)]
            assert bag(answers[0]) == bag(answers[1]), f"{seed=} {windows=}"


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("times", [200_000, 40_000])
def test_a_long_call_says_what_short_ones_say(
    times: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of which one is written while the next is matched; some instants have several arrivals."""
    monkeypatch.setattr(pair_join, "_PIECE", 5000)
    monkeypatch.setattr(parallel, "worth", lambda _: cores == 2)
    random = np.random.default_rng(times)
    parts = []
    for _ in range(2):
        count = 50_000
        ts = np.sort(random.integers(0, times, count))
        words = np.vstack(
            [random.integers(0, 900, count), random.integers(0, 9, count), np.zeros(count, np.int64)]
        )
        parts.append(Batch(ts, np.zeros(count, np.int64), np.ones(count, np.int64), words))
    seen, columns = (
        [JoinInput(2, rings.ROWS, 3000), JoinInput(2, rings.RANGE, times // 20)],
        [(0, 0), (0, 1), (1, 1)],
    )
    long, short = (PairJoin(seen, [{0: 0, 1: 0}], columns) for _ in range(2))
    expected: Counter[tuple[int, ...]] = Counter()
    for upto in range(1000, times + 1000, 1000):
        cut = [each.where((each.ts < upto) & (each.ts >= upto - 1000)) for each in parts]
        expected += bag(short.process(cut, Frontier(upto)))
    lazy = [
        DeferredBatch([selection_of(each).between(0, 20_000), selection_of(each).between(20_000, 50_000)])
        for each in parts
    ]
    answer = long.process(lazy, END)
    assert bag(answer) == expected
    assert (np.diff(answer.ts) >= 0).all()


def bag(found: Batch) -> Counter[tuple[int, ...]]:
    rows = np.vstack([found.ts, found.seq_tick, found.data]).T.tolist()
    counted: Counter[tuple[int, ...]] = Counter()
    for row, diff in zip(rows, found.diff.tolist(), strict=True):
        counted[tuple(row)] += diff
    return counted


def test_a_key_that_all_rows_share_makes_all_pairs() -> None:
    """More partners than are looked up at once, and more pairs than there is room for at first."""
    count = 20_000
    left = Batch(
        np.arange(count), np.zeros(count, np.int64), np.ones(count, np.int64), np.zeros((2, count), np.int64)
    )
    left.data[0] = 7
    join = PairJoin([JoinInput(1, rings.UNBOUNDED)] * 2, [{0: 0, 1: 0}], [(0, 0), (1, 0)])
    assert not len(join.process([left, stream([])], Frontier(count)))
    answer = join.process([stream([]), stream([(count, 7), (count + 1, 8), (count + 2, 7)])], END)
    assert np.unique(answer.ts, return_counts=True)[1].tolist() == [count, count]


def test_keys_whose_hashes_are_equal_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of several columns are found by a hash; pairs of different keys are left out."""
    join = PairJoin([JoinInput(2, rings.UNBOUNDED)] * 2, [{0: 0, 1: 0}, {0: 1, 1: 1}], [(0, 0), (1, 1)])
    join.process([stream([(1, 5), (2, 6)], 2), stream([], 2)], Frontier(3))
    rows = join._rows
    # Both rows on one chain, as if their hashes were equal.
    rows.heads[rows.heads == 0] = 2
    rows.links[1] = 0
    answer = join.process([stream([], 2), batch([(3, 0, 1, (5, 1, 0))], 2)], END)
    assert answer.data[:2].T.tolist() == [[5, 1]]


@pytest.mark.parametrize("restart", [False, True])
def test_numbers_begin_anew_before_they_end(restart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_ROWS", 500)
    random = np.random.default_rng(3)
    side, key = random.random(5000) < 0.5, random.integers(0, 30, 5000)
    seen, columns = [JoinInput(2, rings.ROWS, 50), JoinInput(2, rings.RANGE, 70)], [(0, 1), (1, 1)]
    fast = PairJoin(seen, [{0: 0, 1: 0}], columns)
    general = MJoin(seen, [{0: 0, 1: 0}], columns, mode=mjoin.NETTED)
    for begin in range(0, 5000, 100):
        parts = sides(side, key, begin, begin + 100)
        assert bag(fast.process(parts, Frontier(begin + 100))) == bag(
            general.process(parts, Frontier(begin + 100))
        )
        if restart:
            state, fast = fast.snapshot(), PairJoin(seen, [{0: 0, 1: 0}], columns)
            fast.restore(state)


def test_a_window_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_ROWS", 500)
    join = PairJoin([JoinInput(1, rings.UNBOUNDED)] * 2, [{0: 0, 1: 0}], [(0, 0)])
    with pytest.raises(ResourceError, match="it can have 500 at most"):
        join.process([stream([(ts, ts) for ts in range(600)]), stream([])], END)


def test_what_the_state_depends_on_is_the_oldest_row() -> None:
    join = PairJoin([JoinInput(1, rings.ROWS, 2), JoinInput(1, rings.RANGE, 5)], [], [(0, 0), (1, 0)])
    assert join.needs_input_since() is None
    join.process([stream([(1, 1), (2, 1), (3, 1)]), stream([(3, 1)])], Frontier(4))
    assert join.needs_input_since() == (2, 0)
    assert join.oldest(1) == (3, 0)
