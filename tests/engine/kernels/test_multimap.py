"""The bag behind joins, against a Counter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kasen.engine.batch import I64
from kasen.engine.kernels import multimap
from kasen.engine.kernels.hashing import hash_columns
from kasen.engine.kernels.multimap import FEW
from kasen.engine.row_store import RowStore


def key_hashes(store: RowStore, data: I64) -> I64:
    return hash_columns(data, store.keys, data.shape[1]).view(np.int64)


def rows_of(store: RowStore, data: I64, row: int) -> Counter[tuple[int, ...]]:
    """What the bag holds under the key of the given row."""
    key_hash = key_hashes(store, data)[row]
    slot = multimap.find_key(store.slots, store.heads, store.keys, data, store.keys, row, key_hash)
    found: Counter[tuple[int, ...]] = Counter()
    while slot != multimap.NONE:
        words = tuple(store.slots[slot, multimap.WORDS : multimap.WORDS + store.words].tolist())
        assert words not in found, "a row has one slot"
        found[words] = int(store.slots[slot, multimap.WEIGHT])
        slot = store.slots[slot, multimap.NEXT]
    return found


@pytest.mark.parametrize(("keys", "different"), [((), 1), ((0,), 3), ((0, 1), 6)], ids=str)
@pytest.mark.parametrize("most", [2, FEW + 3, 100])
def test_rows_are_found_by_key_while_others_come_and_go(
    keys: tuple[int, ...], different: int, most: int
) -> None:
    """Also where lists keep crossing the length from which their rows are chained by hash too."""
    for seed in range(2):
        random = np.random.default_rng(seed)
        store = RowStore(3, keys)
        model: Counter[tuple[int, ...]] = Counter()
        for step in range(1000):
            words = tuple(random.integers(0, (3, 2, 3 * most)).tolist())
            diff = 1 if random.random() < 0.95 else -1
            if model and random.random() * most * different < len(model):
                words = list(model)[int(random.integers(len(model)))]
                diff = -model[words]
            if multimap.is_full(store.slots, store.counts):
                store.grow()
            data = np.array([words], np.int64).T.copy()
            key_hash = key_hashes(store, data)[0]
            multimap.change(store.slots, store.heads, store.counts, store.keys, data, 0, key_hash, diff, step)
            model[words] += diff
            if not model[words]:
                del model[words]
            same_key = {row: n for row, n in model.items() if all(row[k] == words[k] for k in keys)}
            assert rows_of(store, data, 0) == same_key, f"{seed=} {step=}"
        assert store.counts[multimap.LIVE] == len(model)
        again = RowStore(3, keys)
        again.restore(store.snapshot("bag"), "bag")
        assert again.since() == store.since()
        for words in model:
            data = np.array([words], np.int64).T.copy()
            assert rows_of(again, data, 0) == rows_of(store, data, 0)


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
