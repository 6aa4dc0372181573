"""Counted values: how often each (owner, value) is there, in one open-addressing table.

`table` [places + 1, 3]: (owner, value, weight), owner 0 where a place is empty; places are a power of two.
The last row is the header: how many pairs there are. The caller keeps the table at most half full.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import M, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

OWNER, VALUE, WEIGHT = range(3)


@compiled(f"int64({M}, int64, int64)")
def _home(table: Any, owner: Any, value: Any) -> Any:
    return np.int64(mix(mix(GOLDEN, owner), value)) & (len(table) - 2)


@compiled(f"boolean({M}, int64)")
def has_room(table: Any, pairs: Any) -> Any:
    places = len(table) - 1
    return 2 * (table[places, 0] + pairs) <= places


@compiled(f"int64({M}, int64, int64, int64)", inline=False)
def count(table: Any, owner: Any, value: Any, weight: Any) -> Any:
    """Adds `weight` (not 0) to a pair: 1 if it was not there, -1 if it is there no more, else 0."""
    places = len(table) - 1
    mask = places - 1
    at = _home(table, owner, value)
    while table[at, OWNER] != 0 and (table[at, OWNER] != owner or table[at, VALUE] != value):
        at = (at + 1) & mask
    if table[at, OWNER] == 0:
        table[at, OWNER] = owner
        table[at, VALUE] = value
        table[at, WEIGHT] = weight
        table[places, 0] += 1
        return 1
    table[at, WEIGHT] += weight
    if table[at, WEIGHT] != 0:
        return 0
    # Whoever walked over this place to get home would no longer be found: move it here.
    hole = at
    at = (at + 1) & mask
    while table[at, OWNER] != 0:
        home = _home(table, table[at, OWNER], table[at, VALUE])
        if (at - home) & mask >= (at - hole) & mask:
            for word in range(3):
                table[hole, word] = table[at, word]
            hole = at
        at = (at + 1) & mask
    table[hole, OWNER] = 0
    table[places, 0] -= 1
    return -1


@compiled(f"void({M}, {M})", inline=False)
def move_all(table: Any, to: Any) -> None:
    """Enters all pairs into a larger, empty table."""
    for at in range(len(table) - 1):
        if table[at, OWNER] != 0:
            count(to, table[at, OWNER], table[at, VALUE], table[at, WEIGHT])
