"""The last n tuples of each partition: one pass over arrivals.

Tuples lie in slots of a row store. A partition is a list of slots from oldest to newest, found by an
open-addressing table over the hash of its key.
"""

from __future__ import annotations

from typing import Any

from numba import njit

#: Columns of `meta`: what is known of a partition.
HEAD, TAIL, COUNT = 0, 1, 2


@njit(
    "int64(int64[:,::1], uint64[::1], int64[::1], int64, int64, int64[::1], int64[:,::1], uint64[::1],"
    " int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[:,::1])",
    cache=True,
    nogil=True,
)
def push(
    data: Any,  # arrivals [width, n]
    hashes: Any,  # their keys' hashes [n]
    keys: Any,  # which rows of data are the key
    null_mask: Any,  # the key columns' bits in the NULL word
    limit: Any,  # how many tuples a partition holds
    table: Any,  # [power of two] partition number or -1
    meta: Any,  # [partitions, 3] HEAD, TAIL, COUNT
    part_hash: Any,  # [partitions] hash of the key
    store: Any,  # [width, slots] the tuples
    part_key: Any,  # [len(keys) + 1, partitions] key values, then the masked NULL word
    links: Any,  # [slots] next newer slot of the same partition
    free: Any,  # [slots] stack of free slots
    sizes: Any,  # [0] partitions, [1] free slots
    leaving: Any,  # out: [width + 1, n] data of the tuples pushed out, and the arrival that did it
) -> Any:
    """Adds every arrival and returns how many tuples were pushed out.

    The caller guarantees n free slots, room for n more partitions, and a table at most half full after.
    """
    width, n = data.shape
    mask = len(table) - 1
    out = 0
    for i in range(n):
        nulls = data[width - 1, i] & null_mask
        at = int(hashes[i]) & mask
        while True:
            part = table[at]
            if part < 0:
                part = sizes[0]
                sizes[0] += 1
                table[at] = part
                part_hash[part] = hashes[i]
                for k in range(len(keys)):
                    part_key[k, part] = data[keys[k], i]
                part_key[len(keys), part] = nulls
                meta[part, HEAD] = -1
                meta[part, COUNT] = 0
                break
            if part_hash[part] == hashes[i] and part_key[len(keys), part] == nulls:
                same = True
                for k in range(len(keys)):
                    if part_key[k, part] != data[keys[k], i]:
                        same = False
                        break
                if same:
                    break
            at = (at + 1) & mask
        sizes[1] -= 1
        slot = free[sizes[1]]
        for w in range(width):
            store[w, slot] = data[w, i]
        links[slot] = -1
        if meta[part, COUNT] == 0:
            meta[part, HEAD] = slot
        else:
            links[meta[part, TAIL]] = slot
        meta[part, TAIL] = slot
        meta[part, COUNT] += 1
        if meta[part, COUNT] > limit:
            oldest = meta[part, HEAD]
            meta[part, HEAD] = links[oldest]
            meta[part, COUNT] -= 1
            for w in range(width):
                leaving[w, out] = store[w, oldest]
            leaving[width, out] = i
            out += 1
            free[sizes[1]] = oldest
            sizes[1] += 1
    return out


@njit("void(uint64[::1], int64, int64[::1])", cache=True, nogil=True)
def rehash(part_hash: Any, partitions: Any, table: Any) -> None:
    """Enters all partitions into an empty (all -1) table."""
    mask = len(table) - 1
    for part in range(partitions):
        at = int(part_hash[part]) & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = part
