"""The bag behind joins, against a Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kasen.kernels import multimap
from kasen.kernels.hashing import hash_columns
from kasen.operators.batch import I64
from kasen.operators.row_store import RowStore


def key_hashes(store: RowStore, data: I64) -> I64:
    return hash_columns(data, store.keys, data.shape[1]).view(np.int64)


def rows_of(store: RowStore, data: I64, row: int) -> Counter[tuple[int, ...]]:
    """What the bag holds under the key of the given row."""
    key_hash = key_hashes(store, data[:, row : row + 1].copy())[0]
    slot = multimap.find_key(store.slots, store.heads, store.keys, data, store.keys, row, key_hash)
    found: Counter[tuple[int, ...]] = Counter()
    while slot != multimap.NONE:
        words = tuple(store.slots[slot, multimap.WORDS : multimap.WORDS + store.words].tolist())
        assert words not in found, "a row has one slot"
        found[words] = int(store.slots[slot, multimap.WEIGHT])
        slot = store.slots[slot, multimap.NEXT]
    return found


@pytest.mark.parametrize("keys", [(), (0,), (0, 1)], ids=str)
def test_rows_are_found_by_key_while_others_come_and_go(keys: tuple[int, ...]) -> None:
    """Lists grow and shrink across the length from which their rows are also chained by hash."""
    for seed in range(2):
        random = np.random.default_rng(seed)
        n = 2000
        data = np.vstack([random.integers(0, 3, n), random.integers(0, 2, n), random.integers(0, 150, n)])
        store = RowStore(3, keys)
        hashes = key_hashes(store, data)
        model: Counter[tuple[int, ...]] = Counter()
        for row in range(n):
            words = tuple(data[:, row].tolist())
            wave = 0.75 if row // 250 % 2 == 0 else 0.25
            diff = 1 if random.random() < wave else -1
            if multimap.is_full(store.slots, store.counts):
                store.grow()
            multimap.change(
                store.slots, store.heads, store.counts, store.keys, data, row, hashes[row], diff, row
            )
            model[words] += diff
            if not model[words]:
                del model[words]
            if row % 7 == 0:
                same_key = {r: w for r, w in model.items() if all(r[k] == words[k] for k in keys)}
                assert rows_of(store, data, row) == same_key, f"{seed=} {row=}"
        assert store.counts[multimap.LIVE] == len(model)
        state = store.snapshot("bag")
        again = RowStore(3, keys)
        again.restore(state, "bag")
        assert rows_of(again, data, 0) == rows_of(store, data, 0)
        assert again.since() == store.since()


def test_slots_are_used_again() -> None:
    data = np.arange(200_000).reshape(2, 100_000)
    store = RowStore(2, (0,))
    hashes = key_hashes(store, data)
    for row in range(10_000):
        for diff in (1, -1):
            multimap.change(
                store.slots, store.heads, store.counts, store.keys, data, row, hashes[row], diff, row
            )
    assert store.counts[multimap.USED] == 1
    assert store.since() is None
