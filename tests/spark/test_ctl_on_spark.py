"""`kasen ctl` against a real `kasen run` on Spark, which is killed and goes on."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kasen.runtime.control.socket import ask
from tests.cli.test_ctl import KASEN

pytestmark = pytest.mark.spark


class Run:
    """A run over a folder that grows."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder = folder
        self.socket = folder / "private" / "control"
        options = ["--master", "local[1]", "--place", place, "--checkpoint", str(folder / "checkpoint")]
        options += ["--shards", "2"] if place == "executors" else []
        options += ["--out", str(folder / "out"), "--control", str(self.socket)]
        command = [*KASEN, "run", str(folder / "app.cql"), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def ask(self, **body: str) -> dict[str, list[str]]:
        answer = next(ask(self.socket, {**body}))
        assert "error" not in answer, answer
        found: dict[str, list[str]] = answer["ok"]
        return found

    def wait(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 600
        while not condition():
            assert self.process.poll() is None, self.process.stderr.read() if self.process.stderr else ""
            assert time.monotonic() < give_up
            time.sleep(0.1)

    def listens(self) -> bool:
        return self.socket.exists()

    def rows(self, query: str) -> list[int]:
        """The times of a query's rows, as far as they are written."""
        file = self.folder / "out" / f"{query}.csv"
        if not file.exists():
            return []
        return [
            int(line.split(",")[-1]) for line in file.read_text().splitlines()[1:] if line.count(",") >= 4
        ]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.process.wait(300)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return self.process.returncode


def write(folder: Path, number: int) -> None:
    """A hundred rows more, in a file that is there at once."""
    rows = "a,ts\n" + "".join(f"{ts % 7},{ts}\n" for ts in range(100 * number, 100 * number + 100))
    draft = folder / f"draft{number}"
    draft.write_text(rows)
    draft.rename(folder / "in" / f"{number}.csv")


@pytest.mark.parametrize("place", ["driver", "executors"])
def test_queries_come_and_go_while_spark_runs_and_after_it_was_killed(place: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "app.cql").write_text(
        "REGISTER STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts "
        "FROM 'csv' OPTIONS (path 'in', follow 'true');\n"
        "REGISTER QUERY threes AS ISTREAM(SELECT a, ts FROM s WHERE a = 3);\n"
    )
    write(tmp_path, 0)
    run = Run(tmp_path, place)
    try:
        run.wait(run.listens)
        run.wait(lambda: 94 in run.rows("threes"))
        text = "REGISTER QUERY fives AS ISTREAM(SELECT a, ts FROM s WHERE a = 5);"
        (told,) = run.ask(verb="execute", text=text)["done"]
        begins = int(told.split()[-1])
        # More rows might come of 99, the last time read; but those of it that came are on shards already.
        assert begins == (99 if place == "driver" else 100)
        write(tmp_path, 1)
        run.wait(lambda: 194 in run.rows("fives"))
        (told,) = run.ask(
            verb="execute", text="REGISTER QUERY sixes AS ISTREAM(SELECT ts FROM s WHERE a = 6)"
        )["done"]
        # Nothing is read after this change: it is durable by itself.
        assert run.end(signal.SIGKILL) != 0
        write(tmp_path, 2)
        run = Run(tmp_path, place)
        run.wait(run.listens)
        run.wait(lambda: 292 in run.rows("fives"))
        listed = [one["query"] for one in run.ask(verb="ps")["queries"]]  # type: ignore[index]
        assert listed == ["threes", "fives", "sixes"]
        run.ask(verb="execute", text="DROP QUERY threes")
        run.ask(verb="execute", text="REPLACE QUERY sixes AS ISTREAM(SELECT ts FROM s WHERE a = 2)")
        write(tmp_path, 3)
        run.wait(lambda: 390 in run.rows("fives"))
        assert run.end(signal.SIGTERM) == 0
    finally:
        if run.process.poll() is None:
            run.end(signal.SIGKILL)
    ends, came = (299, 199) if place == "driver" else (300, 200)
    assert run.rows("threes") == [ts for ts in range(ends) if ts % 7 == 3]
    assert run.rows("fives") == [ts for ts in range(begins, 399) if ts % 7 == 5]
    sixes = (tmp_path / "out" / "sixes.csv").read_text().splitlines()[1:]
    passed = [ts for ts in range(came, 399) if ts % 7 == (6 if ts < ends else 2)]
    assert [int(line.split(",")[-1]) for line in sixes] == passed
