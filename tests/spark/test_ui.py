"""What Spark's own UI tells of a run, asked over HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_ctl import KASEN
from tests.spark.test_ctl_on_spark import write

pytestmark = pytest.mark.spark

APP = """
REGISTER STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS
    (path 'in', follow 'true', maxFilesPerTrigger '1');
REGISTER QUERY counts AS SELECT a, COUNT(*) AS n FROM s [ROWS 10] GROUP BY a;
"""


def asked(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=240) as answer:
        return json.load(answer)


def descriptions(ui: str, kind: str) -> set[str]:
    (run,) = asked(f"{ui}/api/v1/applications")
    return {one.get("description", "") for one in asked(f"{ui}/api/v1/applications/{run['id']}/{kind}")}


def test_jobs_and_stages_are_named_and_a_run_that_is_stopped_says_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "app.cql").write_text(APP)
    write(tmp_path, 0)
    options = [
        "--master",
        "local[2]",
        "--place",
        "executors",
        "--shards",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    options += ["--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0"]
    with (tmp_path / "log").open("wb") as log:
        command = [*KASEN, "run", str(tmp_path / "app.cql"), *options]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wanted = {
            "kasen: epoch 0, query counts, rows to shards",
            "kasen: epoch 0, query counts, exchange by a",
        }
        deadline = time.monotonic() + 600
        jobs: set[str] = set()
        while not wanted <= jobs:
            said = (tmp_path / "log").read_text()
            assert process.poll() is None, said
            assert time.monotonic() < deadline, (jobs, said)
            if told := re.search(r"Spark's UI: (\S+)", said):
                jobs = descriptions(told[1], "jobs")
            time.sleep(0.2)
        assert told is not None
        assert wanted <= descriptions(told[1], "stages")
        for number in range(1, 30):
            write(tmp_path, number)
        while not any("epoch 3," in job for job in descriptions(told[1], "jobs")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(300)
    assert process.returncode == 0
    said = (tmp_path / "log").read_text()
    assert "epoch 29" not in said
    for noise in ("log level", "Exception", "Traceback", "ERROR"):
        assert noise not in said, said
