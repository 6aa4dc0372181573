"""Python workers are killed while they run fragments; a real cluster loses an executor. Nothing shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pyspark
import pytest

from tests.processes import children, command
from tests.spark import chaos

pytestmark = pytest.mark.spark


def workers(pid: int) -> list[int]:
    """The forked Python workers below a process: the daemon's children, not the daemon."""
    daemons = [each for each in children(pid) if "kasen.spark.daemon" in command(each)]
    return [worker for daemon in daemons for worker in children(daemon)]


def test_python_workers_that_are_killed_do_not_show(tmp_path: Path) -> None:
    app = chaos.write_app(tmp_path, files=5)
    right = chaos.expected(app, tmp_path / "right")
    random, killed = Random(3), 0
    process = chaos.start(app, "executors", "2")
    while process.poll() is None:
        found = workers(process.pid)
        # Spark gives a task four tries, so not more than a worker an epoch is killed.
        if found and chaos.committed(app) > killed:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(random.choice(found), signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    assert process.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    assert killed >= 2
    assert chaos.outputs(tmp_path / "out") == right


@contextmanager
def cluster(folder: Path, port: int = 17077) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A standalone master and two workers of one core each, from the package itself, on the loopback only."""
    home = Path(pyspark.__file__).parent
    deploy = "org.apache.spark.deploy"
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    log = folder / "cluster.log"
    url = f"spark://127.0.0.1:{port}"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for arguments in (master, *[[*worker, "--memory", "1g", url]] * 2):
            with log.open("ab") as told:
                started.append(
                    subprocess.Popen(
                        [str(home / "bin" / "spark-class"), *arguments],
                        env=env,
                        stdout=told,
                        stderr=told,
                        start_new_session=True,
                    )
                )
            time.sleep(2)
        yield url, started
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@pytest.mark.soak
def test_an_executor_of_a_standalone_cluster_that_is_killed_does_not_show(tmp_path: Path) -> None:
    app = chaos.write_app(tmp_path, files=10)
    right = chaos.expected(app, tmp_path / "right")
    with cluster(tmp_path) as (url, processes):
        process = chaos.start(app, "executors", "3", url)
        if not chaos.wait_for_epochs(app, process, 2, most=900):
            raise AssertionError((tmp_path / "log").read_text()[-3000:])
        executors = [
            each
            for one in processes
            for each in children(one.pid)
            if "CoarseGrainedExecutorBackend" in command(each)
        ]
        assert executors, "no executor was found"
        os.kill(executors[0], signal.SIGKILL)
        ended = threading.Timer(900, lambda: chaos.kill(process))
        ended.start()
        process.wait()
        ended.cancel()
        if process.returncode != 0:
            # Losing an executor may fail the epoch that ran; the next run goes on from the one before.
            process = chaos.start(app, "executors", "3", url)
            assert process.wait(900) == 0, (tmp_path / "log").read_text()[-3000:]
    assert chaos.outputs(tmp_path / "out") == right
