"""A sink whose files were damaged while it was down refuses to start, and destroys nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kasen.cli import app
from kasen.ha.link.wire import BEGIN
from tests.ha.chains import chain, expected, make_chain, written
from tests.ha.nodes import Nodes


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def damage_a_line(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0].replace(b"position", b"positiom") + b"".join(lines[1:]))


def cut_to_the_first_line(file: Path) -> None:
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("journal.jsonl", Path.unlink, " is missing or damaged: it does not know"),
        ("journal.jsonl", lambda file: file.write_bytes(b""), " is missing or damaged: it does not know"),
        ("journal.jsonl", damage_a_line, ", line 1, is damaged"),
        ("journal.jsonl", cut_to_the_first_line, " was cut off; restore it"),
        ("counted.csv", cut, " is damaged: it has"),
        ("counted.csv", flip, " is damaged, or was changed"),
        ("counted.csv", Path.unlink, " cannot be read"),
    ],
)
def test_a_sink_refuses_damaged_files_and_resumes_when_they_are_restored(
    name: str, damage: Callable[[Path], object], why: str, tmp_path: Path
) -> None:
    make_chain(tmp_path, "selection", 5000)
    answers, damaged = tmp_path / "out" / "counted.csv", tmp_path / "out" / name
    with Nodes(tmp_path, chain(copies=1, batch=20)) as nodes:
        out = nodes.member("out")
        due = time.monotonic() + 30
        while nodes.wait_for("d", "outputs")["outputs"]["counted -> out"]["start"] == BEGIN:
            assert time.monotonic() < due, nodes.logs()
            time.sleep(0.02)
        nodes.signal(out, signal.SIGKILL)
        before = damaged.read_bytes()
        damage(damaged)
        left = answers.read_bytes() if answers.exists() else None
        assert nodes.heal("out") == ["out/1"]
        nodes.finish("out", 20)
        assert nodes.exit_code(out) == 1, nodes.logs()
        log = out.log.read_text()
        assert log.count("error: ") == 1, log
        error = log.splitlines()[-1]
        assert error.startswith("error: "), log
        assert f"{damaged}{why}" in error
        assert error.endswith(f"remove {tmp_path / 'out'} and start the cluster anew")
        assert (answers.read_bytes() if answers.exists() else None) == left, "it was changed"
        damaged.write_bytes(before)
        nodes.heal("out")
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_the_cluster_tells_why_its_sink_has_ended(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 5000)
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "source"\napp = "source.cql"\nrate = 100\n'
        '[[node]]\nname = "out"\nsink = "out"\ninputs = { sent = "source.sent" }\n'
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sent.csv").write_text("answers\n")
    file = str(tmp_path / "cluster.toml")
    up = [sys.executable, "-m", "kasen", "cluster", "up", file, "--wait"]
    why = f"error: {tmp_path / 'out' / 'journal.jsonl'} is missing or damaged"
    with subprocess.Popen(up, stderr=subprocess.PIPE, text=True) as waits:
        try:
            assert waits.stderr is not None
            assert waits.stderr.readline().startswith(f"out: {why}")
            status = CliRunner().invoke(app, ["cluster", "status", file])
            assert f"out: its process is gone; {why}" in status.stderr
        finally:
            CliRunner().invoke(app, ["cluster", "down", file])
        assert waits.stderr.read() == ""
        assert waits.wait(30) == 0
    assert (tmp_path / "out" / "sent.csv").read_text() == "answers\n"
