"""Python workers are killed while they run fragments; a real cluster loses anything. Nothing shows."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.spark import chaos
from tests.spark.executors.standalone import Standalone, python_workers

pytestmark = pytest.mark.spark


def test_python_workers_that_are_killed_do_not_show(tmp_path: Path) -> None:
    """Spark gives a task four tries; a run that uses them up on a busy machine is started again."""
    app = chaos.write_app(tmp_path, files=5)
    right = chaos.expected(app, tmp_path / "right")
    random, killed, restarts = Random(3), 0, 0
    process = chaos.start(app, "executors", "2")
    while (code := process.poll()) != 0:
        if code is not None:
            log = (tmp_path / "log").read_text()
            told = "\n".join([line[:300] for line in log.splitlines() if not line.startswith(" ")][-60:])
            assert "Python worker exited unexpectedly" in log, told
            assert restarts == 0, told
            restarts += 1
            process = chaos.start(app, "executors", "2")
        found = python_workers(process.pid)
        # Not more than a worker per epoch is killed.
        if found and chaos.committed(app) > killed:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(random.choice(found), signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    assert killed >= 2
    assert chaos.outputs(tmp_path / "out") == right


#: How often something is killed in a run, and how often at most an epoch that this has cost is repeated.
_KILLS, _RESTARTS = 6, 12


def kill_one(random: Random, spark: Standalone, driver: subprocess.Popen[bytes]) -> str:
    """Kills something by SIGKILL; tells what it was."""
    found = {"executor": spark.executors(), "python worker": spark.python_workers()}
    what = random.choice(["executor", "python worker", "worker", "driver"])
    if what == "worker":
        spark.kill_worker(random.randrange(len(spark.workers)))
    elif what == "driver":
        chaos.kill(driver)
    elif not found[what]:
        return f"no {what} there"
    else:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(random.choice(found[what]), signal.SIGKILL)
    return what


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_killed_on_a_standalone_cluster_does_not_show(seed: int, tmp_path: Path) -> None:
    """A driver that is killed, or whose epoch has failed too often, is started again on its checkpoint."""
    app = chaos.write_app(tmp_path, files=20)
    right = chaos.expected(app, tmp_path / "right")
    random, killed = Random(seed), Counter[str]()
    with Standalone(tmp_path) as spark:
        driver = chaos.start(app, "executors", "3", spark.url)
        for _ in range(_KILLS):
            wanted = chaos.committed(app) + random.randrange(3)
            if chaos.wait_for_epochs(app, driver, wanted, most=900):
                time.sleep(random.random() * 2)
                killed[kill_one(random, spark, driver)] += 1
            if driver.poll() not in (None, 0):
                driver = chaos.start(app, "executors", "3", spark.url)
        while driver.wait(900) != 0:
            killed["epoch failed"] += 1
            assert killed["epoch failed"] <= _RESTARTS, (tmp_path / "log").read_text()[-3000:]
            driver = chaos.start(app, "executors", "3", spark.url)
    print(f"seed {seed}: {dict(killed)}, {chaos.committed(app)} epochs")
    assert chaos.outputs(tmp_path / "out") == right, f"seed {seed}"
