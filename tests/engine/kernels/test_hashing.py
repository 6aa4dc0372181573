"""Row hashes: equal for equal words, and spread over buckets whatever the columns look like."""

from __future__ import annotations

import numpy as np

from kasen.engine.kernels.hashing import hash_columns, hash_key, hash_row


def test_one_row_hashes_the_same_alone_and_among_others() -> None:
    data = np.random.default_rng(1).integers(-9, 9, (4, 100))
    every = np.arange(4)
    hashes = hash_columns(data, every, 100)
    assert [hash_key(data, every, row) for row in range(100)] == list(hashes)
    assert [hash_row(data, row) for row in range(100)] == list(hashes)


def test_the_order_of_columns_matters() -> None:
    data = np.array([[1], [2]])
    assert hash_key(data, np.array([0, 1]), 0) != hash_key(data, np.array([1, 0]), 0)


def test_no_columns_hash_alike() -> None:
    data = np.arange(20).reshape(2, 10)
    assert len(set(hash_columns(data, np.empty(0, np.int64), 10))) == 1


def test_pairs_of_whole_doubles_fill_the_buckets_like_random_numbers() -> None:
    x, y = np.meshgrid(np.arange(256.0), np.arange(256.0))
    data = np.stack([x.ravel(), y.ravel()]).view(np.int64)
    hashes = hash_columns(data, np.arange(2), 65_536)
    assert len(set(hashes)) == 65_536
    for bits in (hashes & np.uint64(0xFFFF), hashes >> np.uint64(48)):
        filled = len(np.unique(bits)) / 65_536
        assert abs(filled - (1 - np.exp(-1))) < 0.01
