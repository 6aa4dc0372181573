"""Rows that a program pushes."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kasen.connect.layout import Layout
from kasen.connect.memory.source import MemorySource, chunk_of
from kasen.errors import DataError
from kasen.types import BIGINT, INTEGER, TIMESTAMP, VARCHAR
from tests.connect.reading import collect, schema_of

SCHEMA = schema_of(a=INTEGER, t=VARCHAR, ts=BIGINT)
LAYOUT = Layout("s", SCHEMA, timestamp=2)
COLUMNS: dict[str, list[Any]] = {"ts": [1, 2, 3], "A": [10, None, 30], "t": ["x", "", None]}
ROWS = [{"ts": 1, "A": 10, "t": "x"}, {"ts": 2, "t": ""}, {"ts": 3, "A": 30, "t": None}]
EXPECTED = [(10, "x", 1), (None, "", 2), (30, None, 3)]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        COLUMNS,
        pa.table(COLUMNS),
        pa.RecordBatch.from_pydict(COLUMNS),
        pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
        pd.DataFrame({**COLUMNS, "A": pd.array([10, None, 30], dtype="Int64")}),
    ],
    ids=["rows", "columns", "table", "batch", "two chunks", "data frame"],
)
def test_rows_come_in_many_forms(rows: Any) -> None:
    read = collect([chunk_of(LAYOUT, rows)], SCHEMA)
    assert (read.rows, read.lines, read.dead) == (EXPECTED, [1, 2, 3], [])


@pytest.mark.parametrize("form", [list, lambda rows: pa.Table.from_pylist(rows)], ids=["rows", "table"])
def test_bad_rows_are_refused_alike_in_every_form(form: Any) -> None:
    rows = [{"ts": 1, "a": 1, "t": "x"}, {"ts": 2, "a": 2**40, "t": "y"}, {"ts": None, "a": 3, "t": "z"}]
    read = collect([chunk_of(LAYOUT, form(rows), before=10)], SCHEMA)
    assert (read.rows, read.lines) == ([(1, "x", 1)], [11])
    assert [(line, reason) for line, reason, _ in read.dead] == [
        (12, f"bad value: column a is not an INTEGER: {2**40}"),
        (13, "bad timestamp: column ts is NULL"),
    ]


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class RaisingText(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes")


class NoOffset(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise RuntimeError("no offset")

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str:
        raise RuntimeError("no name")


class RaisingRow(dict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (10**5000, "<int>"),
        (Decimal("1e999999"), "1E+999999"),
        (Decimal("sNaN"), "sNaN"),
        (b"\xff", "b'\\xff'"),
        (nested(5000), "<list>"),
        ([10**5000], "<list>"),
        (Raises(), "<Raises>"),
        (datetime(2020, 1, 1, tzinfo=NoOffset()), "<datetime>"),
        (np.uint64(2**64 - 1), str(2**64 - 1)),
        (np.array([1, 2]), "[1 2]"),
    ],
    ids=[
        "long",
        "large",
        "signaling NaN",
        "bytes",
        "nested",
        "long nested",
        "object",
        "time",
        "unsigned",
        "array",
    ],
)
def test_a_value_that_has_no_text_goes_to_the_dead_letter_with_its_type(cell: object, shown: str) -> None:
    read = collect([chunk_of(LAYOUT, [{"a": cell, "t": "x", "ts": 1}, {"a": 1, "t": "y", "ts": 2}])], SCHEMA)
    assert read.rows == [(1, "y", 2)]
    ((line, reason, raw),) = read.dead
    assert (line, reason) == (1, f"bad value: column a is not an INTEGER: {shown}")
    assert raw.startswith('{"a": ')


def test_rows_of_classes_that_raise_go_to_the_dead_letter() -> None:
    rows = [RaisingRow(ts=1), {"a": 1, "t": RaisingText("x"), "ts": 2}, {10**5000: 1, "ts": 3}]
    read = collect([chunk_of(LAYOUT, rows)], SCHEMA)
    assert read.rows == [(1, "x", 2), (None, None, 3)]
    assert [(line, reason) for line, reason, _ in read.dead] == [
        (1, "bad row: reading it raises RuntimeError")
    ]


@pytest.mark.parametrize(
    "cell",
    [10**5000, Raises(), [10**5000], datetime(2020, 1, 1, tzinfo=NoOffset())],
    ids=["long", "object", "nested", "time"],
)
def test_columns_that_arrow_cannot_take_are_an_error(cell: object) -> None:
    with pytest.raises(DataError, match="s: cannot take dict for rows"):
        chunk_of(LAYOUT, {"ts": [1], "a": [cell], "t": ["x"]})


def coded(index: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([index], pa.int32()), pa.array(["a"]), safe=False)


def far_view() -> pa.Array:
    """A text of 50 bytes in a buffer that does not exist."""
    words = np.array([50, 0x64636261, 9, 2**20], np.int32)
    return pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(words)])


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ([coded(77)], "s: column 't' has index 77 into a dictionary of 1"),
        ([coded(-1)], "s: column 't' has index -1 into a dictionary of 1"),
        ([coded(77), coded(0)], "s: column 't' is not valid: .*77"),
        ([far_view()], "s: column 't' has text that is not UTF-8"),
        ([far_view(), far_view()], "s: column 't' is not valid"),
        ([pa.DictionaryArray.from_arrays([0], coded(0))], "column 't' of the pushed batch is dictionary"),
    ],
    ids=["index", "negative index", "index in a piece", "view", "view in a piece", "dictionary of codes"],
)
def test_arrow_arrays_that_point_elsewhere_are_an_error(texts: list[pa.Array], fault: str) -> None:
    numbers = list(range(len(texts)))
    table = pa.table({"ts": numbers, "a": numbers, "t": pa.chunked_array(texts)})
    with pytest.raises(DataError, match=fault):
        chunk_of(LAYOUT, table)


def test_a_time_zone_that_nobody_knows_does_not_matter() -> None:
    layout = Layout("s", schema_of(ts=TIMESTAMP), timestamp=0)
    times = pa.array([5_000_000, 2**62], pa.timestamp("s", tz="Nowhere/X"))
    chunk = chunk_of(layout, pa.table({"ts": times}))
    assert (chunk.data[0].tolist(), [dead.line for dead in chunk.dead]) == ([5_000_000_000_000], [2])


def test_a_batch_that_lacks_a_column_is_an_error() -> None:
    with pytest.raises(DataError, match="s: the pushed batch has no column 't'; its columns are: ts, a"):
        chunk_of(LAYOUT, {"ts": [1], "a": [2]})
    with pytest.raises(DataError, match="column 't' of the pushed batch is int64"):
        chunk_of(LAYOUT, {"ts": [1], "a": [2], "t": [3]})
    with pytest.raises(DataError, match="a row must be a mapping by column name, not tuple"):
        chunk_of(LAYOUT, [(1, 2, 3)])
    with pytest.raises(DataError, match="cannot take int for rows"):
        chunk_of(LAYOUT, 5)


def test_what_was_pushed_is_read_once_in_order() -> None:
    source = MemorySource(LAYOUT)
    source.push(ROWS[:2])
    source.push(ROWS[2:])
    source.push([])
    read = collect(source.chunks(), SCHEMA)
    assert (read.rows, read.lines) == (EXPECTED, [1, 2, 3])
    assert collect(source.chunks(), SCHEMA).rows == []
    assert list(source.push(ROWS).lines) == [4, 5, 6]
