from __future__ import annotations

import numpy as np
import pytest

from kasen.engine.kernels.columns import (
    canonical_bits,
    copy_columns,
    null_mask,
    positions,
    put_nulls,
    take_rows,
)


def matrix(*rows: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(rows, np.int64)


def test_columns_move_with_their_null_bits() -> None:
    data = matrix([1, 0, 3], [4, 5, 0], [0b00, 0b01, 0b10])
    out = np.full((5, 3), 99, np.int64)
    copy_columns(data, np.array([1, -1, 0, 1]), out)
    assert out.tolist() == [[4, 5, 0], [99, 99, 99], [1, 0, 3], [4, 5, 0], [0, 0b0100, 0b1001]]


def test_the_last_of_63_columns_can_be_null() -> None:
    data = np.zeros((64, 2), np.int64)
    data[62] = [7, 8]
    put_nulls(np.array([False, True]), 62, data)
    assert data[62].tolist() == [7, 0]
    mask = np.empty(2, np.bool_)
    assert null_mask(data[-1], 62, mask) == 1
    assert mask.tolist() == [False, True]
    out = np.zeros((64, 2), np.int64)
    copy_columns(data, np.array([62] * 63), out)
    assert out[:63].tolist() == [[7, 0]] * 63
    assert out[63].tolist() == [0, 2**63 - 1]


def test_one_null_flag_may_stand_for_all_rows() -> None:
    data = matrix([1, 2], [0, 0])
    put_nulls(np.array([True]), 0, data)
    assert data.tolist() == [[0, 0], [1, 1]]


def test_doubles_have_one_nan_and_one_zero() -> None:
    odd_nan = np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)
    values = np.concatenate([odd_nan, [np.nan, -np.nan, 0.0, -0.0, 1.5, np.inf]])
    out = np.empty(len(values), np.int64)
    canonical_bits(values, out)
    assert len({*out[:3].tolist()}) == 1
    assert out[3] == out[4] == 0
    assert out[5:].view(np.float64).tolist() == [1.5, np.inf]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_taking_rows(share: float) -> None:
    random = np.random.default_rng(3)
    keep = random.random(1000) < share
    data = random.integers(0, 99, (4, 1000))
    rows = np.empty(np.count_nonzero(keep), np.int64)
    positions(keep, rows)
    assert rows.tolist() == np.flatnonzero(keep).tolist()
    ts, seq_tick, diff = (random.integers(0, 99, 1000) for _ in range(3))
    ts_out, sub_out, diff_out = (np.empty(len(rows), np.int64) for _ in range(3))
    out = np.empty((4, len(rows)), np.int64)
    take_rows(rows, ts, seq_tick, diff, data, ts_out, sub_out, diff_out, out)
    assert (out == data[:, keep]).all()
    for taken, whole in ((ts_out, ts), (sub_out, seq_tick), (diff_out, diff)):
        assert (taken == whole[keep]).all()
