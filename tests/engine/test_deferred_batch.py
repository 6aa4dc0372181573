"""A batch in parts is the same as one put together at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kasen.engine.batch import I64, Batch, are_ones, are_zeros, concat, ones, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection


def random_part(rng: random.Random, columns: int, nulls: bool) -> Batch:
    n = rng.randint(1, 5)
    data = np.array([[rng.randint(0, 9) for _ in range(n)] for _ in range(columns + 1)], np.int64)
    data[-1] = [rng.randrange(1 << columns) if nulls else 0 for _ in range(n)]
    for column in range(columns):
        data[column][data[-1] >> column & 1 == 1] = 0
    numbers = np.arange(n, dtype=np.int64)
    return Batch(numbers, numbers * 2, numbers % 2 * 2 - 1, data)


def both(rng: random.Random) -> tuple[DeferredBatch, Batch]:
    nulls = rng.random() < 0.5
    batches = [random_part(rng, 3, nulls) for _ in range(rng.randint(1, 3))]
    parts = [RowSelection(each.ts, each.seq_tick, each.diff, list(each.data)) for each in batches]
    return DeferredBatch(parts), concat(batches, 3)


def same(one: Batch, other: Batch) -> None:
    assert len(one) == len(other)
    assert one.columns == other.columns
    assert one.has_nulls() == bool(other.nulls.any())
    for index in (*range(one.columns), -1):
        assert one.column(index).tolist() == other.column(index).tolist()
    for name in ("ts", "seq_tick", "diff", "data"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert one.data.flags.c_contiguous


@pytest.mark.parametrize("seed", range(30))
def test_conditions_and_projections_on_parts(seed: int) -> None:
    rng = random.Random(seed)
    lazy, whole = both(rng)
    same(lazy, whole)
    for _ in range(2):
        keep = np.array([rng.random() < 0.6 for _ in range(len(whole))], np.bool_)
        lazy_rows, whole = lazy.where(keep), whole.where(keep)
        assert isinstance(lazy_rows, DeferredBatch)
        lazy = lazy_rows
        sources: I64 = np.array([rng.randrange(3) for _ in range(rng.randint(0, 4))], np.int64)
        same(lazy.pick(sources), whole.pick(sources))
    room = np.empty(len(whole), np.int64)
    lazy.fill(1, room)
    assert room.tolist() == whole.data[1].tolist()
    # has_nulls may be cautious for rows that were not chosen, never for those that were.
    assert lazy.has_nulls() or not whole.nulls.any()
    assert lazy.data.tolist() == whole.data.tolist()


def test_a_column_to_be_written_has_room_and_no_nulls() -> None:
    part = RowSelection(zeros(2), zeros(2), ones(2), [np.array([1, 2]), np.array([0, 1])])
    picked = DeferredBatch([part]).pick(np.array([-1, 0]))
    picked.data[0] = 7
    assert picked.data.tolist() == [[7, 7], [1, 2], [0, 2]]


def test_what_is_the_same_for_all_rows_is_not_looked_at() -> None:
    part = RowSelection(np.arange(3), zeros(3), ones(3), [np.arange(3), zeros(3)])
    chosen = DeferredBatch([part, part]).where(np.array([True, False, True, False, False, True]))
    assert are_zeros(chosen.seq_tick)
    assert are_ones(chosen.diff)
    assert are_zeros(chosen.column(-1))
    assert chosen.column(0).tolist() == [0, 2, 2]


def test_only_the_names_of_a_batch_are_made() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        DeferredBatch([RowSelection(zeros(1), zeros(1), ones(1), [zeros(1)])]).no_such  # noqa: B018
