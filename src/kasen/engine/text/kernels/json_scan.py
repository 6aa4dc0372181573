"""Finds the wanted values of JSON lines: one object a line.

The kernel is sure only of plain objects: no nesting, no backslash, names in ASCII. It leaves every other
line to a full parser, which also tells what is wrong with a line that is no JSON. So it must not accept
anything that a full parser refuses; beyond that it may be as narrow as it likes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import compiled
from kasen.engine.text.kernels.csv_scan import CUT, DONE, FULL
from kasen.engine.text.kernels.marks import ABSENT, FALSE, NULL, NUMBER, TEXT, TRUE

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_BLANK, _TAB, _LF, _CR = 32, 9, 10, 13
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE = 34, 92, 44, 58, 123, 125
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_CASE, _UPPER_A, _UPPER_Z, _LETTER_E = 32, 65, 90, 101
#: A parser may refuse numbers without end, so the kernel does not vouch for them.
_LONG_NUMBER = 400

_BYTES = "Array(uint8, 1, 'C', readonly=True)"


@compiled(f"int64({_BYTES}, int64, int64)")
def _skip_blank(data: U8, pos: int, end: int) -> int:
    while pos < end and (data[pos] == _BLANK or data[pos] == _TAB or data[pos] == _CR):
        pos += 1
    return pos


@compiled(f"int64({_BYTES}, int64, int64)")
def _plain_string(data: U8, pos: int, end: int) -> int:
    """The position of the closing quote of the string whose text begins at pos; -1 if it is not plain."""
    while pos < end:
        byte = data[pos]
        if byte == _QUOTE:
            return pos
        if byte < _BLANK or byte == _BACKSLASH:
            return -1
        pos += 1
    return -1


@compiled(f"int64({_BYTES}, int64, int64)")
def _digits(data: U8, pos: int, end: int) -> int:
    while pos < end and _ZERO <= data[pos] <= _NINE:
        pos += 1
    return pos


@compiled(f"int64({_BYTES}, int64, int64)")
def _number(data: U8, pos: int, end: int) -> int:
    """Where the number that begins at pos ends; -1 if there is none."""
    begin = pos
    if data[pos] == _MINUS:
        pos += 1
    whole = pos
    pos = _digits(data, pos, end)
    if pos == whole or (data[whole] == _ZERO and pos > whole + 1):
        return -1
    if pos < end and data[pos] == _POINT:
        fraction = pos + 1
        pos = _digits(data, fraction, end)
        if pos == fraction:
            return -1
    if pos < end and data[pos] | _CASE == _LETTER_E:
        pos += 1
        if pos < end and (data[pos] == _PLUS or data[pos] == _MINUS):
            pos += 1
        exponent = pos
        pos = _digits(data, exponent, end)
        if pos == exponent:
            return -1
    return pos if pos - begin <= _LONG_NUMBER else -1


_WORDS = np.frombuffer(b"null true false", np.uint8).copy()


@compiled(f"boolean({_BYTES}, int64, int64, int64, int64)")
def _is_word(data: U8, pos: int, end: int, word: int, length: int) -> bool:
    k = 0
    while k < length and pos + k < end and data[pos + k] == _WORDS[word + k]:
        k += 1
    return k == length


@compiled(f"int64({_BYTES}, int64, int64, uint8[::1], int64[::1])")
def _slot(data: U8, begin: int, end: int, names: U8, bounds: I64) -> int:
    """Which wanted name (lower case, in ASCII) the bytes spell in either case; -1: none; -2: not ASCII."""
    for pos in range(begin, end):
        if data[pos] >= 128:
            return -2
    for slot in range(len(bounds) - 1):
        if bounds[slot + 1] - bounds[slot] != end - begin:
            continue
        k = 0
        while k < end - begin:
            byte = data[begin + k]
            if _UPPER_A <= byte <= _UPPER_Z:
                byte += _CASE
            if byte != names[bounds[slot] + k]:
                break
            k += 1
        if k == end - begin:
            return slot
    return -1


@compiled(
    f"boolean({_BYTES}, int64, int64, uint8[::1], int64[::1],"
    " int64[:,::1], int64[:,::1], uint8[:,::1], int64)"
)
def _scan_object(
    data: U8, pos: int, end: int, names: U8, bounds: I64, starts: I64, ends: I64, marks: U8, row: int
) -> bool:
    """Writes the cells of one line; False if the line is not surely a plain object."""
    if data[pos] != _OPEN:
        return False
    pos = _skip_blank(data, pos + 1, end)
    if pos < end and data[pos] == _CLOSE:
        return _skip_blank(data, pos + 1, end) == end
    while True:
        if pos >= end or data[pos] != _QUOTE:
            return False
        close = _plain_string(data, pos + 1, end)
        if close < 0:
            return False
        slot = _slot(data, pos + 1, close, names, bounds)
        if slot == -2:
            return False
        pos = _skip_blank(data, close + 1, end)
        if pos >= end or data[pos] != _COLON:
            return False
        pos = _skip_blank(data, pos + 1, end)
        if pos >= end:
            return False
        begin, after, mark = pos, -1, TEXT
        if data[pos] == _QUOTE:
            begin = pos + 1
            after = _plain_string(data, begin, end)
        elif _is_word(data, pos, end, 0, 4):
            mark, after = NULL, pos + 4
        elif _is_word(data, pos, end, 5, 4):
            mark, after = TRUE, pos + 4
        elif _is_word(data, pos, end, 10, 5):
            mark, after = FALSE, pos + 5
        else:
            mark, after = NUMBER, _number(data, pos, end)
        if after < 0:
            return False
        if slot >= 0:
            # Of a name that is given twice, the last counts.
            starts[slot, row] = begin
            ends[slot, row] = after
            marks[slot, row] = mark
        pos = _skip_blank(data, after + 1 if mark == TEXT else after, end)
        if pos >= end:
            return False
        if data[pos] == _CLOSE:
            return _skip_blank(data, pos + 1, end) == end
        if data[pos] != _COMMA:
            return False
        pos = _skip_blank(data, pos + 1, end)


@compiled(
    f"UniTuple(int64, 4)({_BYTES}, int64, int64, boolean, int64, uint8[::1], int64[::1],"
    " int64[:,::1], int64[:,::1], uint8[:,::1], int64[:,::1])"
)
def scan_json(
    data: U8,
    start: int,
    line: int,
    final: bool,
    most: int,
    names: U8,
    bounds: I64,
    starts: I64,
    ends: I64,
    marks: U8,
    rows: I64,
) -> tuple[int, int, int, int]:
    """Scans from byte `start`, the beginning of `line`. Lines of nothing but blanks are skipped.

    `names[bounds[slot]:bounds[slot + 1]]` is a wanted name in lower case; `starts`, `ends`, `marks` are
    [slots, capacity]. `rows` is [4, capacity]: a line's first byte, its end, its number, and 1 if the
    kernel is sure of it. A line of more than `most` bytes stops the scan. Returns the number of rows, the
    byte and the line to go on from, and why it stopped, as scan_csv does.
    """
    n = 0
    capacity = rows.shape[1]
    pos = start
    while pos < len(data):
        end = pos
        while end < len(data) and data[end] != _LF:
            end += 1
        if (end == len(data) and not final) or end - pos > most:
            return n, pos, line, CUT
        first = _skip_blank(data, pos, end)
        if first < end:
            if n == capacity:
                return n, pos, line, FULL
            for slot in range(len(starts)):
                starts[slot, n] = 0
                ends[slot, n] = 0
                marks[slot, n] = ABSENT
            rows[0, n] = pos
            rows[1, n] = end
            rows[2, n] = line
            rows[3, n] = _scan_object(data, first, end, names, bounds, starts, ends, marks, n)
            n += 1
        pos = end + 1
        line += 1
    return n, len(data), line, DONE
