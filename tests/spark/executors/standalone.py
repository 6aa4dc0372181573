"""A standalone cluster of Spark: a master and workers, whose processes can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from tests.processes import children, command, kill_all

_DEPLOY = "org.apache.spark.deploy"


def python_workers(pid: int) -> list[int]:
    """The forked Python workers below a process: the daemon's children, not the daemon."""
    daemons = [each for each in children(pid) if "kasen.spark.daemon" in command(each)]
    return [worker for daemon in daemons for worker in children(daemon)]


class Standalone:
    """From the package itself, on the loopback only; workers have one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._seen: set[int] = set()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        master = [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._master = self._start(master)
        self._wait_until_it_listens(port)
        self.workers = [self._start_worker() for _ in range(workers)]

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        for each in (self._master, *self.workers):
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        kill_all([*self._seen])

    def executors(self) -> list[int]:
        """The Java processes that run tasks."""
        return [pid for pid in self._look() if "CoarseGrainedExecutorBackend" in command(pid)]

    def python_workers(self) -> list[int]:
        return [pid for each in self.workers for pid in python_workers(each.pid)]

    def kill_worker(self, number: int) -> None:
        """Kills a worker's daemon alone, and starts another one; its executors end by themselves."""
        self._look()
        self.workers[number].kill()
        self.workers[number].wait()
        self.workers[number] = self._start_worker()

    def _look(self) -> list[int]:
        found = [pid for each in self.workers for pid in children(each.pid)]
        self._seen.update(found)
        return found

    def _start_worker(self) -> subprocess.Popen[bytes]:
        options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        return self._start([f"{_DEPLOY}.worker.Worker", *options, self.url])

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(self._folder / "work"),
        }
        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        with (self._folder / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                [program, *arguments], env=env, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_until_it_listens(self, port: int) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "cluster.log").read_text()[-3000:]
                time.sleep(0.1)
