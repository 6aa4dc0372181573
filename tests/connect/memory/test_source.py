"""Rows that a program pushes."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from kasen.connect.layout import Layout
from kasen.connect.memory.source import MemorySource, chunk_of
from kasen.errors import DataError
from kasen.types import BIGINT, INTEGER, VARCHAR
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
