"""What sinks write, and how they are cut back."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.connect.chunk import DeadLetter
from kasen.connect.csv.sink import CsvSink
from kasen.connect.dead_letter import DeadLetterFile
from kasen.connect.decode import output_schema
from kasen.connect.json.sink import JsonSink
from kasen.connect.memory.sink import MemorySink
from kasen.connect.parquet.sink import ParquetSink
from kasen.connect.sink import Sink
from kasen.errors import DataError
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Schema, decimal
from tests.connect.reading import read_path, schema_of

ALL = schema_of(
    f=BOOLEAN, i=INTEGER, l=BIGINT, x=DOUBLE, p=decimal(18, 7), q=decimal(3, 0), t=VARCHAR, w=TIMESTAMP
)
A = schema_of(a=INTEGER)


def table_of(schema: Schema, *rows: tuple[Any, ...], time: Any = BIGINT) -> pa.Table:
    """Rows of ts, seq, tick, diff and the schema's columns."""
    columns = list(zip(*rows, strict=True)) or [()] * (4 + len(schema))
    arrow = output_schema(schema, time)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)], schema=arrow
    )


def numbers(first: int, count: int) -> pa.Table:
    return table_of(A, *((number, 0, 0, 1, number) for number in range(first, first + count)))


def test_csv_is_written_as_agreed(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "q.csv", output_schema(ALL, TIMESTAMP))
    sink.write(
        table_of(
            ALL,
            (0, 0, 0, 1, True, -5, 2**63 - 1, 2.0, Decimal("0.0000001"), Decimal(7), "plain", 1_500_000),
            (1_000_000, 2, 3, -1, False, 0, 0, 1e16, Decimal("-12.5"), Decimal(-7), "", -1),
            (-1, 0, 0, 1, None, None, None, None, None, None, None, None),
            (0, 0, 0, 1, None, 1, 1, math.nan, Decimal(0), Decimal(0), 'a,"b"\nc', 0),
            (0, 0, 0, 1, None, 1, 1, -math.inf, None, None, " blank", 253_402_300_799_999_999),
            (0, 0, 0, 1, None, 1, 1, 0.1, None, None, "河川", -62_135_596_800_000_000),
            time=TIMESTAMP,
        )
    )
    sink.close()
    assert (tmp_path / "q.csv").read_bytes().decode() == (
        "ts,seq,tick,diff,f,i,l,x,p,q,t,w\n"
        "1970-01-01 00:00:00,0,0,1,true,-5,9223372036854775807,2.0,0.0000001,7,plain,"
        "1970-01-01 00:00:01.500000\n"
        '1970-01-01 00:00:01,2,3,-1,false,0,0,1e+16,-12.5000000,-7,"",1969-12-31 23:59:59.999999\n'
        "1969-12-31 23:59:59.999999,0,0,1,,,,,,,,\n"
        '1970-01-01 00:00:00,0,0,1,,1,1,NaN,0.0000000,0,"a,""b""\nc",1970-01-01 00:00:00\n'
        '1970-01-01 00:00:00,0,0,1,,1,1,-inf,,," blank",9999-12-31 23:59:59.999999\n'
        "1970-01-01 00:00:00,0,0,1,,1,1,0.1,,,河川,0001-01-01 00:00:00\n"
    )


def test_json_is_written_as_lines(tmp_path: Path) -> None:
    sink = JsonSink(tmp_path / "q.json", output_schema(ALL, BIGINT))
    sink.write(
        table_of(
            ALL,
            (1, 0, 0, 1, True, 5, 6, 2.0, Decimal("0.0000001"), Decimal(7), 'a "b"\n河', 0),
            (2, 0, 0, -1, None, None, None, math.nan, None, None, "", None),
        )
    )
    sink.close()
    first, second = (tmp_path / "q.json").read_text(encoding="utf-8").splitlines()
    assert first == (
        '{"ts": 1, "seq": 0, "tick": 0, "diff": 1, "f": true, "i": 5, "l": 6, "x": 2.0, "p": 0.0000001,'
        ' "q": 7, "t": "a \\"b\\"\\n河", "w": "1970-01-01 00:00:00"}'
    )
    assert list(json.loads(second).values()) == [2, 0, 0, -1, None, None, None, "NaN", None, None, "", None]


def random_rows(seed: int, count: int) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    texts = ["", " ", "x", "河\n川", 'q"', "a,b", "\r\n", "'", "NULL", "é", "\\", "\t"]

    def some(make: Callable[[], object]) -> object:
        return None if rng.random() < 0.2 else make()

    return [
        (
            number,
            0,
            0,
            rng.choice([1, -1]),
            some(lambda: rng.random() < 0.5),
            some(lambda: rng.randrange(-(2**31), 2**31)),
            some(lambda: rng.randrange(-(2**63), 2**63)),
            some(lambda: rng.choice([rng.gauss(0, 1e9), math.inf, 0.0, rng.random(), 1e-300])),
            some(lambda: Decimal(rng.randrange(-(10**18) + 1, 10**18)).scaleb(-7)),
            some(lambda: Decimal(rng.randrange(-999, 1000))),
            some(lambda: rng.choice(texts)),
            some(lambda: rng.randrange(-(10**16), 10**17)),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("sink_type", "name"), [(CsvSink, "q.csv"), (JsonSink, "q.json"), (ParquetSink, "q.parquet")]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_written_is_read_back(tmp_path: Path, sink_type: Any, name: str, seed: int) -> None:
    table = table_of(ALL, *random_rows(seed, 500))
    sink: Sink = sink_type(tmp_path / name, table.schema)
    for start in range(0, 500, 90):
        sink.write(table.slice(start, 90))
        sink.flush()
    sink.close()
    schema = Schema((*schema_of(ts=BIGINT, diff=BIGINT), *ALL))
    read = read_path(tmp_path / name, schema, timestamp=0, is_relation=True)
    assert read.dead == [], f"seed {seed}"
    columns = table.drop_columns(["seq", "tick"]).columns
    assert read.rows == list(zip(*(column.to_pylist() for column in columns), strict=True)), f"seed {seed}"
    assert read.diffs == table.column("diff").to_pylist()


SINKS: list[tuple[str, Callable[..., Any]]] = [("csv", CsvSink), ("json", JsonSink), ("parquet", ParquetSink)]


@pytest.mark.parametrize(("suffix", "sink_type"), SINKS)
def test_a_sink_is_cut_back_on_recovery(tmp_path: Path, suffix: str, sink_type: Callable[..., Any]) -> None:
    path = tmp_path / "new" / f"q.{suffix}"
    schema = output_schema(A, BIGINT)
    sink = sink_type(path, schema)
    sink.write(numbers(0, 3))
    sink.flush(sync=True)
    committed = sink.position()
    sink.write(numbers(3, 4))
    sink.close()
    assert sink.position() > committed  # written, but not recorded: here it crashes
    again = sink_type(path, schema, committed)
    assert again.position() == committed
    again.write(numbers(3, 2))
    again.close()
    assert read_path(path, A).rows == [(0,), (1,), (2,), (3,), (4,)]


@pytest.mark.parametrize(("suffix", "sink_type"), SINKS)
def test_a_sink_that_begins_anew_leaves_nothing_of_an_older_run(
    tmp_path: Path, suffix: str, sink_type: Callable[..., Any]
) -> None:
    path = tmp_path / f"q.{suffix}"
    for first in (0, 10):
        sink = sink_type(path, output_schema(A, BIGINT))
        sink.write(numbers(first, 2))
        sink.flush()
        sink.write(numbers(first + 2, 1))
        sink.close()
    assert read_path(path, A).rows == [(10,), (11,), (12,)]


@pytest.mark.parametrize(("suffix", "sink_type"), SINKS)
def test_a_sink_that_lost_data_is_not_resumed(
    tmp_path: Path, suffix: str, sink_type: Callable[..., Any]
) -> None:
    path = tmp_path / f"q.{suffix}"
    sink_type(path, output_schema(A, BIGINT)).close()
    with pytest.raises(DataError, match="it was changed or replaced"):
        sink_type(path, output_schema(A, BIGINT), 10_000)


def test_truncating_to_nothing_keeps_the_header(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "q.csv", output_schema(A, BIGINT))
    begin = sink.position()
    sink.write(numbers(0, 1))
    sink.truncate(0)
    assert sink.position() == begin
    sink.close()
    assert (tmp_path / "q.csv").read_text() == "ts,seq,tick,diff,a\n"


def test_an_empty_table_writes_nothing(tmp_path: Path) -> None:
    for suffix, sink_type in SINKS:
        sink = sink_type(tmp_path / f"q.{suffix}", output_schema(A, BIGINT))
        begin = sink.position()
        sink.write(numbers(0, 0))
        sink.close()
        assert sink.position() == begin


def test_slices_and_many_rows_are_written_whole(tmp_path: Path) -> None:
    table = table_of(ALL, *random_rows(3, 50))
    whole, sliced = CsvSink(tmp_path / "w.csv", table.schema), CsvSink(tmp_path / "s.csv", table.schema)
    whole.write(table)
    for start in range(0, 50, 7):
        sliced.write(table.slice(start, 7))
    whole.close()
    sliced.close()
    assert (tmp_path / "w.csv").read_bytes() == (tmp_path / "s.csv").read_bytes()
    many = CsvSink(tmp_path / "m.csv", output_schema(A, BIGINT))
    many.write(numbers(0, 300_000))
    many.close()
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 300_001


def test_readers_see_whole_parquet_files_only(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "q", output_schema(A, BIGINT))
    sink.write(numbers(0, 100_000))
    assert list((tmp_path / "q").glob("*.parquet")) == []
    sink.flush(sync=True)
    sink.flush()
    assert [file.name for file in (tmp_path / "q").glob("*.parquet")] == ["part-00000000.parquet"]


def test_parquet_has_differences_of_near_integers_and_dictionaries_of_the_rest(tmp_path: Path) -> None:
    schema = schema_of(near=INTEGER, gaps=BIGINT, far=BIGINT, few=INTEGER, none=BIGINT, x=DOUBLE)
    rows = [
        (at, 0, 0, 1, at % 1000, None if at % 3 else -at, at << 40, at % 5, None, at / 7)
        for at in range(100_000)
    ]
    written = table_of(schema, *rows)
    sink = ParquetSink(tmp_path / "q", written.schema)
    sink.write(written)
    sink.close()
    (file,) = (tmp_path / "q").iterdir()
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    differences = [each.path_in_schema for each in columns if "DELTA_BINARY_PACKED" in each.encodings]
    assert differences == ["ts", "near", "gaps"]
    assert all(
        "RLE_DICTIONARY" in each.encodings for each in columns if each.path_in_schema in ("far", "few")
    )
    assert pq.read_table(file).equals(written)


def test_parquet_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("a file")
    with pytest.raises(DataError, match="written as a folder of files"):
        ParquetSink(tmp_path / "q", output_schema(A, BIGINT))


def test_a_path_that_cannot_be_written_is_the_datas_fault(tmp_path: Path) -> None:
    (tmp_path / "q.csv").mkdir()
    with pytest.raises(DataError, match="cannot write"):
        CsvSink(tmp_path / "q.csv", output_schema(A, BIGINT))
    with pytest.raises(DataError, match="cannot write"):
        CsvSink(tmp_path / "gone.csv", output_schema(A, BIGINT), resume=5)


def test_a_parquet_file_that_is_gone_is_missed_whatever_was_written_behind_it(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "q", output_schema(A, BIGINT))
    for number in range(3):
        sink.write(numbers(number, 1))
        sink.flush()
    sink.close()
    (tmp_path / "q" / "part-00000000.parquet").unlink()
    with pytest.raises(DataError, match=r"part-00000000\.parquet is missing"):
        ParquetSink(tmp_path / "q", output_schema(A, BIGINT), resume=2)


@pytest.mark.parametrize(("suffix", "sink_type"), SINKS)
def test_a_sink_that_is_resumed_has_the_checksum_of_one_that_never_stopped(
    tmp_path: Path, suffix: str, sink_type: Callable[..., Any]
) -> None:
    whole = sink_type(tmp_path / f"whole.{suffix}", output_schema(A, BIGINT))
    part = sink_type(tmp_path / f"part.{suffix}", output_schema(A, BIGINT))
    for sink in (whole, part):
        sink.write(numbers(0, 5))
        sink.flush()
    committed = part.position()
    part.write(numbers(100, 5))
    part.close()
    part = sink_type(tmp_path / f"part.{suffix}", output_schema(A, BIGINT), committed)
    assert part.checksum() == whole.checksum() != ""
    for sink in (whole, part):
        sink.write(numbers(5, 5))
        sink.flush()
    assert part.checksum() == whole.checksum()
    whole.close()
    part.close()


def test_a_memory_sink_collects_tables() -> None:
    sink = MemorySink(output_schema(A, BIGINT))
    assert len(sink.table()) == 0
    sink.write(numbers(0, 2))
    sink.write(numbers(2, 2))
    assert sink.position() == 4
    sink.truncate(3)
    sink.write(numbers(9, 1))
    assert sink.table().column("a").to_pylist() == [0, 1, 2, 9]


def test_dead_letters_are_a_csv_file(tmp_path: Path) -> None:
    file = DeadLetterFile(tmp_path)
    file.write([DeadLetter("s", 3, "bad value: column a is not an INTEGER: x", 'x,"y\nz"')])
    file.flush(sync=True)
    committed = file.position()
    file.write([DeadLetter("s", 4, "late: 1 is below 2", "")])
    file.close()
    text = (
        "stream,line,reason,raw\n"
        's,3,bad value: column a is not an INTEGER: x,"x,""y\nz"""\n'
        's,4,late: 1 is below 2,""\n'
    )
    assert (tmp_path / "dead_letter.csv").read_text() == text
    assert file.count == 2
    DeadLetterFile(tmp_path, committed).close()
    assert (tmp_path / "dead_letter.csv").stat().st_size == committed
    DeadLetterFile(tmp_path).close()
    assert (tmp_path / "dead_letter.csv").read_text() == "stream,line,reason,raw\n"
