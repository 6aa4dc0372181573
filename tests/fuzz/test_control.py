"""Hostile callers at a control socket: whatever they send, they get an answer, and the run goes on."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kasen
from kasen.runtime.control.requests import RequestHandler
from kasen.runtime.control.socket import LONGEST, Control, ask
from tests.fuzz.queries import apps, mutated

_APP = """
REGISTER STREAM s (a BIGINT, c VARCHAR, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER RELATION r (k BIGINT, v VARCHAR, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY q AS ISTREAM(SELECT a, c FROM s);
"""
_VERBS: list[Any] = ["ps", "execute", "explain", "", "stop", "\ud800", None, 5, [], {}]
_QUERIES = ["q", "Q", "nobody", "", "\0", "\ud800", "x" * 10_000, None, 7]
_SPLINTERS = [
    b"\n",
    b"{",
    b"[" * 100_000,
    b'{"verb": "ps"',
    b"\xff\xfe\n",
    b"null\n",
    b"1e999\n",
    b"9" * 5000,
]
#: Reading and answering a request takes no longer, whatever it is.
_SLOWEST = 60.0
#: A caller sends so many at least, however slow the machine is.
_LEAST = 6


class Running:
    """A pipeline that somebody feeds, and its control socket, answered between two pushes."""

    def __init__(self, folder: Path) -> None:
        self.pipeline = kasen.Pipeline().execute(_APP)
        self.pipeline.push("s", [{"ts": 0, "a": 0, "c": ""}])
        mode = self.pipeline._mode
        assert mode is not None
        self._live = mode.pipeline
        self._manager = RequestHandler(self._live, mode.outputs, self.pipeline.app.time, lambda _: None)
        self.path = folder / "private" / "control"
        self.control = Control(self.path, self._handle, wait=5.0)
        self.answered = 0

    def _handle(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._manager.handle(body)
        finally:
            self.pipeline._queries.enter(self._live.queries.values(), self.pipeline.app.time)

    def step(self) -> None:
        self.control.serve()
        self.answered += 1
        ts = self.answered
        self.pipeline.push("s", [{"ts": ts, "a": ts % 5, "c": "x"}])
        self.pipeline.advance("s", ts)
        self.pipeline.advance("r", ts)
        for name in list(self.pipeline._queries):
            self.pipeline.query(name).changes()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.control.close()


class Caller:
    """Sends hostile requests, one connection each, until the time is over."""

    def __init__(self, path: Path, seed: int, end: float) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.end = end
        self.sent = 0
        self.fault: BaseException | None = None
        self.apps = apps()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while time.monotonic() < self.end or self.sent < _LEAST:
                self._call()
                self.sent += 1
        except BaseException as fault:
            self.fault = fault

    def _call(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SLOWEST)
            connection.connect(str(self.path))
            content = self._content()
            kind = self.rng.random()
            try:
                if kind < 0.05:
                    connection.sendall(content[: self.rng.randrange(len(content) + 1)])
                    return  # and goes, in the middle of it
                if kind < 0.1:
                    for start in range(0, min(len(content), 300), 100):
                        connection.sendall(content[start : start + 100])
                        time.sleep(0.01)
                    connection.sendall(content[300:])
                else:
                    connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.makefile("rb").readline()
            except (BrokenPipeError, ConnectionResetError):
                return  # it was answered before it had said all
            found = json.loads(answer)
            assert found.keys() in ({"ok"}, {"error"}), (content[:1000], answer)
            assert "internal error" not in str(found.get("error")), (content[:2000], answer)

    def _content(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return rng.choice(_SPLINTERS)
        if kind < 0.12:
            return b"x" * rng.choice((LONGEST - 1, LONGEST + 1, LONGEST + 100_000))
        if kind < 0.2:
            return rng.randbytes(rng.randrange(1, 500))
        line = json.dumps(self._body()).encode() + b"\n"
        if kind < 0.3:
            position = rng.randrange(len(line))
            line = line[:position] + rng.randbytes(1) + line[position + 1 :]
        return line

    def _body(self) -> dict[str, Any]:
        rng = self.rng
        verb = "execute" if rng.random() < 0.7 else rng.choice(_VERBS)
        return {"verb": verb, "text": self._text(), "query": rng.choice(_QUERIES)}

    def _text(self) -> str:
        rng = self.rng
        name = f"n{rng.randrange(20)}"
        match rng.randrange(8):
            case 0:
                many = " AND ".join(["a = 1"] * rng.choice((2, 1200, 3000)))
                return f"REGISTER QUERY {name} AS SELECT a FROM s [ROWS 2] WHERE {many}"
            case 1:
                return f"REGISTER QUERY {name} AS SELECT '\ud800' AS x FROM s [ROWS 2]"
            case 2 | 3:
                return f"DROP QUERY {name}{rng.choice(('', ' CASCADE'))}"
            case 4:
                at = rng.choice((-5, 10, 10**6, 2**62))
                return f"AT {at} DROP QUERY {name}"
            case 5:
                nest = rng.choice((3, 49, 60, 2000))
                return f"REGISTER QUERY {name} AS SELECT {'(' * nest}a{')' * nest} AS a FROM s [ROWS 2]"
        return mutated(rng, rng.choice(self.apps)) if rng.random() < 0.5 else self._change(name)

    def _change(self, name: str) -> str:
        rng = self.rng
        verb = rng.choice(("REGISTER", "REPLACE", "PREPARE"))
        source = rng.choice(("s [ROWS 2]", "s [RANGE 3]", f"n{rng.randrange(20)}", "r", "q [NOW]"))
        at = rng.choice(("", "", f"AT {rng.randrange(3000)} "))
        return f"{at}{verb} QUERY {name} AS SELECT * FROM {source}"


def fuzz(running: Running, seconds: float, seed: int, callers: int = 4) -> int:
    end = time.monotonic() + seconds
    made = [Caller(running.path, seed + number, end) for number in range(callers)]
    while any(caller.thread.is_alive() for caller in made):
        running.step()
        assert time.monotonic() < end + _SLOWEST, "callers wait for answers that do not come"
        time.sleep(0.001)
    for caller in made:
        assert caller.fault is None, f"seed {seed}: {caller.fault!r}"
    return sum(caller.sent for caller in made)


def goes_on(running: Running) -> None:
    """A usual request is answered as usual, and rows still flow."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(ask(running.path, {"verb": "ps"})))
    thread.start()
    while thread.is_alive():
        running.step()
    assert "q" in [one["query"] for one in found[0]["ok"]["queries"]]
    before = running.answered
    running.control.serve()
    running.pipeline.push("s", [{"ts": before + 1, "a": 77, "c": "y"}])
    running.pipeline.advance("s", before + 5)
    running.pipeline.advance("r", before + 5)
    assert 77 in [change.values[0] for change in running.pipeline.query("q").changes()]


def test_hostile_requests_are_answered_and_the_run_goes_on(running: Running) -> None:
    assert fuzz(running, 6.0, 20_261_116) > 20
    goes_on(running)


@pytest.mark.soak
def test_hostile_requests_for_minutes(running: Running) -> None:
    sent = fuzz(running, 150.0, 20_261_117, callers=8)
    print(f"{sent} requests")
    assert sent > 500
    goes_on(running)
