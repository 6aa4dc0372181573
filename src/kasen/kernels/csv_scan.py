"""Finds the records and fields of csv text: where each begins, where it ends, and on which line.

The grammar: a record ends at CR LF, LF or CR; empty lines hold no record. A field that begins with a quote
goes on to the closing quote, over commas and line ends, and "" in it is one quote; what stands between the
closing quote and the comma belongs to the field. A quote elsewhere is a character like any other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.kernels.compiled import compiled
from kasen.kernels.marks import ESCAPED, NULL, TEXT

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

COMMA, QUOTE, CR, LF = 44, 34, 13, 10

#: Why a scan stopped: no bytes left, no room left, or in the middle of a record (outside, inside quotes).
DONE, FULL, CUT, CUT_IN_QUOTES = 0, 1, 2, 3


@compiled(
    "UniTuple(int64, 4)(Array(uint8, 1, 'C', readonly=True), int64, int64, boolean, int64[::1],"
    " int64[:,::1], int64[:,::1], uint8[:,::1], int64[:,::1])"
)
def scan_csv(
    data: U8,
    start: int,
    line: int,
    final: bool,
    slots: I64,
    starts: I64,
    ends: I64,
    marks: U8,
    rows: I64,
) -> tuple[int, int, int, int]:
    """Scans from byte `start`, which is on `line` and at the beginning of a record.

    `slots[field]` is the place in `starts`, `ends` and `marks` (each [slots, capacity]) where that field
    of a record is wanted, or -1. A TEXT cell's span leaves its quotes out; an ESCAPED one has them in.
    `rows` is [4, capacity]: a record's first byte, its end, its line, and how many fields it has; wanted
    fields that a record lacks are NULL. `final` says that no bytes follow.

    Returns the number of records, the byte and the line to go on from, and why it stopped.
    """
    n = 0
    capacity = rows.shape[1]
    size = len(data)
    pos = start
    while pos < size:
        byte = data[pos]
        if byte == LF:
            pos += 1
            line += 1
            continue
        if byte == CR:
            if pos + 1 == size and not final:
                return n, pos, line, CUT
            pos += 2 if pos + 1 < size and data[pos + 1] == LF else 1
            line += 1
            continue
        if n == capacity:
            return n, pos, line, FULL
        begin_of_record, line_of_record = pos, line
        for slot in range(len(starts)):
            starts[slot, n] = 0
            ends[slot, n] = 0
            marks[slot, n] = NULL
        fields = 0
        while True:
            begin = pos
            quoted = pos < size and data[pos] == QUOTE
            mark = TEXT
            if quoted:
                pos += 1
                while True:
                    if pos == size:
                        return n, begin_of_record, line_of_record, CUT_IN_QUOTES
                    byte = data[pos]
                    pos += 1
                    if byte == QUOTE:
                        if pos < size and data[pos] == QUOTE:
                            mark = ESCAPED
                            pos += 1
                        elif pos == size and not final:
                            return n, begin_of_record, line_of_record, CUT_IN_QUOTES
                        else:
                            break
                    elif byte == LF or (byte == CR and not (pos < size and data[pos] == LF)):
                        line += 1
            closed = pos
            while pos < size:
                byte = data[pos]
                # The first comparison lets most bytes pass with one test.
                if byte <= COMMA and byte in (COMMA, LF, CR):
                    break
                pos += 1
            slot = slots[fields] if fields < len(slots) else -1
            if slot >= 0:
                if quoted and closed < pos:
                    mark = ESCAPED
                inset = 1 if quoted and mark == TEXT else 0
                starts[slot, n] = begin + inset
                ends[slot, n] = pos - inset
                marks[slot, n] = mark if pos > begin else NULL
            fields += 1
            if pos == size or data[pos] != COMMA:
                break
            pos += 1
        if pos == size:
            if not final:
                return n, begin_of_record, line_of_record, CUT
        elif data[pos] == CR and pos + 1 == size and not final:
            return n, begin_of_record, line_of_record, CUT
        rows[0, n] = begin_of_record
        rows[1, n] = pos
        rows[2, n] = line_of_record
        rows[3, n] = fields
        n += 1
        if pos < size:
            pos += 2 if data[pos] == CR and pos + 1 < size and data[pos + 1] == LF else 1
            line += 1
    return n, pos, line, DONE
