"""What waits because one stream is ahead of another has a limit: the one ahead is slowed before."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import ResourceError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from kasen.spark.scan.admission import StreamThrottle

APP = """
REGISTER STREAM fast (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'csv'
    OPTIONS (path 'fast', maxFilesPerTrigger '12');
REGISTER STREAM slow (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'csv'
    OPTIONS (path 'slow', maxFilesPerTrigger '3');
REGISTER QUERY q AS SELECT fast.k, slow.ts FROM fast [ROWS 9], slow [ROWS 9] WHERE fast.k = slow.k;
"""
TUPLE = 8 * 5


def test_what_waits_below_half_the_limit_may_wait(tmp_path: Path) -> None:
    admission = StreamThrottle(bind_text(APP, tmp_path), most=TUPLE * 2000)
    assert not admission.check({"fast": 1000, "slow": 0})


def test_beyond_that_the_stream_ahead_is_slowed_once(tmp_path: Path) -> None:
    app = bind_text(APP, tmp_path)
    admission = StreamThrottle(app, most=TUPLE * 2000)
    assert admission.check({"fast": 1001, "slow": 0})
    assert not admission.check({"fast": 1002, "slow": 0})
    fast, slow = app.inputs
    assert admission.as_read(fast).connector.option("maxfilespertrigger") == "1"
    assert admission.as_read(slow) is slow


def test_a_stream_that_is_too_far_ahead_is_named(tmp_path: Path) -> None:
    admission = StreamThrottle(bind_text(APP, tmp_path), most=TUPLE * 1000)
    with pytest.raises(ResourceError, match="1,001 tuples of fast wait for slow") as caught:
        admission.check({"fast": 1001, "slow": 0})
    assert "read less of fast at once" in str(caught.value)


def write(folder: Path, name: str, files: int, rows: int) -> None:
    (folder / name).mkdir()
    for number in range(files):
        lines = [f"{row % 7},{number * rows + row}\n" for row in range(rows)]
        file = folder / name / f"{number:03}.csv"
        file.write_text("k,ts\n" + "".join(lines))
        os.utime(file, (1_000_000 + number,) * 2)  # Spark takes files in the order of their times


@pytest.mark.spark
@pytest.mark.parametrize(
    "place", [OperatorPlace.driver, pytest.param(OperatorPlace.executors, marks=pytest.mark.soak)]
)
def test_a_stream_ahead_is_slowed_and_the_answers_are_the_same(place: OperatorPlace, tmp_path: Path) -> None:
    """An epoch brings 900 more to wait, so unslowed there would be 4,500 in the fifth."""
    write(tmp_path, "fast", files=72, rows=100)
    write(tmp_path, "slow", files=72, rows=100)
    plan = plan_app(bind_text(APP, tmp_path))
    same = bind_text(re.sub(", maxFilesPerTrigger '[0-9]+'", "", APP), tmp_path)
    LocalRun(plan_app(same), Options(tmp_path, tmp_path / "local")).run()
    run = SparkRun(plan, SparkOptions(tmp_path, tmp_path / "spark", place=place, shards=2))
    run.admission.most = TUPLE * 4000
    waited: list[int] = []
    run.outputs._on_progress = lambda progress: waited.append(progress.waiting)
    run.run()
    assert run.admission.slowed == ["fast"]
    assert 2000 < max(waited) < 4000
    assert (tmp_path / "spark" / "q.csv").read_text() == (tmp_path / "local" / "q.csv").read_text()
