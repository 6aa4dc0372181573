"""Parquet files as sources."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.connect.registry import open_source
from kasen.connect.sniff import sniffer
from kasen.errors import DataError
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Connector,
    Type,
    decimal,
)
from tests.connect.reading import collect, read_path, schema_of


def write(folder: Path, columns: dict[str, pa.Array], name: str = "s.parquet", **options: Any) -> Path:
    path = folder / name
    pq.write_table(pa.table(columns), path, **options)
    return path


NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("arrow", "type_", "cells", "values"),
    [
        (pa.int8(), INTEGER, [1, None, -5], [1, None, -5]),
        (pa.uint32(), BIGINT, [2**32 - 1], [2**32 - 1]),
        (pa.int64(), DOUBLE, [3, None], [3.0, None]),
        (pa.int64(), decimal(5, 2), [3, -999], [Decimal("3.00"), Decimal("-999.00")]),
        (pa.int64(), TIMESTAMP, [1_000_000], [datetime(1970, 1, 1, 0, 0, 1)]),
        (pa.float32(), DOUBLE, [1.5, None, float("inf")], [1.5, None, float("inf")]),
        (pa.float64(), BIGINT, [5.0, None, 2.0**60], [5, None, 2**60]),
        (pa.float64(), decimal(5, 2), [2.5], [Decimal("2.50")]),
        (pa.decimal128(7, 2), decimal(5, 2), [Decimal("2.50"), None], [Decimal("2.50"), None]),
        (pa.decimal128(7, 3), decimal(5, 2), [Decimal("2.505"), None], [Decimal("2.51"), None]),
        (pa.decimal128(7, 3), DOUBLE, [Decimal("2.505")], [2.505]),
        (pa.timestamp("s"), TIMESTAMP, [NOON, None], [NOON, None]),
        (pa.timestamp("ms"), TIMESTAMP, [NOON], [NOON]),
        (pa.timestamp("ns"), TIMESTAMP, [NOON, None], [NOON, None]),
        (pa.timestamp("us", "UTC"), TIMESTAMP, [NOON], [NOON]),
        (pa.date32(), TIMESTAMP, [date(2026, 1, 1), None], [datetime(2026, 1, 1), None]),
        (pa.bool_(), BOOLEAN, [True, False, None], [True, False, None]),
        (pa.string(), VARCHAR, ["河", "", None], ["河", "", None]),
        (pa.large_string(), VARCHAR, ["x", None], ["x", None]),
        (pa.dictionary(pa.int32(), pa.string()), VARCHAR, ["x", None, "x"], ["x", None, "x"]),
        (pa.string(), INTEGER, ["5", None, " -7 "], [5, None, -7]),
        (pa.null(), INTEGER, [None], [None]),
        (pa.null(), VARCHAR, [None], [None]),
    ],
    ids=str,
)
def test_columns_of_other_widths_and_units_are_read(
    tmp_path: Path, arrow: pa.DataType, type_: Type, cells: list[object], values: list[object]
) -> None:
    path = write(tmp_path, {"v": pa.array(cells, arrow)})
    read = read_path(path, schema_of(v=type_))
    assert [row[0] for row in read.rows] == values
    assert read.dead == []


@pytest.mark.parametrize(
    ("arrow", "type_", "cells"),
    [
        (pa.int64(), INTEGER, [2**31]),
        (pa.uint64(), BIGINT, [2**63]),
        (pa.float64(), INTEGER, [1.5, float("nan"), 3e9]),
        (pa.int64(), decimal(5, 2), [1000, -1000]),
        (pa.decimal128(30, 2), decimal(5, 2), [Decimal(1000), Decimal(10**26)]),
        (pa.string(), INTEGER, ["x", ""]),
        (pa.timestamp("ms"), TIMESTAMP, [2**60]),
    ],
    ids=str,
)
def test_values_that_do_not_fit_go_to_the_dead_letter(
    tmp_path: Path, arrow: pa.DataType, type_: Type, cells: list[object]
) -> None:
    path = write(tmp_path, {"v": pa.array(cells, arrow), "n": pa.array(range(len(cells)))})
    read = read_path(path, schema_of(v=type_))
    assert read.rows == []
    assert [line for line, _, _ in read.dead] == [*range(1, len(cells) + 1)]
    assert all(reason.startswith("bad value: column v is not a") for _, reason, _ in read.dead)


@pytest.mark.parametrize(
    ("arrow", "type_"),
    [(pa.bool_(), INTEGER), (pa.int64(), VARCHAR), (pa.int64(), BOOLEAN), (pa.timestamp("us"), BIGINT)],
    ids=str,
)
def test_a_column_that_can_never_be_of_its_type_is_an_error(
    tmp_path: Path, arrow: pa.DataType, type_: Type
) -> None:
    path = write(tmp_path, {"v": pa.array([], arrow)})
    with pytest.raises(DataError, match=r"s: column 'v' of .*s\.parquet is .*, which no .* is read from"):
        read_path(path, schema_of(v=type_))


def test_lines_are_row_numbers_and_raw_text_is_json(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"A": pa.array([1, 2**40, 3]), "ts": pa.array([5, 6, None]), "t": pa.array(["x", "é", None])},
    )
    read = read_path(path, schema_of(a=INTEGER, t=VARCHAR, ts=BIGINT), timestamp=2)
    assert (read.rows, read.lines) == ([(1, "x", 5)], [1])
    assert read.dead == [
        (2, f"bad value: column a is not an INTEGER: {2**40}", f'{{"a": {2**40}, "ts": 6, "t": "é"}}'),
        (3, "bad timestamp: column ts is NULL", '{"a": 3, "ts": null, "t": null}'),
    ]


def test_a_relations_diff_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"ts": pa.array([1, 2, 3, 4]), "diff": pa.array([1, -1, None, 2], pa.int8())})
    read = read_path(path, schema_of(ts=BIGINT), timestamp=0, is_relation=True)
    assert (read.rows, read.diffs) == ([(1,), (2,)], [1, -1])
    assert [line for line, _, _ in read.dead] == [3, 4]


def test_reading_goes_on_from_any_chunks_end(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder, {"a": pa.array(range(10))}, "1.parquet", row_group_size=4)
    write(folder, {"a": pa.array([10, 2**40, 12])}, "2.parquet")
    schema = schema_of(a=INTEGER)
    source = open_source(Connector("parquet", (("path", "parts"),)), tmp_path, "s", schema, chunk_rows=3)
    chunks = list(source.chunks())
    whole = collect(chunks, schema)
    assert [row[0] for row in whole.rows] == [*range(11), 12]
    assert whole.lines == [*range(1, 11), 1, 3]
    assert whole.dead[0][:2] == (2, f"bad value: column a is not an INTEGER: {2**40} (2.parquet)")
    for cut, chunk in enumerate(chunks, 1):
        first, rest = collect(chunks[:cut], schema), collect(source.chunks(chunk.end), schema)
        assert first.then(rest) == whole


def test_missing_and_broken_files(tmp_path: Path) -> None:
    schema = schema_of(a=INTEGER)
    with pytest.raises(DataError, match="no column 'a'; its columns are: b"):
        read_path(write(tmp_path, {"b": pa.array([1])}), schema)
    (tmp_path / "s.parquet").write_text("a\n1\n")
    with pytest.raises(DataError, match="is not a Parquet file"):
        read_path(tmp_path / "s.parquet", schema)
    with pytest.raises(DataError, match="no file"):
        read_path(tmp_path / "gone.parquet", schema)


def test_a_file_without_rows(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": pa.array([], pa.int32()), "t": pa.array([], pa.string())})
    assert read_path(path, schema_of(a=INTEGER, t=VARCHAR)) == ([], [], [], [])


@pytest.mark.parametrize(("arrow", "type_"), [(pa.int32(), BIGINT), (pa.timestamp("ns"), TIMESTAMP)], ids=str)
def test_the_time_columns_type_tells_the_times_type(tmp_path: Path, arrow: pa.DataType, type_: Type) -> None:
    path = write(tmp_path, {"ts": pa.array([None, 1], arrow)})
    assert sniffer(tmp_path)(Connector("parquet", (("path", path.name),)), "ts") == type_
