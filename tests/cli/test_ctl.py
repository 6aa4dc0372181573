"""`kasen ctl` against a real `kasen run`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kasen.errors import DataError
from kasen.runtime.control.socket import Control, ask

KASEN = [sys.executable, "-c", "from kasen.cli import main; main()"]


def ctl(socket: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [*KASEN, "ctl", *args, "--socket", str(socket)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_only_the_owner_may_open_the_socket(tmp_path: Path) -> None:
    control = Control(tmp_path / "private" / "control", lambda body: body)
    try:
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "private" / "control").stat().st_mode & 0o777 == 0o600
    finally:
        control.close()
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(DataError, match="is open to others"):
        Control(tmp_path / "open" / "control", lambda body: body)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pipeline listens"):
        list(ask(tmp_path / "control", {"verb": "ps"}))


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "new.cql").write_bytes("-- one\nREGISTER QUERY \xe9".encode("latin-1"))
    done = ctl(tmp_path / "control", "register", str(tmp_path / "new.cql"))
    assert done.returncode == 3
    assert "new.cql:2 is not a text in UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_is_looked_at_and_changed_while_it_reads(tmp_path: Path) -> None:
    rows = "a,ts\n" + "".join(f"{i % 7},{i}\n" for i in range(2_000_000))
    (tmp_path / "s.csv").write_text(rows)
    app = tmp_path / "app.cql"
    app.write_text(
        "REGISTER STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');\n"
        "REGISTER QUERY threes AS ISTREAM(SELECT a FROM s WHERE a = 3);\n"
    )
    (tmp_path / "new.cql").write_text("REGISTER QUERY fives AS ISTREAM(SELECT a, ts FROM s WHERE a = 5);")
    socket = tmp_path / "private" / "control"
    options = ["--engine", "local", "--out", str(tmp_path / "out"), "--batch", "40", "--control", str(socket)]
    running = subprocess.Popen([*KASEN, "run", str(app), *options], stderr=subprocess.PIPE, text=True)
    try:
        while not socket.exists():
            assert running.poll() is None, running.stderr.read() if running.stderr else ""
            time.sleep(0.02)
        while not next(ask(socket, {"verb": "ps"}))["ok"]["queries"][0]["rows out"]:
            time.sleep(0.02)
        (found,) = ask(socket, {"verb": "execute", "text": (tmp_path / "new.cql").read_text()})
        began = int(found["ok"]["done"][0].split()[-1])
        (listed,) = ask(socket, {"verb": "ps"})
        assert [(one["query"], one["since"]) for one in listed["ok"]["queries"]] == [
            ("threes", "the beginning"),
            ("fives", began),
        ]
        (threes, fives) = listed["ok"]["queries"]
        while not threes["rows out/s"]:
            (threes, fives) = next(ask(socket, {"verb": "ps"}))["ok"]["queries"]
        assert threes["rows in/s"] == fives["rows in/s"] > 5 * threes["rows out/s"]
        (wrong,) = ask(socket, {"verb": "execute", "text": "DROP QUERY sevens"})
        assert "no query 'sevens'" in wrong["error"]
        following = ask(socket, {"verb": "tail", "query": "fives"})
        assert next(following) == {"ok": {}}
        ts, *_, a, again = next(following)["row"].split(", ")
        assert (a, again) == ("5", ts)
        following.close()
        shown = ctl(socket, "ps")
        assert "fives" in shown.stdout, shown.stderr
        explained = ctl(socket, "explain", "fives")
        assert "predicate" in explained.stdout, explained.stderr
        assert "query fives: " in explained.stdout
        assert "Filter (step " in explained.stdout
        (gone,) = ask(socket, {"verb": "execute", "text": "DROP QUERY fives"})
        assert gone["ok"]["done"][0].startswith("fives goes at ")
    finally:
        running.terminate()
        running.wait(timeout=300)
        if running.stderr is not None:
            running.stderr.close()
    assert not socket.exists()
    lines = (tmp_path / "out" / "fives.csv").read_text().splitlines()[1:]
    times = [int(line.split(",")[0]) for line in lines]
    first = began + (5 - began) % 7
    assert times == list(range(first, first + 7 * len(times), 7))
