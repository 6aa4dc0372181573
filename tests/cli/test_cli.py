"""The command line: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APP = """REGISTER STREAM s (a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
REGISTER QUERY q AS SELECT a, COUNT(*) AS n FROM s [ROWS 2] GROUP BY a;
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "s.csv").write_text("ts,a\n1,5\n2,5\n3,6\nx,7\n")
    (tmp_path / "app.cql").write_text(APP)
    return tmp_path / "app.cql"


def kasen(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from kasen.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_check_accepts_a_right_app(app: Path) -> None:
    done = kasen("check", app)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 inputs, 1 queries: all right" in done.stdout


def test_check_shows_a_wrong_query_and_exits_with_2(app: Path) -> None:
    app.write_text(APP.replace("SELECT a,", "SELECT b,"))
    done = kasen("check", app)
    assert done.returncode == 2
    assert f"--> {app}:2:28" in done.stderr
    assert "unknown column 'b'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_app_or_input_exits_with_3(app: Path) -> None:
    assert kasen("check", app.parent / "no.cql").returncode == 3
    (app.parent / "s.csv").unlink()
    done = kasen("run", app, "--engine", "local", "--out", app.parent / "out")
    assert done.returncode == 3
    assert "s.csv" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "local", "--checkpoint", "hdfs://host/ck"], "a folder of this machine, not an address"),
        (["--engine", "local", "--conf", "a=b"], "--conf are for --engine spark"),
        (["--conf", "spark.ui.enabled"], "--conf spark.ui.enabled: write KEY=VALUE"),
    ],
)
def test_options_that_cannot_be_are_told_before_anything_starts(
    options: list[str], message: str, app: Path
) -> None:
    done = kasen("run", app, *options)
    assert done.returncode == 3
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_prints_the_plan(app: Path) -> None:
    done = kasen("explain", app, "--engine", "local")
    assert done.returncode == 0
    assert (
        "  HashAggregate: COUNT(*); group by: a; rows leave: in the order in which they came" in done.stdout
    )


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ([], "Spark, operators in the driver"),
        (["--engine", "local"], "local"),
        (["--place", "executors"], "Spark, operators on executors"),
        (["--master", "spark://host:7077"], "Spark, operators on executors"),
        (["--master", "spark://host:7077", "--place", "driver"], "Spark, operators in the driver"),
    ],
)
def test_explain_prints_the_plan_of_the_engine_and_placement_asked_for(
    options: list[str], engine: str, app: Path
) -> None:
    done = kasen("explain", app, *options)
    assert done.stdout.splitlines()[0] == f"engine: {engine}", done.stderr


def test_run_writes_a_file_a_query_and_the_dead_letter(app: Path) -> None:
    out = app.parent / "out"
    done = kasen("run", app, "--engine", "local", "--out", out, "--batch", "1")
    assert done.returncode == 0, done.stderr
    assert (out / "q.csv").read_text() == (
        "ts,seq,tick,diff,a,n\n1,0,0,1,5,1\n2,0,0,-1,5,1\n2,0,0,1,5,2\n3,0,0,1,5,1\n3,0,0,-1,5,2\n3,0,0,1,6,1\n"
    )
    letters = (out / "dead_letter.csv").read_text().splitlines()
    assert letters[0] == "stream,line,reason,raw"
    assert letters[1].startswith("s,5,bad timestamp")


def test_strict_turns_refused_rows_into_exit_code_3(app: Path) -> None:
    done = kasen("run", app, "--engine", "local", "--out", app.parent / "out", "--strict")
    assert done.returncode == 3
    assert "1 rows were refused" in done.stderr
    assert (app.parent / "out" / "q.csv").exists()


def test_run_without_out_shows_tables(app: Path) -> None:
    done = kasen("run", app, "--engine", "local")
    assert done.returncode == 0
    assert "q: 6 changes" in done.stdout


def test_an_answer_is_never_written_over_an_input(app: Path) -> None:
    app.write_text(
        APP.replace("QUERY q AS", "QUERY s AS")
        .replace("STREAM s ", "STREAM t ")
        .replace("FROM s ", "FROM t ")
    )
    before = (app.parent / "s.csv").read_text()
    done = kasen("run", app, "--engine", "local", "--out", app.parent)
    assert done.returncode == 3
    assert "is read from" in done.stderr
    assert (app.parent / "s.csv").read_text() == before


def test_a_folder_that_cannot_be_written_is_an_error_not_a_traceback(app: Path) -> None:
    for option in ("--out", "--checkpoint"):
        done = kasen("run", app, "--engine", "local", option, app.parent / "s.csv")
        assert done.returncode == 3
        assert "Traceback" not in done.stderr
