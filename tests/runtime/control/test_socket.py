"""The control socket: every request has an answer, and no caller holds up the run or another caller."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kasen
from kasen.errors import DataError
from kasen.runtime.control.socket import LONGEST, MOST_CALLERS, Control

#: How long a request may take: longer than a busy machine makes it, or less than the test makes it.
LONG, SHORT = 60.0, 0.5


class Served:
    """A control socket with a thread that answers; `handled` are the requests that it was given."""

    def __init__(self, folder: Path) -> None:
        self.handled: list[dict[str, Any]] = []
        self.is_busy = False
        self.path = folder / "private" / "control"
        self.control = Control(self.path, self._handle, wait=LONG)
        self._ends = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _handle(self, body: dict[str, Any]) -> dict[str, Any]:
        self.handled.append(body)
        if body.get("verb") == "fail":
            raise KeyError("a fault of ours")
        if body.get("verb") == "refuse":
            raise DataError("refused")
        return {"verb": body.get("verb")}

    def _serve(self) -> None:
        while not self._ends:
            if not self.is_busy:
                self.control.serve()
            time.sleep(0.005)

    def close(self) -> None:
        self._ends = True
        self._thread.join()
        self.control.close()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(LONG)
        connection.connect(str(self.path))
        return connection

    def ask(self, content: bytes) -> dict[str, Any]:
        with self.connect() as connection:
            try:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # answered before all was said
            found: dict[str, Any] = json.loads(connection.makefile("rb").readline())
            return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "one line of JSON"),
        (b"{\n", "one line of JSON"),
        (b"\xff\xfe\n", "one line of JSON"),
        (b"[" * 100_000 + b"\n", "one line of JSON"),
        (b"9" * 5000 + b"\n", "one line of JSON"),
        (b"null\n", "a request is an object"),
        (b'["ps"]\n', "a request is an object"),
        (b'{"verb": 5}\n', "'verb' of a request is a text, not int"),
        (b'{"verb": "execute", "text": ["x"]}\n', "'text' of a request is a text, not list"),
        (b'{"verb": "tail", "query": null}\n', "'query' of a request is a text, not NoneType"),
        (b'{"verb": "refuse"}\n', "refused"),
        (b'{"verb": "fail"}\n', "internal error, please report it: KeyError: 'a fault of ours'"),
    ],
)
def test_what_is_wrong_with_a_request_is_its_answer(served: Served, content: bytes, told: str) -> None:
    assert told in served.ask(content)["error"]
    assert served.ask(b'{"verb": "ps"}\n') == {"ok": {"verb": "ps"}}


def test_a_request_that_is_too_long_is_refused(served: Served) -> None:
    line = json.dumps({"verb": "execute", "text": "x" * LONGEST}).encode()
    assert served.ask(line) == {
        "error": f"a request has at most {LONGEST} bytes: register fewer queries at a time"
    }


def test_a_caller_that_sends_byte_by_byte_is_cut_off(served: Served) -> None:
    served.control._wait = SHORT
    with served.connect() as slow:
        begun = time.monotonic()
        answer = b""
        while not answer and time.monotonic() < begun + LONG:
            slow.sendall(b"x")
            slow.settimeout(0.05)
            with suppress(TimeoutError):
                answer = slow.recv(1000)
    assert b"did not come to an end" in answer
    assert served.handled == []


def test_a_request_that_nobody_could_answer_in_time_is_not_done_later(served: Served) -> None:
    served.control._wait, served.is_busy = SHORT, True
    assert "busy with a long epoch" in served.ask(b'{"verb": "execute"}\n')["error"]
    served.control._wait, served.is_busy = LONG, False
    assert served.ask(b'{"verb": "ps"}\n') == {"ok": {"verb": "ps"}}
    assert served.handled == [{"verb": "ps"}]


def test_callers_beyond_the_most_are_told_so_and_come_in_when_others_go(served: Served) -> None:
    followers = [served.connect() for _ in range(MOST_CALLERS)]
    for follower in followers:
        follower.sendall(b'{"verb": "tail", "query": "q"}\n')
        assert json.loads(follower.makefile("rb").readline()) == {"ok": {}}
    assert "callers are connected already" in served.ask(b'{"verb": "ps"}\n')["error"]
    for follower in followers:
        follower.close()
    end = time.monotonic() + LONG
    while "error" in (answer := served.ask(b'{"verb": "ps"}\n')) and time.monotonic() < end:
        time.sleep(0.05)
    assert answer == {"ok": {"verb": "ps"}}
    while served.control.wants_tail("q") and time.monotonic() < end:
        time.sleep(0.05)  # the first that left made room; the others may still be on their way
    assert not served.control.wants_tail("q")


# ---------------------------------------------------------------- changes that wait for their time

APP = """
REGISTER STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY base AS SELECT a FROM s [ROWS 2];
REGISTER QUERY news AS ISTREAM(SELECT a FROM base);
"""


@pytest.mark.parametrize(
    ("waits", "asked", "told"),
    [
        (
            "AT 50 REGISTER QUERY x AS SELECT a FROM news [ROWS 2]",
            "DROP QUERY news",
            "unknown stream or query",
        ),
        ("AT 50 DROP QUERY news", "DROP QUERY news", "no query 'news'"),
        ("AT 50 DROP QUERY news", "AT 40 DROP QUERY news", "no query 'news'"),
        (
            "AT 50 REGISTER QUERY x AS SELECT a FROM s",
            "REGISTER QUERY x AS SELECT a FROM s",
            "registered already",
        ),
        (
            "AT 50 REGISTER QUERY x AS SELECT a FROM base",
            "DROP QUERY news; REPLACE QUERY base AS SELECT a AS b FROM s [ROWS 2]",
            "could not be made then: unknown column 'a'",
        ),
    ],
)
def test_a_change_that_would_break_one_that_waits_is_refused(waits: str, asked: str, told: str) -> None:
    p = kasen.Pipeline().execute(APP)
    p.push("s", [{"ts": 1, "a": 1}])
    p.execute(waits)
    with pytest.raises(kasen.QueryError, match=told):
        p.execute(asked)
    p.push("s", [{"ts": 30, "a": 2}, {"ts": 70, "a": 3}])
    p.advance("s", 100)
    p.push("s", [{"ts": 110, "a": 4}])
    p.drain()


def test_a_change_that_no_operator_could_run_is_refused_before_its_time() -> None:
    p = kasen.Pipeline().execute(APP)
    p.push("s", [{"ts": 1, "a": 1}])
    streams = ", ".join(f"s [ROWS 1] AS x{i}" for i in range(40))
    columns = ", ".join(f"x{i}.a AS a{i}, x{i}.ts AS t{i}" for i in range(31))
    conditions = " AND ".join(f"x{i}.a + x{i + 1}.a > 0" for i in range(39))
    with pytest.raises(kasen.ResourceError, match="at most 63 fit"):
        p.execute(f"AT 50 REGISTER QUERY x AS SELECT {columns} FROM {streams} WHERE {conditions}")
    p.push("s", [{"ts": 70, "a": 3}])
    p.drain()
