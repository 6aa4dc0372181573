"""Finds the records and fields of csv text: where each begins, where it ends, and on which line.

The grammar: a record ends at CR LF, LF or CR; empty lines hold no record. A field that begins with a quote
goes on to the closing quote, over commas and line ends, and "" in it is one quote; what stands between the
closing quote and the comma belongs to the field. A quote elsewhere is a character like any other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.marks import ESCAPED, NULL, TEXT

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

COMMA, QUOTE, CR, LF = 44, 34, 13, 10

#: Why a scan stopped: no bytes left, no room left, or at a record that does not end in these bytes or is too
#: long.
DONE, FULL, CUT = 0, 1, 2
NOT_CLOSED = -1

_BYTES = "Array(uint8, 1, 'C', readonly=True)"


@compiled(
    f"UniTuple(int64, 4)({_BYTES}, int64, int64, boolean, int64, {_BYTES}, int64[::1],"
    " int64[:,::1], int64[:,::1], uint8[:,::1], int64[:,::1])"
)
def scan_csv(
    data: U8,
    start: int,
    line: int,
    final: bool,
    most: int,
    endless: U8,
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
    fields that a record lacks are NULL. `final` says that no bytes follow. A record of more than `most`
    bytes stops the scan. Where `endless` says so (it is empty if nothing is known), no record begins but a
    line on which a quote is not closed: it has NOT_CLOSED fields.

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
        if len(endless) and endless[pos]:
            end = pos
            while end < size and end - pos <= most and data[end] not in (CR, LF):
                end += 1
            if end - pos > most or (not final and size - pos <= most + 1):
                return n, pos, line, CUT
            for slot in range(len(starts)):
                marks[slot, n] = NULL
            rows[0, n] = pos
            rows[1, n] = end
            rows[2, n] = line
            rows[3, n] = NOT_CLOSED
            n += 1
            if end < size:
                pos = end + (2 if data[end] == CR and end + 1 < size and data[end + 1] == LF else 1)
                line += 1
            else:
                pos = end
            continue
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
                        return n, begin_of_record, line_of_record, CUT
                    byte = data[pos]
                    pos += 1
                    if byte == QUOTE:
                        if pos < size and data[pos] == QUOTE:
                            mark = ESCAPED
                            pos += 1
                        elif pos == size and not final:
                            return n, begin_of_record, line_of_record, CUT
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
        if pos - begin_of_record > most:
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


@compiled(f"void({_BYTES}, int64, boolean, int64, uint8[::1])")
def find_endless(data: U8, start: int, final: bool, most: int, endless: U8) -> None:
    """Sets endless[p], p >= start: a record that begins at p does not end in `data`, or not within `most`.

    One pass from the end to the beginning, whatever the bytes are. Of each place it knows where a record ends
    that is, at this place, at the beginning of a field, in plain text, inside quotes, or behind a quote
    inside quotes; -1 if it does not end.
    """
    size = len(data)
    quoted = -1
    field = plain = behind = size if final else -1
    for pos in range(size - 1, start - 1, -1):
        byte = data[pos]
        if byte == QUOTE:
            field, quoted, behind = quoted, behind, quoted
        elif byte == COMMA:
            plain = behind = field
        elif byte in (LF, CR):
            # Whether LF follows a CR at the end of the bytes is not known yet.
            field = plain = behind = -1 if byte == CR and pos + 1 == size and not final else pos
        else:
            field = behind = plain
        endless[pos] = field < 0 or field - pos > most
