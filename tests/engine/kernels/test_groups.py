from __future__ import annotations

import random

import numpy as np
import pytest

from kasen.engine.kernels import groups

WIDTH = groups.KEY + 3  # two words of key, one of the caller's


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_found_as_in_a_dictionary(seed: int) -> None:
    rng = random.Random(seed)
    slots = 33
    records = np.zeros(slots * WIDTH, np.int64)
    table = np.zeros(64, np.int64)  # less than twice the slots, so that walks are long
    slot_of: dict[tuple[int, int, int], int] = {}
    for _ in range(20_000):
        key = rng.choice([(rng.randint(0, 5), rng.randint(0, 5), 0), (0, rng.randint(0, 5), 1)])
        if key in slot_of and rng.random() < 0.4:
            groups.release(slot_of.pop(key), 2, table, records, WIDTH)
            continue
        data = np.array(key, np.int64).reshape(3, 1)
        slot = int(groups.find_or_claim(data, 0, 2, table, records, WIDTH))
        if key in slot_of:
            assert slot == slot_of[key], seed
            assert records[slot * WIDTH + WIDTH - 1] == slot, seed
        elif len(slot_of) == slots - 1:
            assert slot == 0, seed
        else:
            assert 0 < slot < slots, seed
            assert slot not in slot_of.values(), seed
            assert not records[slot * WIDTH + WIDTH - 1], "a claimed record is empty"
            records[slot * WIDTH + WIDTH - 1] = slot
            slot_of[key] = slot
        assert records[groups.LIVE] == len(slot_of), seed
    again = np.zeros(256, np.int64)
    groups.enter_all(2, again, records, WIDTH)
    for key, slot in slot_of.items():
        data = np.array(key, np.int64).reshape(3, 1)
        assert groups.find_or_claim(data, 0, 2, again, records, WIDTH) == slot, seed


def test_the_slot_that_became_free_last_is_claimed_first() -> None:
    records, table = np.zeros(9 * WIDTH, np.int64), np.zeros(32, np.int64)
    rows = np.array([[1, 2, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]], np.int64)
    assert [groups.find_or_claim(rows, i, 2, table, records, WIDTH) for i in range(3)] == [1, 2, 3]
    groups.release(1, 2, table, records, WIDTH)
    groups.release(3, 2, table, records, WIDTH)
    assert [groups.find_or_claim(rows, i, 2, table, records, WIDTH) for i in (3, 0, 2)] == [3, 1, 4]
