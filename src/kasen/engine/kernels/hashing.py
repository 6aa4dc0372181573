"""Row hashes: one mixing step of splitmix64 for each word.

Every word is mixed fully, because words are far from random: small integers, dictionary codes, and the
bits of doubles whose low halves are all zero. A cheaper step lets such columns cancel each other out.
The hashes are the same on every machine and in every run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.engine.kernels.compiled import M, V, compiled

I64 = npt.NDArray[np.int64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


@compiled("uint64(uint64, int64)")
def mix(state: np.uint64, word: int) -> np.uint64:
    """The hash of a sequence that ends in `word`, from the hash of what came before it."""
    z = (state ^ np.uint64(word)) + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@compiled(f"uint64({M}, {V}, int64)")
def hash_key(data: I64, columns: I64, row: int) -> np.uint64:
    """The hash of one row's given columns; of no columns, always the same.

    `data` is [words, rows] as in a batch. Values of NULLs are 0, so where a NULL and a 0 must differ,
    the caller passes the NULL word's index among `columns` too.
    """
    state = GOLDEN
    for k in range(len(columns)):
        state = mix(state, data[columns[k], row])
    return state


@compiled(f"uint64({M}, int64)")
def hash_row(data: I64, row: int) -> np.uint64:
    """The hash of all words of one row, the NULL word among them."""
    state = GOLDEN
    for word in range(data.shape[0]):
        state = mix(state, data[word, row])
    return state


@njit(f"uint64[::1]({M}, {V}, int64)", cache=True, nogil=True)
def hash_columns(data: I64, columns: I64, n: int) -> npt.NDArray[np.uint64]:
    """hash_key of the first n rows."""
    hashes = np.full(n, GOLDEN, np.uint64)
    for k in range(len(columns)):
        words = data[columns[k]]
        for row in range(n):
            hashes[row] = mix(hashes[row], words[row])
    return hashes
