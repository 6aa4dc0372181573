"""Odd files: what Spark reads of them is what the local engine reads, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace

pytestmark = pytest.mark.spark

Answers = dict[str, str]
STREAM = "REGISTER STREAM s (ts BIGINT, a INTEGER, b VARCHAR) TIMESTAMP BY ts FROM '{}' OPTIONS (path '{}');"
ALL = "REGISTER QUERY q AS ISTREAM(SELECT ts, a, b FROM s);"
TABLE = """
REGISTER STREAM s (ts BIGINT, a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
REGISTER RELATION t (a INTEGER, b VARCHAR) FROM '{}' OPTIONS (path '{}');
REGISTER QUERY q AS ISTREAM(SELECT s.a, b FROM s [NOW], t WHERE s.a = t.a);
"""
CHANGES = """
REGISTER RELATION t (ts BIGINT, k INTEGER) TIMESTAMP BY ts FROM '{}' OPTIONS (path '{}');
REGISTER QUERY q AS SELECT COUNT(*) AS n FROM t;
"""


def outputs(out: Path) -> Answers:
    """Answers, and how many rows of which line were refused."""
    letters = (out / "dead_letter.csv").read_text().splitlines()[1:]
    refused = sorted(",".join(letter.split(",")[:2]) for letter in letters)
    return {"q": (out / "q.csv").read_text(), "refused": "\n".join(refused)}


def local(text: str, folder: Path) -> Answers:
    LocalRun(plan_app(bind_text(text, folder)), Options(folder, folder / "local")).run()
    return outputs(folder / "local")


def on_spark(text: str, folder: Path, place: OperatorPlace = OperatorPlace.driver) -> Answers:
    SparkRun(plan_app(bind_text(text, folder)), SparkOptions(folder, folder / place.value, place=place)).run()
    return outputs(folder / place.value)


def agree(text: str, folder: Path) -> Answers:
    right = local(text, folder)
    for place in OperatorPlace:
        assert on_spark(text, folder, place) == right, place
    return right


@pytest.mark.parametrize(
    "header", ["ts,a,b,x,x,X", "ts,a,b,,,", "ts,A , b,_corrupt,_metadata,`", "c1,c0,_file,b,a,ts"]
)
def test_headers_may_be_anything(header: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(f"{header}\n" + "".join(f"{n},{n},{n},{n},{n},{n}\n" for n in range(3)))
    assert agree(STREAM.format("csv", "s.csv") + ALL, tmp_path)["q"].count("\n") == 4


@pytest.mark.parametrize("other", ["ts,b,a", "a,b,ts", "ts,a,b,c", "ts,a"])
def test_csv_files_of_a_folder_have_the_same_columns(other: str, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "0.csv").write_text("ts,a,b\n1,1,x\n")
    (tmp_path / "s" / "1.csv").write_text(f"{other}\n2,2,2,2\n")
    (tmp_path / "s.csv").write_text("ts,a\n1,1\n")
    for text in (STREAM.format("csv", "s") + ALL, TABLE.format("csv", "s")):
        with pytest.raises(DataError, match=r"1\.csv has the columns .*, others have ts, a, b"):
            on_spark(text, tmp_path)


def test_cells_may_have_line_breaks_if_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text('ts,a,b\n1,1,"two\nlines"\n2,2,b\n3,3,"x ""y"" z"\n4,4,\n')
    stream = STREAM.format("csv", "s.csv").replace("'s.csv')", "'s.csv', multiline 'true')")
    assert '"two\nlines"' in agree(stream + ALL, tmp_path)["q"]
    with pytest.raises(DataError, match="option 'multiline' is 'true' or 'false', not 'yes'"):
        on_spark(stream.replace("'true'", "'yes'") + ALL, tmp_path)


def test_json_has_names_in_any_case_and_bad_bytes_are_bad_rows(tmp_path: Path) -> None:
    rows = [b'{"TS": 1, "A": 5, "b": "x"}', b'{"TS": 2, "A": 6, "b": "caf\xe9"}', b"{'TS': 3}"]
    rows += [b'{"TS": 4, "b": "\\r"}', b'{"TS": 5, "A": "no", "b": "y"}', b'{"TS": 6, "A": null}']
    (tmp_path / "s.json").write_bytes(b"\n".join(rows) + b"\r\n")
    assert agree(STREAM.format("json", "s.json") + ALL, tmp_path)["refused"].count("s,") == 3


TYPES: dict[str, Callable[[], pa.Array]] = {
    "a wide integer": lambda: pa.array([1, 2**40, None], pa.int64()),
    "a narrow integer": lambda: pa.array([1, 2, None], pa.int8()),
    "text": lambda: pa.array(["1", "no", None]),
    "nothing": lambda: pa.nulls(3, pa.int32()),
}


@pytest.mark.parametrize("name", TYPES)
def test_parquet_may_have_other_types_than_declared(name: str, tmp_path: Path) -> None:
    columns = {"ts": pa.array([1, 2, 3], pa.int32()), "a": TYPES[name](), "b": ["x", "y", "z"]}
    (tmp_path / "s").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "s" / "0.parquet")
    agree(STREAM.format("parquet", "s") + ALL, tmp_path)


def test_parquet_decimals_and_doubles(tmp_path: Path) -> None:
    columns = {
        "ts": pa.array([1, 2], pa.int64()),
        "a": pa.array([1, 2], pa.int32()),
        "b": pa.array([Decimal("1.50"), Decimal("12345.25")], pa.decimal128(12, 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    text = STREAM.format("parquet", "s.parquet").replace("b VARCHAR", "b DECIMAL(6, 2)") + ALL
    assert agree(text, tmp_path)["refused"] == "s,2"


def test_a_column_that_parquet_has_not_is_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [1], "a": pa.array([1], pa.int32())}), tmp_path / "s.parquet")
    for run in (local, on_spark):
        with pytest.raises(DataError, match=r"s\.parquet has no column 'b'; its columns are: ts, a"):
            run(STREAM.format("parquet", "s.parquet") + ALL, tmp_path)


def test_what_is_neither_an_insertion_nor_a_deletion_is_refused(tmp_path: Path) -> None:
    diffs = ["1", "1", "2", "x", "-2", "0", "-1", ""]
    rows = [(ts, 7, diff) for ts, diff in enumerate(diffs)]
    (tmp_path / "t.csv").write_text("ts,k,diff\n" + "".join(f"{ts},{k},{d}\n" for ts, k, d in rows))
    assert agree(CHANGES.format("csv", "t.csv"), tmp_path)["refused"].count("t,") == 5
    numbers = [1, 2, 0, -1, None]
    columns = {
        "ts": pa.array(range(5), pa.int64()),
        "k": pa.array([7] * 5, pa.int32()),
        "diff": pa.array(numbers, pa.int64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert agree(CHANGES.format("parquet", "t.parquet"), tmp_path)["refused"].count("t,") == 3
    lines = [f'{{"ts": {ts}, "k": 7, "diff": {diff}}}' for ts, diff in enumerate(["1", "2", "0", "-1"])]
    (tmp_path / "t.json").write_text("\n".join([*lines, '{"ts": 4, "k": 7}']))
    assert agree(CHANGES.format("json", "t.json"), tmp_path)["refused"].count("t,") == 2


@pytest.mark.parametrize(
    ("file", "path", "fault"),
    [
        ("s/k=1/0.csv", "s", "Spark would read .*k=1 instead of the files beside it"),
        ("in{a,b}/0.csv", "in{a,b}", "in its name, which Spark cannot read"),
        ("s/a:b.csv", "s", "a:b.csv has : in its name"),
        ("s/p[1].csv", "s", r"p\[1\].csv has \[ \] in its name"),
        ("_s.csv", "_s.csv", "takes _s.csv for a hidden file"),
    ],
)
def test_names_that_spark_does_not_take_as_they_are_are_refused(
    file: str, path: str, fault: str, tmp_path: Path
) -> None:
    for name in (file, "s/0.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ts,a,b\n1,1,x\n")
    with pytest.raises(DataError, match=fault):
        on_spark(STREAM.format("csv", path) + ALL, tmp_path)


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELECT a AS epoch FROM s", "q: format 'orc' has a column 'epoch' of its own"),
        ("SELECT a FROM s", "q: Spark cannot write 'orcx'"),
    ],
)
def test_what_cannot_be_written_is_told(query: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,a,b\n1,1,x\n")
    format_ = "orc" if "epoch" in query else "orcx"
    text = f"REGISTER QUERY q AS ISTREAM({query}) INTO '{format_}' OPTIONS (path 'out');"
    app = plan_app(bind_text(STREAM.format("csv", "s.csv") + text, tmp_path))
    with pytest.raises(DataError, match=fault):
        SparkRun(app, SparkOptions(tmp_path)).run()
