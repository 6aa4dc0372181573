"""Files by the numbers that Spark gives their names."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import functions as F

from kasen.cql.bind.app import bind_text
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.scan.file_names import FileNames, code, code_of
from kasen.spark.session import session

NAMES = [
    "a.csv",
    "part-00000-6f1c1f0e-9a39-c000.snappy.parquet",
    "Ü.json",
    "河川 1%.csv",
    "p^`|<>#.csv",
]


def test_a_name_has_the_number_that_spark_gives_it(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("x")
    read = session().read.text(str(tmp_path)).select(code_of(F.col("_metadata.file_name")))
    assert sorted(row[0] for row in read.collect()) == sorted(map(code, NAMES))
    assert [row[0] for row in session().range(1).select(code_of(F.lit(""))).collect()] == [code("")]


def test_files_are_found_by_number_also_those_that_come_later(tmp_path: Path) -> None:
    stream = "REGISTER STREAM s (t BIGINT) TIMESTAMP BY t FROM 'csv' OPTIONS (path 's');"
    names = FileNames(bind_text(stream, tmp_path).inputs, tmp_path)
    (tmp_path / "s").mkdir()
    for name in NAMES:
        (tmp_path / "s" / name).write_text("x" * 100)
        assert names.find("s", code(name)) == (name, 0)
        assert names.find("s", code(name) ^ 64) == (name, 64)
    assert names.find("s", code("")) == ("", 0)
    with pytest.raises(DataError, match="a file that was read is not in"):
        names.find("s", code("gone.csv"))


def test_a_folder_is_looked_at_once_for_all_the_files_that_came(tmp_path: Path) -> None:
    stream = "REGISTER STREAM s (t BIGINT) TIMESTAMP BY t FROM 'csv' OPTIONS (path 's');"
    names = FileNames(bind_text(stream, tmp_path).inputs, tmp_path)
    (tmp_path / "s").mkdir()
    there = [f"{number}.csv" for number in range(50)]
    for name in there:
        (tmp_path / "s" / name).write_text("t\n")
    with patch.object(Path, "iterdir", autospec=True, side_effect=Path.iterdir) as looked:
        assert [names.find("s", code(name)) for name in there] == [(name, 0) for name in there]
    assert looked.call_count == 1


def test_rows_of_files_with_odd_names_are_read_and_refused_as_others(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    names = ["a b.csv", "c%20d.csv", "p^#<>.csv", "ü.csv"]
    for number, name in enumerate(names):
        (tmp_path / "s" / name).write_text(f"t,v\n{number},{number}\nx,9\n{number - 1},7\n")
    text = (
        "REGISTER STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t FROM 'csv' OPTIONS (path 's');"
        "REGISTER QUERY q AS ISTREAM(SELECT v FROM s [NOW]) INTO 'csv' OPTIONS (path 'q.csv');"
    )
    run = SparkRun(plan_app(bind_text(text, tmp_path)), SparkOptions(tmp_path))
    run.run()
    rows = (tmp_path / "q.csv").read_text().splitlines()[1:]
    assert [row.split(",")[-1] for row in rows] == ["0", "1", "2", "3"]
    letters = sorted(
        (name, letter[3]) for letter in run.outputs.dead_letters for name in names if name in letter[2]
    )
    assert letters == sorted((name, raw) for name in names for raw in ("x,9", f"{names.index(name) - 1},7"))


def test_a_name_that_spark_takes_for_a_pattern_is_refused(tmp_path: Path) -> None:
    stream = "REGISTER STREAM s (t BIGINT) TIMESTAMP BY t FROM 'csv' OPTIONS (path 's');"
    names = FileNames(bind_text(stream, tmp_path).inputs, tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "p[1].csv").touch()
    with pytest.raises(DataError, match=r"rename it"):
        names.find("s", code("p[1].csv"))
