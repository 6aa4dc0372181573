"""Columns of values to columns of text: how cells are written into files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

#: So many rows are made text at once: their text must stay below 2 GiB.
ROWS_AT_ONCE = 1 << 17

_NEEDS_QUOTES = re.compile(r'^$|[,"\r\n]|^ | $')
_MICROS = 1_000_000


def csv_text(text: str) -> str:
    """Quoted only where a reader would see something else: the empty string is not NULL."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def csv_cells(array: pa.Array) -> pa.Array:
    """A column as csv cells; NULL is the empty cell."""
    if pat.is_string(array.type):
        return _each_once(array, csv_text).fill_null("")
    return _texts(array).fill_null("")


def json_cells(array: pa.Array) -> pa.Array:
    """A column as JSON values. What JSON has no number for (NaN, inf) is a string."""
    texts = _each_once(array, json_text) if pat.is_string(array.type) else _texts(array)
    if pat.is_timestamp(array.type):
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    if pat.is_floating(array.type):
        quoted = pc.binary_join_element_wise('"', texts, '"', "")
        texts = pc.if_else(pc.is_finite(array), texts, quoted)
    return texts.fill_null("null")


def lines(pieces: list[pa.Array | str]) -> pa.Buffer | bytes:
    """The rows' texts, each made of its pieces one after the other; a str is the same in all rows."""
    joined = pc.binary_join_element_wise(*pieces, "")
    if len(joined) == 0:
        return b""
    # Arrow's strings lie one after the other, so their bytes are the very text of the file.
    _, offsets, data = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[joined.offset, joined.offset + len(joined)]]
    return data.slice(int(first), int(last - first))


def _each_once(array: pa.StringArray, write: Callable[[str], str]) -> pa.Array:
    encoded = array.dictionary_encode()
    texts = pa.array([write(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _texts(array: pa.Array) -> pa.Array:
    if pat.is_floating(array.type):
        return _double_texts(array)
    if pat.is_decimal(array.type):
        return _decimal_texts(array)
    if pat.is_timestamp(array.type):
        return _timestamp_texts(array)
    return array.cast(pa.string())


def _double_texts(array: pa.Array) -> pa.Array:
    """Python's repr is the shortest text that reads back as the same number."""
    values = array.to_pylist()
    return pa.array([None if x is None else "NaN" if x != x else repr(x) for x in values], pa.string())


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Plain digits with all of the scale's; Arrow's own text of a small number would have an exponent."""
    scale = array.type.scale
    numbers = np.frombuffer(array.buffers()[1], np.int64)[::2][array.offset : array.offset + len(array)]
    size = np.abs(numbers)
    sign = pc.if_else(pa.array(numbers < 0), "-", "")
    whole = pa.array(size // 10**scale).cast(pa.string())
    pieces = [sign, whole]
    if scale:
        fraction = pa.array(size % 10**scale).cast(pa.string())
        pieces += [".", pc.utf8_lpad(fraction, scale, "0")]
    return pc.if_else(array.is_null(), None, pc.binary_join_element_wise(*pieces, ""))


def _timestamp_texts(array: pa.Array) -> pa.Array:
    """YYYY-MM-DD HH:MM:SS, and .ffffff only if it is not zero."""
    micros = array.cast(pa.int64()).fill_null(0).to_numpy()
    fraction = micros % _MICROS
    seconds = pa.array(micros // _MICROS).cast(pa.timestamp("s")).cast(pa.string())
    if fraction.any():
        seconds = pc.if_else(pa.array(fraction == 0), seconds, array.cast(pa.string()))
    return pc.if_else(array.is_null(), None, seconds) if array.null_count else seconds
