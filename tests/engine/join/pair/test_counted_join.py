"""CountedPairJoin: shards together say what one PairJoin says that has all tuples."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine.batch import Batch, Frontier, empty
from kasen.engine.join.multiway import rings
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.pair.counted_join import CountedPairJoin
from kasen.engine.join.pair.pair_join import PairJoin

I64 = npt.NDArray[np.int64]
Window = tuple[int, int]

COLUMNS = [(0, 0), (0, 1), (1, 0), (1, 1)]
OTHERS = [(rings.ROWS, 1), (rings.ROWS, 9), (rings.RANGE, 7), (rings.NOW, 0), (rings.UNBOUNDED, 0)]


def stream(random: np.random.Generator, count: int, times: int, keys: int) -> Batch:
    """Tuples of a key and a value, often equal, some at one instant, some keys NULL."""
    ts = np.sort(random.integers(0, times, count))
    words = np.vstack(
        [random.integers(0, keys, count), random.integers(0, 2, count), np.zeros(count, np.int64)]
    )
    missing = random.random(count) < 0.1
    words[0, missing], words[2, missing] = 0, 1
    return Batch(
        ts, random.integers(0, 2, count) if times < count else ts * 0, np.ones(count, np.int64), words
    )


def in_order(batch: Batch) -> Batch:
    return batch.take(np.lexsort((batch.seq_tick, batch.ts)))


def part(batch: Batch, chosen: npt.NDArray[np.bool_], ordinals: I64) -> Batch:
    """Some tuples, with their ordinals in front; NULL bits move up."""
    taken = batch.where(chosen)
    data = np.vstack([ordinals[chosen], taken.data[:-1], taken.data[-1:] << 1])
    return Batch(taken.ts, taken.seq_tick, taken.diff, np.ascontiguousarray(data))


def between(batch: Batch, begin: int, end: int) -> Batch:
    return batch.where((batch.ts >= begin) & (batch.ts < end))


def entered(answers: list[Batch]) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for each in answers:
        rows = np.vstack([each.ts, each.seq_tick, each.data]).T.tolist()
        for row, diff in zip(rows, each.diff.tolist(), strict=True):
            found[tuple(row)] += diff
    return found


def on_shards(
    streams: list[Batch], windows: list[Window], shards: int, frontiers: list[int], *, restart: bool
) -> list[Batch]:
    counted = [kind == rings.ROWS for kind, _ in windows]
    seen = [
        JoinInput(3, rings.COUNTED, length) if counts else JoinInput(2, kind, length)
        for counts, (kind, length) in zip(counted, windows, strict=True)
    ]
    columns = [(side, column + counted[side]) for side, column in COLUMNS]

    def make() -> CountedPairJoin:
        return CountedPairJoin(seen, [{side: int(counted[side]) for side in (0, 1)}], columns)

    answers = []
    for shard in range(shards):
        parts = []
        for batch, counts in zip(streams, counted, strict=True):
            mine = batch.data[0] % shards == shard
            ordinals = np.arange(1, len(batch) + 1)
            parts.append(part(batch, mine, ordinals) if counts else batch.where(mine))
        every = [batch for batch, counts in zip(streams, counted, strict=True) if counts]
        join = make()
        for begin, end in itertools.pairwise([-1, *frontiers]):
            given = [between(batch, begin, end) for batch in (*parts, *every)]
            answers.append(join.process(given, Frontier(end)))
            if restart:
                saved, join = join.snapshot(), make()
                join.restore(saved)
    return answers


def check(seed: int, windows: list[Window], sizes: tuple[int, int, int], *, restart: bool) -> None:
    count, times, keys = sizes
    random = np.random.default_rng([seed, *sizes])
    streams = [in_order(stream(random, count, times, keys)) for _ in (0, 1)]
    whole = PairJoin([JoinInput(2, *window) for window in windows], [{0: 0, 1: 0}], COLUMNS)
    expected = entered([whole.process(streams, Frontier(times))])
    for shards in (1, 2, 3):
        cuts = sorted({*random.integers(1, times, 6).tolist(), times})
        found = entered(on_shards(streams, windows, shards, cuts, restart=restart))
        assert found == expected, f"{seed=} {windows=} {sizes=} {shards=}"


@pytest.mark.parametrize("other", OTHERS)
def test_shards_together_find_what_one_join_of_all_tuples_finds(other: Window) -> None:
    for seed, length in enumerate((1, 2, 3, 9, 40)):
        for windows in ([(rings.ROWS, length), other], [other, (rings.ROWS, length)]):
            check(seed, windows, (60, 25, 4), restart=True)
            check(seed, windows, (60, 400, 4), restart=False)


def test_many_arrivals_at_instants_of_their_own_and_together() -> None:
    for seed, (one, other) in enumerate([(100, 1000), (1, 1), (5000, 3000)]):
        windows = [(rings.ROWS, one), (rings.ROWS, other)]
        check(seed, windows, (40_000, 1 << 40, 700), restart=False)
        check(seed, windows, (8_000, 6_000, 300), restart=False)


def test_long_calls_in_pieces_on_two_cores() -> None:
    random = np.random.default_rng(5)
    windows = [(rings.ROWS, 2000), (rings.RANGE, 1 << 30)]
    streams = [in_order(stream(random, 100_000, 1 << 40, 30_000)) for _ in (0, 1)]
    whole = PairJoin([JoinInput(2, *window) for window in windows], [{0: 0, 1: 0}], COLUMNS)
    expected = entered([whole.process(streams, Frontier(1 << 40))])
    assert len(expected) > 1000
    assert entered(on_shards(streams, windows, 2, [1 << 40], restart=False)) == expected


def test_a_tuple_that_others_of_its_instant_push_out_meets_nobody() -> None:
    """ROWS 1: of the tuples 1 and 2, of one instant, the shard has 1, which is out when 2 is there."""
    join = CountedPairJoin(
        [JoinInput(2, rings.COUNTED, 1), JoinInput(1, rings.UNBOUNDED)], [{0: 1, 1: 0}], [(0, 1), (1, 0)]
    )
    there = Batch(np.array([0]), np.array([0]), np.array([1]), np.array([[7], [0]]))
    assert not len(join.process((empty(2), there, empty(0)), Frontier(1)))
    one = Batch(np.array([5]), np.array([0]), np.array([1]), np.array([[1], [7], [0]]))
    every = Batch(np.array([5, 5]), np.array([0, 0]), np.array([1, 1]), np.zeros((1, 2), np.int64))
    assert not len(join.process((one, empty(1), every), Frontier(6)))
