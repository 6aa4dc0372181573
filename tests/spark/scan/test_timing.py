"""Streams without times of their own, and silent ones: what a run on Spark takes from the wall clock."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from kasen.cli import load
from kasen.errors import KasenError
from kasen.plan.physical import Input, plan_app
from kasen.runtime.output.outputs import OnAnswer
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from kasen.spark.scan.timing import Timing
from kasen.spark.state.state_files import Files

APP = """
    REGISTER STREAM s (k INTEGER) FROM 'csv' OPTIONS (path 's');
    REGISTER QUERY q AS ISTREAM(SELECT k, COUNT(*) AS n FROM s GROUP BY k);
"""
IDLE = """
    REGISTER STREAM s (k INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's');
    REGISTER STREAM r (k INTEGER) TIMESTAMP BY ts IDLE 1 MICROSECOND FROM 'csv' OPTIONS (path 'r');
    REGISTER QUERY q AS RSTREAM(SELECT k FROM s [NOW] UNION ALL SELECT k FROM r [NOW]);
"""
#: Of three epochs with 1, 2 and 1 each.
COUNTS = [["1", "2"], ["2", "1"], ["1", "4"], ["2", "2"], ["1", "6"], ["2", "3"]]


def write(file: Path, rows: str, age: float) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(rows)
    os.utime(file, (time.time() - age,) * 2)


def app(folder: Path, text: str) -> Path:
    (folder / "app.cql").write_text(text)
    return folder / "app.cql"


def inputs_of(folder: Path, text: str) -> tuple[Input, ...]:
    return load(app(folder, text)).inputs


def test_an_epoch_that_is_done_again_has_the_same_stamp(tmp_path: Path) -> None:
    write(tmp_path / "s" / "0.csv", "k\n1\n", 0)
    inputs = inputs_of(tmp_path, APP)
    files = Files(str(tmp_path / "state"))
    times = iter([50, 70, 60, 200, 300])
    first = Timing(inputs, files, lambda: next(times))
    assert [first.begin(0), first.begin(1)] == [50, 70]
    # Another process does epoch 1 again, and its clock is behind.
    again = Timing(inputs, files, lambda: next(times))
    assert [again.begin(1), again.begin(2)] == [70, 200]
    assert again.begin(2) == 200
    assert len(files.list("stamps")) == 2


def test_a_clock_that_is_set_back_does_not_set_time_back(tmp_path: Path) -> None:
    write(tmp_path / "s" / "0.csv", "k\n1\n", 0)
    times = iter([50, 40])
    timing = Timing(inputs_of(tmp_path, APP), None, lambda: next(times))
    assert [timing.begin(0), timing.begin(1)] == [50, 51]


def test_a_stream_is_silent_when_it_was_not_heard_for_so_long(tmp_path: Path) -> None:
    for name in "sr":
        write(tmp_path / name / "0.csv", "ts,k\n1,1\n", 0)
    inputs = inputs_of(tmp_path, IDLE.replace("1 MICROSECOND", "2 SECOND"))
    ticks = iter([0.0, 1.9, 2.0, 3.0, 4.9])
    timing = Timing(inputs, None, ticks=lambda: next(ticks))
    assert list(timing.silent()) == []
    assert list(timing.silent()) == ["r"]
    timing.hear("r")
    assert list(timing.silent()) == []


def run(
    folder: Path, text: str, place: OperatorPlace, on_answer: OnAnswer = lambda _: None, **more: Any
) -> SparkRun:
    shards = 2 if place is OperatorPlace.executors else None
    plan = plan_app(load(app(folder, text)))
    options = SparkOptions(folder, place=place, shards=shards, files_per_epoch=1, **more)
    return SparkRun(plan, options, on_answer=on_answer)


@pytest.mark.spark
@pytest.mark.parametrize("place", OperatorPlace)
def test_rows_without_a_time_arrive_when_their_epoch_begins(place: OperatorPlace, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "s" / f"{number}.csv", "k\n1\n2\n1\n", 10 - number)
    before = time.time_ns() // 1000
    made = run(tmp_path, APP, place, out=tmp_path / "out", checkpoint=tmp_path / "ck")
    made.run()
    lines = (tmp_path / "out" / "q.csv").read_text().splitlines()
    assert lines[0] == "ts,seq,tick,diff,k,n"
    cells = [line.split(",") for line in lines[1:]]
    assert [(int(cell[4]), int(cell[5])) for cell in cells] == [
        (1, 2),
        (2, 1),
        (1, 4),
        (2, 2),
        (1, 6),
        (2, 3),
    ]
    stamps = list(dict.fromkeys(cell[0] for cell in cells))
    assert len(stamps) == 3
    assert stamps == sorted(stamps)
    noted = [int(file.read_text().split()[-1]) for file in (tmp_path / "ck/state/stamps").iterdir()]
    assert before <= min(noted)


@pytest.mark.spark
@pytest.mark.parametrize("place", OperatorPlace)
def test_an_arrival_stream_that_breaks_off_goes_on_with_the_same_stamp(
    place: OperatorPlace, tmp_path: Path
) -> None:
    for number in range(3):
        write(tmp_path / "s" / f"{number}.csv", "k\n1\n2\n1\n", 10 - number)
    made = run(tmp_path, APP, place, out=tmp_path / "out", checkpoint=tmp_path / "ck")
    commit = made._commit

    def broken(epoch: int) -> None:
        if epoch == 1:
            raise KasenError("a crash before the commit")
        commit(epoch)

    made._commit = broken  # type: ignore[method-assign]
    with pytest.raises(KasenError, match="crash"):
        made.run()
    told = {file.name: file.read_text() for file in (tmp_path / "ck/state/stamps").iterdir()}
    assert sorted(told) == ["000000000000", "000000000001"]
    made = run(tmp_path, APP, place, out=tmp_path / "out", checkpoint=tmp_path / "ck")
    made.run()
    left = {file.name: file.read_text() for file in (tmp_path / "ck/state/stamps").iterdir()}
    assert left["000000000001"] == told["000000000001"]
    lines = (tmp_path / "out" / "q.csv").read_text().splitlines()[1:]
    assert [line.split(",")[4:] for line in lines] == COUNTS


@pytest.mark.spark
@pytest.mark.parametrize("place", OperatorPlace)
def test_nobody_waits_for_an_idle_stream(place: OperatorPlace, tmp_path: Path) -> None:
    write(tmp_path / "r" / "0.csv", "ts,k\n1,7\n", 10)
    for number in range(3):
        write(tmp_path / "s" / f"{number}.csv", f"ts,k\n{number * 10},{number}\n", 10 - number)
    reached: list[int] = []
    runs: list[SparkRun] = []
    runs.append(run(tmp_path, IDLE, place, on_answer=lambda _: reached.append(runs[0].pipeline.frontier)))
    runs[0].run()
    # r has nothing more after its first row; s goes on to 20 all the same.
    assert 20 in reached
