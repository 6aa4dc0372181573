"""The door of a running pipeline: a Unix socket that only its owner may open, for `kasen ctl`.

A request is one line of JSON, an answer too; `tail` answers with a line for each row until the caller goes.
Requests are answered between epochs by the thread that runs the pipeline, so a change falls between two
instants, and nobody looks at operators while they run.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kasen.errors import DataError, KasenError

_LONGEST = 1 << 20
_WAIT = 30.0


@dataclass(slots=True)
class Request:
    """What a caller wants, and where the answer goes."""

    body: dict[str, Any]
    answer: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)


class Control:
    """Listens at a socket; `serve` answers what has come, in the thread that calls it."""

    def __init__(self, path: Path, handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._path = path
        self._handle = handle
        self._requests: queue.Queue[Request] = queue.Queue()
        self._tails: dict[str, list[queue.Queue[str | None]]] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._socket = _listen(path)
        self._thread = threading.Thread(target=self._accept, name="kasen-control", daemon=True)
        self._thread.start()

    def serve(self) -> None:
        """Answers all requests that wait."""
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            try:
                request.answer.put({"ok": self._handle(request.body)})
            except KasenError as error:
                request.answer.put({"error": str(error)})

    def wants_tail(self, query: str) -> bool:
        return query in self._tails

    def tell(self, query: str, lines: Iterator[str]) -> None:
        """Rows of a query for those who follow it; one that is too slow to take them is left behind."""
        with self._lock:
            followers = list(self._tails.get(query, ()))
        for line in lines:
            for follower in followers:
                if follower.qsize() < 10_000:
                    follower.put(line)

    def close(self) -> None:
        self._closing = True
        self._socket.close()
        self._path.unlink(missing_ok=True)
        with self._lock:
            for followers in self._tails.values():
                for follower in followers:
                    follower.put(None)
        self.serve()

    # ------------------------------------------------------------ connections

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            if _peer(connection) != os.getuid():
                return  # the socket's mode says so already; a folder that others may write to would not
            try:
                body = json.loads(stream.readline(_LONGEST))
                if body.get("verb") == "tail":
                    self._follow(str(body["query"]), stream)
                else:
                    request = Request(body)
                    self._requests.put(request)
                    answer = request.answer.get(timeout=_WAIT)
                    stream.write(json.dumps(answer) + "\n")
            except queue.Empty:
                stream.write(
                    json.dumps({"error": "the pipeline is busy with a long epoch: try again"}) + "\n"
                )
            except (OSError, ValueError, KeyError, AttributeError):
                return  # the caller went, or says nothing that makes sense

    def _follow(self, query: str, stream: Any) -> None:
        mine: queue.Queue[str | None] = queue.Queue()
        with self._lock:
            self._tails.setdefault(query, []).append(mine)
        try:
            stream.write(json.dumps({"ok": {}}) + "\n")
            stream.flush()
            while (line := mine.get()) is not None:
                stream.write(line + "\n")
                if mine.empty():
                    stream.flush()
        finally:
            with self._lock:
                self._tails[query].remove(mine)
                if not self._tails[query]:
                    del self._tails[query]


def _listen(path: Path) -> socket.socket:
    """A socket with mode 0600 in a folder with mode 0700."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    if path.parent.stat().st_uid != os.getuid() or path.parent.stat().st_mode & 0o077:
        raise DataError(f"{path.parent} is open to others: a control socket needs a folder with mode 0700")
    if path.exists():
        try:
            list(ask(path, {"verb": "ps"}))
        except (DataError, OSError):
            path.unlink()  # left behind by a run that was killed
        else:
            raise DataError(f"another pipeline listens at {path}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise DataError(f"cannot listen at {path}: {error}") from None
    finally:
        os.umask(before)
    listening.listen(16)
    return listening


def _peer(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def ask(path: Path, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Sends a request to a running pipeline; its answer, then the rows of a tail."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError as error:
            raise DataError(f"no pipeline listens at {path}: {error.strerror}") from None
        with connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps(body) + "\n")
            stream.flush()
            for line in stream:
                yield json.loads(line)


@dataclass(slots=True)
class Meter:
    """What `ps` tells of rates: rows since it was last asked, or since the beginning."""

    asked: float = field(default_factory=time.monotonic)
    rows: dict[str, int] = field(default_factory=dict)

    def rates(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Rows a second, of counts by name."""
        now = time.monotonic()
        passed = max(now - self.asked, 1e-9)
        found = {name: (count - self.rows.get(name, 0)) / passed for name, count in counts.items()}
        self.asked, self.rows = now, dict(counts)
        return found
