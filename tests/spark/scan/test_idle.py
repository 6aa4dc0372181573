"""An epoch without data runs no Spark job."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("place", OperatorPlace)
def test_a_stream_that_is_silent_runs_no_job(place: OperatorPlace, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "0.csv").write_text("ts,k\n1,1\n2,2\n")
    (tmp_path / "app.cql").write_text("""
        REGISTER STREAM s (k INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's');
        REGISTER QUERY q AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
    """)
    epochs = threading.Event()
    run = SparkRun(
        plan_app(load(tmp_path / "app.cql")),
        SparkOptions(
            tmp_path, place=place, shards=2 if place is OperatorPlace.executors else None, follow=True
        ),
        on_answer=lambda _: epochs.set(),
    )
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        assert epochs.wait(300)
        tracker = run.spark.sparkContext.statusTracker()
        assert run._query is not None
        group = str(run._query.runId)
        # The epoch that answers may have jobs left to run; then none comes while several triggers pass.
        due = time.monotonic() + 120
        before = -1
        while (jobs := len(tracker.getJobIdsForGroup(group))) != before:
            assert time.monotonic() < due, "jobs go on"
            before = jobs
            time.sleep(2)
        assert before > 0
    finally:
        run.stop()
        thread.join(300)
