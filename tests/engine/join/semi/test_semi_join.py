"""SemiJoin against a model that recomputes the answer at every instant, and outer joins made with it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine.batch import END, Batch, empty
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.join.semi.semi_join import SemiJoin
from kasen.engine.out_buffer import ROOM
from kasen.engine.select.pad import Pad
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
from tests.engine.join.hash.test_hash_join import is_less, less, skewed
from tests.engine.join.hash.test_hash_join import model as joined

Keys = tuple[int, ...]


def model(
    left_keys: Keys, right_keys: Keys, holds: Callable[[Row], bool] | None, anti: bool
) -> Callable[[list[Bag]], Bag]:
    def matches(left: Row, right: Row) -> bool:
        keys = [(left[a], right[b]) for a, b in zip(left_keys, right_keys, strict=True)]
        return all(a == b and a is not None for a, b in keys) and (holds is None or holds(left + right))

    def kept(bags: list[Bag]) -> Bag:
        rights = +bags[1]
        return Counter(
            {
                left: copies
                for left, copies in bags[0].items()
                if any(matches(left, right) for right in rights) != anti
            }
        )

    return kept


@pytest.mark.parametrize("cut", [1, 7, 0])
@pytest.mark.parametrize(
    ("left_keys", "right_keys"), [((), ()), ((0,), (0,)), ((1,), (2,)), ((0, 1), (2, 1))], ids=str
)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("anti", [False, True])
def test_every_instant_is_as_if_recomputed(
    left_keys: Keys, right_keys: Keys, conditional: bool, anti: bool, cut: int
) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        instants = random_instants(random, 60)
        left = random_changes(random, instants, 2, 4, 0.1)
        right = random_changes(random, instants[::3], 3, 4, 0.1)
        holds, residual = (is_less, less) if conditional else (None, None)
        make = lambda: SemiJoin(2, 3, left_keys, right_keys, residual, anti)  # noqa: B023, E731
        answer = run(make, [left, right], [2, 3], cut)
        assert netted(answer) == expected([left, right], model(left_keys, right_keys, holds, anti)), (
            f"{seed=}"
        )


@pytest.mark.parametrize("conditional", [False, True])
def test_a_match_replaced_within_an_instant_changes_nothing(conditional: bool) -> None:
    join = SemiJoin(2, 2, (0,), (0,), less if conditional else None, anti=False)
    left = to_batch([((1, 0), 1, (7, 1)), ((1, 0), 1, (7, 1)), ((1, 0), 1, (8, 1))], 2)
    right = to_batch(
        [((2, 0), 1, (7, 5)), ((3, 0), -1, (7, 5)), ((3, 0), 1, (7, 6)), ((4, 0), -1, (7, 6))], 2
    )
    assert netted(from_batch(join.process([left, right], END))) == {
        (2, 0): {(7, 1): 2},
        (4, 0): {(7, 1): -2},
    }
    right = to_batch([((5, 0), -1, (7, 9)), ((5, 0), 1, (7, 9))], 2)
    assert len(join.process([empty(2), right], END)) == 0


@pytest.mark.parametrize("conditional", [False, True])
def test_answers_and_pairs_larger_than_the_buffers_are_whole(conditional: bool) -> None:
    n = 3 * ROOM
    left = to_batch([((0, 0), 1, (1, i)) for i in range(n)], 2)
    right = to_batch([((t, 0), 1 if t % 2 else -1, (1, n)) for t in range(1, 5)], 2)
    answer = SemiJoin(2, 2, (0,), (0,), less if conditional else None, anti=True).process([left, right], END)
    assert len(answer) == 5 * n
    for t in range(5):
        now = answer.ts == t
        assert (answer.diff[now] == (-1 if t % 2 else 1)).all()
        assert sorted(answer.data[1, now]) == list(range(n))


def test_rows_that_left_do_not_pile_up_within_one_call() -> None:
    """Their slots wait to be settled, but not until the end of the batch."""
    n = 20_000
    join = SemiJoin(2, 2, (0,), (0,), less, anti=True)
    changes = [((t, 0), diff, (t - (diff < 0), 0)) for t in range(n) for diff in (1, -1) if t or diff > 0]
    answer = join.process([to_batch(changes, 2), empty(2)], END)
    assert len(answer) == 2 * n - 1
    assert len(join._left.slots) < 1000


@pytest.mark.parametrize("conditional", [False, True])
def test_a_key_of_half_the_rows_takes_time_linear_in_the_changes(conditional: bool) -> None:
    random = np.random.default_rng(1)
    taken = []
    for n in (20_000, 80_000):
        left, right = skewed(random, n, n // 2, 1), skewed(random, n, n // 2, 2)
        begin = time.process_time()
        SemiJoin(2, 2, (0,), (0,), less if conditional else None, anti=True).process([left, right], END)
        taken.append(time.process_time() - begin)
    print(f"skewed: {4 * 20_000 / taken[0]:,.0f} changes/s, then {4 * 80_000 / taken[1]:,.0f} changes/s")
    assert taken[1] < 2


@pytest.mark.parametrize("conditional", [False, True])
def test_a_full_join_is_the_pairs_and_the_padded_rest_of_both_sides(conditional: bool) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        instants = random_instants(random, 60)
        left, right = (random_changes(random, instants, 2, 4, 0.2) for _ in range(2))
        residual = less if conditional else None

        def swapped(batch: Batch) -> npt.NDArray[np.bool_]:
            nulls = (batch.nulls >> 2) | ((batch.nulls & 3) << 2)
            return less(
                Batch(batch.ts, batch.seq_tick, batch.diff, np.vstack([batch.data[[2, 3, 0, 1]], nulls]))
            )

        def full(bags: list[Bag]) -> Bag:
            pairs = +joined((0,), (0,), is_less if conditional else None)(bags)
            paired = {row[:2] for row in pairs}, {row[2:] for row in pairs}
            alone: Bag = Counter(
                {(*row, None, None): n for row, n in bags[0].items() if row not in paired[0]}
            )
            alone.update({(None, None, *row): n for row, n in bags[1].items() if row not in paired[1]})
            return pairs + alone

        one, other = to_batch(left, 2), to_batch(right, 2)
        rest = SemiJoin(2, 2, (0,), (0,), residual, anti=True).process([one, other], END)
        other_rest = SemiJoin(2, 2, (0,), (0,), swapped if conditional else None, anti=True).process(
            [other, one], END
        )
        answer = [
            *from_batch(HashJoin(2, 2, (0,), (0,), residual).process([one, other], END)),
            *from_batch(Pad(0, 2, 2).process([rest], END)),
            *from_batch(Pad(2, 2, 0).process([other_rest], END)),
        ]
        assert netted(answer) == expected([left, right], full), f"{seed=}"


def test_padding_adds_null_columns_on_both_sides() -> None:
    changes = to_batch([((1, 0), 1, (7, None)), ((2, 1), -1, (None, 0))], 2)
    assert from_batch(Pad(1, 2, 3).process([changes], END)) == [
        ((1, 0), 1, (None, 7, None, None, None, None)),
        ((2, 1), -1, (None, None, 0, None, None, None)),
    ]
    assert from_batch(Pad(0, 2, 0).process([changes], END)) == from_batch(changes)
    assert Pad(1, 2, 3).process([empty(2)], END).columns == 6
    wide = Pad(31, 1, 31).process([to_batch([((0, 0), 1, (3,))], 1)], END)
    assert from_batch(wide) == [((0, 0), 1, (*[None] * 31, 3, *[None] * 31))]
