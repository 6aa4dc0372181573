from __future__ import annotations

import random

import numpy as np
import pytest

from kasen.engine.kernels import counted


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_counted_as_a_dictionary_counts_them(seed: int) -> None:
    rng = random.Random(seed)
    table = np.zeros((64 + 1, 3), np.int64)
    model: dict[tuple[int, int], int] = {}
    for _ in range(20_000):
        pair = (rng.randint(1, 6), rng.randint(-3, 3))
        weight = rng.choice([1, -1, 2, -2])
        if pair not in model and not counted.has_room(table, 1):
            continue
        before = model.get(pair, 0)
        model[pair] = before + weight
        if not model[pair]:
            del model[pair]
        change = int(pair in model) - int(before != 0)
        assert counted.count(table, *pair, weight) == change, seed
    larger = np.zeros((256 + 1, 3), np.int64)
    counted.move_all(table, larger)
    for each in (table, larger):
        found = {(owner, value): weight for owner, value, weight in each[:-1].tolist() if owner}
        assert found == model, seed
        assert each[-1, 0] == len(model), seed
