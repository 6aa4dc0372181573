"""Groups: records found by their key through an open-addressing table.

`records` holds records of `width` words one after the other; that of slot g begins at g * width with the
fields below, then comes the key, then what the caller keeps. Record 0 is the header: the first free slot,
the slots ever used, the groups there are. Free slots are chained through STAMP; the one that became free
last is claimed first.
`table` [power of two]: a slot, or 0. It has at least twice as many places as there are records, so that
the walk from a key's home place to its slot, or to a 0, is short.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

#: Fields of a record: how many rows the group has, the last instant that touched it, and what the caller
#: remembers of the row that it last put out; then the key's NULL bits, and its values.
ROWS, STAMP, REPORTED, NULLS, KEY_NULLS, KEY = range(6)
#: Fields of the header.
FIRST_FREE, USED, LIVE = range(3)


@compiled("uint64(int64)")
def _start(nulls: Any) -> Any:
    """Where the hash of a key starts, from which of its columns are NULL. Mostly none is."""
    return mix(GOLDEN, nulls) if nulls else GOLDEN


@compiled("int64(int64[::1], int64, int64)")
def _hash_of(records: Any, base: Any, keys: Any) -> Any:
    state = _start(records[base + KEY_NULLS])
    for k in range(keys):
        state = mix(state, records[base + KEY + k])
    return np.int64(state)


@compiled("int64(int64[::1], int64, int64, int64, int64[::1], int64)")
def stamp_group(records: Any, width: Any, slot: Any, stamp: Any, touched: Any, count: Any) -> Any:
    """Adds a group's slot to the `count` ones that carry the stamp, if it is not there; how many they are."""
    at = slot * width + STAMP
    if records[at] != stamp:
        records[at] = stamp
        touched[count] = slot
        count += 1
    return count


@compiled("int64(int64[:, ::1], int64, int64, int64[::1], int64[::1], int64)")
def find_or_claim(data: Any, row: Any, keys: Any, table: Any, records: Any, width: Any) -> Any:
    """The slot of the group of a row, whose first `keys` columns are its key.

    A new group claims a free slot and gets an empty record; 0 if there is no room for it.
    """
    nulls = data[len(data) - 1, row] & ((1 << keys) - 1)
    state = _start(nulls)
    for k in range(keys):
        state = mix(state, data[k, row])
    mask = len(table) - 1
    at = np.int64(state) & mask
    while table[at] != 0:
        base = table[at] * width
        if records[base + KEY_NULLS] == nulls:
            k = 0
            while k < keys and records[base + KEY + k] == data[k, row]:
                k += 1
            if k == keys:
                return table[at]
        at = (at + 1) & mask
    slot = records[FIRST_FREE]
    if slot:
        records[FIRST_FREE] = records[slot * width + STAMP]
    elif (records[USED] + 2) * width <= len(records):
        records[USED] += 1
        slot = records[USED]
    else:
        return 0
    records[LIVE] += 1
    table[at] = slot
    base = slot * width
    for word in range(base, base + width):
        records[word] = 0
    records[base + KEY_NULLS] = nulls
    for k in range(keys):
        records[base + KEY + k] = data[k, row]
    return slot


@compiled("void(int64, int64, int64[::1], int64[::1], int64)", inline=False)
def release(slot: Any, keys: Any, table: Any, records: Any, width: Any) -> None:
    """Takes a group out of the table and frees its slot."""
    mask = len(table) - 1
    hole = _hash_of(records, slot * width, keys) & mask
    while table[hole] != slot:
        hole = (hole + 1) & mask
    # Whoever walked over the hole to get home would no longer be found: move it into the hole.
    at = (hole + 1) & mask
    while table[at] != 0:
        home = _hash_of(records, table[at] * width, keys) & mask
        if (at - home) & mask >= (at - hole) & mask:
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = 0
    records[slot * width + KEY_NULLS] = -1
    records[slot * width + STAMP] = records[FIRST_FREE]
    records[FIRST_FREE] = slot
    records[LIVE] -= 1


@compiled("void(int64, int64[::1], int64[::1], int64)", inline=False)
def enter_all(keys: Any, table: Any, records: Any, width: Any) -> None:
    """Enters all groups into an empty table. Free slots are told by their KEY_NULLS of -1."""
    mask = len(table) - 1
    for slot in range(1, records[USED] + 1):
        if records[slot * width + KEY_NULLS] == -1:
            continue
        at = _hash_of(records, slot * width, keys) & mask
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = slot
