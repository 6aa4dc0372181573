"""SIGINT and SIGTERM at any moment: commands end quietly, leave nothing behind, and lose nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from signal import SIGINT, SIGTERM, Signals

import pytest

from tests import processes
from tests.spark import chaos

#: As the program `kasen` does it.
KASEN = [sys.executable, "-c", "from kasen.__main__ import main; main()"]
NOISE = ("Traceback", "Exception", "ERROR", "Error", "refused:", "Connection", "\tat ", "Aborted")
_LONGEST = 300.0

Moment = Callable[["Command"], bool]


class Command:
    """A command in a process group of its own, as a shell starts it."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        self.folder = folder
        self._log = folder / f"log{len(list(folder.glob('log*')))}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*KASEN, *map(str, words)], stdout=log, stderr=log, start_new_session=True
            )
        self.pid = self.process.pid
        self._seen: set[int] = set()

    def wait_for(self, moment: Moment) -> None:
        """Returns at the moment, or when the command has ended."""
        deadline = time.monotonic() + _LONGEST
        while self.process.poll() is None and not moment(self):
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def signal(self, number: Signals, *, group: bool, times: int = 1) -> None:
        """As `kill` does, or as a terminal does it to all of its processes."""
        self._seen.update(processes.children(self.pid))
        for _ in range(times):
            if self.process.poll() is None:
                (os.killpg if group else os.kill)(self.pid, number)
                time.sleep(0.1)

    def end(self) -> int:
        """What a shell is told; all that it had started must end, too."""
        try:
            self.process.wait(_LONGEST)
        finally:
            left = processes.still_alive([self.pid, *self._seen], 60)
            told = [processes.command(pid)[:200] for pid in left]
            processes.kill_all(left)
        assert not told, (told, self.said)
        return processes.shell_code(self.process.returncode)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def assert_quiet(self) -> None:
        assert not [noise for noise in NOISE if noise in self.said], self.said


def loads(command: Command) -> bool:
    """Libraries are being loaded. (Before, Python itself starts, which nobody can make quiet.)"""
    return processes.has_loaded(command.pid, "numpy")


def java_starts(command: Command) -> bool:
    return any("java" in processes.command(pid) for pid in processes.children(command.pid))


def reads(command: Command) -> bool:
    """The streaming query has begun."""
    return (command.folder / "checkpoint" / "spark" / "metadata").exists()


def run(folder: Path, *options: str) -> Command:
    words: list[str | Path] = [
        "run",
        folder / "app.cql",
        "--out",
        folder / "out",
        "--checkpoint",
        folder / "checkpoint",
    ]
    return Command(folder, *words, *options)


def stop(command: Command, moment: Moment, delay: float, number: Signals, *, group: bool, times: int) -> bool:
    """Whether the command had done everything before the signal came."""
    command.wait_for(moment)
    time.sleep(delay)
    command.signal(number, group=group, times=times)
    code = command.end()
    command.assert_quiet()
    ended = code == 0 and "done" in command.said
    assert ended or code == 128 + number, (code, command.said)
    return ended


def stopped_and_resumed(
    folder: Path, options: list[str], moments: Sequence[tuple[Moment, float]], seed: int
) -> None:
    """Stops a run at each moment, plus a random time up to the given one; then lets it end."""
    app = chaos.write_app(folder, files=6)
    right = chaos.expected(app, folder / "right")
    random = Random(seed)
    for moment, spread in moments:
        number, group = random.choice([SIGINT, SIGTERM]), random.random() < 0.6
        times = random.choice([1, 1, 2])
        stop(run(folder, *options), moment, random.random() * spread, number, group=group, times=times)
    last = run(folder, *options)
    assert last.end() == 0, last.said
    assert chaos.outputs(folder / "out") == right, f"seed {seed}"


def test_a_local_run_that_is_stopped_while_it_loads_or_reads_ends_quietly(tmp_path: Path) -> None:
    stopped_and_resumed(tmp_path, ["--engine", "local", "--batch", "8"], [(loads, 0.1), (loads, 3)], seed=1)


@pytest.mark.spark
def test_a_run_on_spark_that_is_stopped_while_java_starts_and_while_it_reads_ends_quietly(
    tmp_path: Path,
) -> None:
    stopped_and_resumed(tmp_path, ["--master", "local[1]"], [(java_starts, 1.5), (reads, 1)], seed=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_a_local_run_is_stopped_at_any_moment_again_and_again(seed: int, tmp_path: Path) -> None:
    moments = [(loads, spread) for spread in (0.1, 0.5, 1, 2, 3, 4, 4, 4)]
    stopped_and_resumed(tmp_path, ["--engine", "local", "--batch", "8"], moments, seed)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("place", ["driver", "executors"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_on_spark_is_stopped_at_any_moment_again_and_again(
    seed: int, place: str, tmp_path: Path
) -> None:
    moments = [(loads, 3.0), (java_starts, 1.0), (java_starts, 6.0), (reads, 2.0), (reads, 8.0)]
    stopped_and_resumed(tmp_path, ["--master", "local[2,4]", "--place", place], moments, seed)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize(("moment", "spread"), [(loads, 2.0), (java_starts, 0.5), (java_starts, 12.0)])
def test_the_demonstration_ends_quietly(moment: Moment, spread: float, tmp_path: Path) -> None:
    stop(Command(tmp_path, "demo"), moment, Random(1).random() * spread, SIGINT, group=True, times=1)


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_who_waits_for_a_cluster_ends_quietly_and_the_cluster_goes_on(
    number: Signals, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text("ts,a\n" + "".join(f"{ts},{ts % 3}\n" for ts in range(100_000)))
    (tmp_path / "s.cql").write_text(
        "REGISTER STREAM s (a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');\n"
        "REGISTER QUERY q AS ISTREAM(SELECT a FROM s);\n"
    )
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "source"\napp = "s.cql"\nrate = 100\n'
        '[[node]]\nname = "out"\nsink = "out"\ninputs = { q = "source.q" }\n'
    )
    waits = Command(tmp_path, "cluster", "up", tmp_path / "cluster.toml", "--wait")
    nodes: list[int] = []
    try:
        waits.wait_for(lambda one: "2 processes started" in one.said)
        nodes = [pid for pid in processes.children(waits.pid) if "node" in processes.command(pid)]
        os.killpg(waits.pid, number)
        assert processes.shell_code(waits.process.wait(_LONGEST)) == 128 + number
        waits.assert_quiet()
        assert len(nodes) >= 2
        assert all(map(processes.is_alive, nodes))
        down = Command(tmp_path, "cluster", "down", tmp_path / "cluster.toml")
        assert down.process.wait(_LONGEST) == 0
        assert not processes.still_alive(nodes, 60)
        for log in (tmp_path / "run").glob("*.log"):
            assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        processes.kill_all(nodes)


OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
import kasen

spark = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
p = kasen.Pipeline(engine="spark", checkpoint=sys.argv[1])
p.execute('''
    REGISTER STREAM s (value BIGINT) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 10];
''')
rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
p.stream("s", rows.selectExpr("value", "value AS ts"))
p.start()
next(iter(p.query("q")))
p.stop()
print("stopped", p.running, len(spark.streams.active), spark.range(3).count())
"""


@pytest.mark.spark
def test_a_pipeline_on_a_session_of_the_users_own_stops_without_an_error_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_SESSION)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "own.py"), str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stopped False 0 3\n"
    assert not [noise for noise in NOISE if noise in done.stderr], done.stderr
