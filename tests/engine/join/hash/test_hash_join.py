"""HashJoin against a model that recomputes the join at every instant."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine.batch import END, Batch, empty
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.out_buffer import ROOM
from tests.engine.bags import (
    Bag,
    Row,
    expected,
    from_batch,
    netted,
    random_changes,
    random_instants,
    run,
    to_batch,
)

Keys = tuple[int, ...]


def model(
    left_keys: Keys, right_keys: Keys, holds: Callable[[Row], bool] | None
) -> Callable[[list[Bag]], Bag]:
    def joined(bags: list[Bag]) -> Bag:
        answer: Bag = Counter()
        for left, copies in bags[0].items():
            for right, times in bags[1].items():
                keys = [(left[a], right[b]) for a, b in zip(left_keys, right_keys, strict=True)]
                if all(a == b and a is not None for a, b in keys) and (holds is None or holds(left + right)):
                    answer[left + right] += copies * times
        return answer

    return joined


def less(batch: Batch) -> npt.NDArray[np.bool_]:
    """The left's second column is less than the right's last, neither being NULL."""
    last = batch.columns - 1
    known = batch.nulls & ((1 << 1) | (1 << last)) == 0
    return known & (batch.data[1] < batch.data[last])


def is_less(row: Row) -> bool:
    return row[1] is not None and row[-1] is not None and row[1] < row[-1]


@pytest.mark.parametrize("cut", [1, 7, 0])
@pytest.mark.parametrize(
    ("left_keys", "right_keys"), [((), ()), ((0,), (0,)), ((1,), (2,)), ((0, 1), (2, 1))], ids=str
)
@pytest.mark.parametrize("conditional", [False, True])
def test_every_instant_is_as_if_recomputed(
    left_keys: Keys, right_keys: Keys, conditional: bool, cut: int
) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        instants = random_instants(random, 40)
        left = random_changes(random, instants, 2, 4, 0.1)
        right = random_changes(random, instants, 3, 4, 0.1)
        holds, residual = (is_less, less) if conditional else (None, None)
        answer = run(lambda: HashJoin(2, 3, left_keys, right_keys, residual), [left, right], [2, 3], cut)  # noqa: B023
        assert netted(answer) == expected([left, right], model(left_keys, right_keys, holds)), f"{seed=}"


def test_a_pair_is_put_out_once_with_both_rows_nulls() -> None:
    join = HashJoin(2, 2, (0,), (1,))
    left = to_batch([((1, 0), 1, (7, None)), ((2, 0), 1, (None, 1))], 2)
    right = to_batch([((1, 0), 1, (None, 7)), ((3, 0), 1, (3, None)), ((4, 0), -1, (None, 7))], 2)
    assert from_batch(join.process([left, right], END)) == [
        ((1, 0), 1, (7, None, None, 7)),
        ((4, 0), -1, (7, None, None, 7)),
    ]


def test_diffs_carry_multiplicity() -> None:
    join = HashJoin(1, 1, (0,), (0,))
    left = to_batch([((1, 0), 2, (5,))], 1)
    right = to_batch([((2, 0), 1, (5,)), ((2, 0), 2, (5,)), ((3, 0), -3, (5,))], 1)
    answer = netted(from_batch(join.process([left, right], END)))
    assert answer == {(2, 0): {(5, 5): 6}, (3, 0): {(5, 5): -6}}


@pytest.mark.parametrize("conditional", [False, True])
def test_an_answer_larger_than_the_buffers_is_whole(conditional: bool) -> None:
    n = 400
    left = to_batch([((i, 0), 1, (1, i)) for i in range(n)], 2)
    right = to_batch([((0, 0), 1, (1, i)) for i in range(n)], 2)
    answer = HashJoin(2, 2, (0,), (0,), less if conditional else None).process([left, right], END)
    assert n * n > 2 * ROOM
    assert len(answer) == (n * (n - 1) // 2 if conditional else n * n)
    assert len(np.unique(answer.data[1] * n + answer.data[3])) == len(answer)
    assert (answer.ts == answer.data[1]).all()


def test_what_the_state_depends_on_is_the_oldest_row() -> None:
    join = HashJoin(1, 1, (0,), (0,))
    assert join.needs_input_since() is None
    join.process([to_batch([((3, 0), 1, (1,)), ((5, 0), 1, (2,)), ((6, 0), -1, (1,))], 1), empty(1)], END)
    assert join.needs_input_since() == (5, 0)


def skewed(random: np.random.Generator, n: int, live: int, begin_key: int) -> Batch:
    """Each row enters and, `live` instants later, leaves; every second one has the key `begin_key`."""
    key = np.where(random.random(n) < 0.5, begin_key, random.integers(10, live, n))
    ts = np.concatenate([np.arange(n), np.arange(live, n + live)])
    diff = np.repeat([1, -1], n)
    data = np.vstack([np.tile(key, 2), np.tile(random.permutation(n), 2), np.zeros(2 * n, np.int64)])
    order = np.argsort(ts, kind="stable")
    return Batch(ts[order], np.zeros(2 * n, np.int64), diff[order], np.ascontiguousarray(data[:, order]))


def test_a_key_of_half_the_rows_takes_time_linear_in_the_changes() -> None:
    """The frequent keys of the two sides differ, so there is little output to hide behind."""
    random = np.random.default_rng(1)
    taken = []
    for n in (20_000, 80_000):
        left, right = skewed(random, n, n // 2, 1), skewed(random, n, n // 2, 2)
        begin = time.process_time()
        HashJoin(2, 2, (0,), (0,)).process([left, right], END)
        taken.append(time.process_time() - begin)
    print(f"skewed: {4 * 20_000 / taken[0]:,.0f} changes/s, then {4 * 80_000 / taken[1]:,.0f} changes/s")
    # Searching the frequent key's rows would take 16 times as long, and seconds.
    assert taken[1] < 2
