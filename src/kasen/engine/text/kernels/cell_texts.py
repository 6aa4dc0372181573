"""Cells of text into one run of bytes with offsets, as Arrow's strings are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.marks import ESCAPED, READ, TEXT

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_QUOTE = 34


@compiled(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], uint8[::1], int32[::1], uint8[::1])"
)
def gather_texts(data: U8, starts: I64, ends: I64, marks: U8, offsets: npt.NDArray[np.int32], out: U8) -> int:
    """Copies all TEXT and ESCAPED cells, marks them READ, and returns how many bytes they have.

    `offsets` is [n + 1]; other cells get no bytes. `out` has room for all spans. An ESCAPED cell begins
    with its opening quote: "" in it is one quote, and the first quote that stands alone closes it.
    """
    size = 0
    for row in range(len(marks)):
        offsets[row] = size
        if marks[row] == TEXT:
            for pos in range(starts[row], ends[row]):
                out[size] = data[pos]
                size += 1
            marks[row] = READ
        elif marks[row] == ESCAPED:
            pos, end = starts[row] + 1, ends[row]
            inside = True
            while pos < end:
                byte = data[pos]
                pos += 1
                if inside and byte == _QUOTE:
                    if pos < end and data[pos] == _QUOTE:
                        pos += 1
                    else:
                        inside = False
                        continue
                out[size] = byte
                size += 1
            marks[row] = READ
    offsets[len(marks)] = size
    return size
