"""The door of a running pipeline: a Unix socket that only its owner may open, for `kasen ctl`.

A request is one line of JSON, an answer too; `tail` answers with a line for each row until the caller goes.
Requests are answered between epochs by the thread that runs the pipeline, so a change falls between two
instants, and nobody looks at operators while they run.

No request ends a run: whatever is wrong with one, or fails in answering it, is its answer. A caller that is
slow, says nothing or stays for ever costs a thread, of which there are few.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kasen.errors import DataError, KasenError

#: The longest request, in bytes: 10,000 queries joined by UNION are below 1 MB.
LONGEST = 4 << 20
#: How many callers may be connected at a time.
MOST_CALLERS = 64
#: Within so many seconds a caller has sent its request, and has its answer.
_WAIT = 30.0
_FOLLOWS_BEHIND = 10_000


@dataclass(slots=True)
class Request:
    """What a caller wants, and where the answer goes."""

    body: dict[str, Any]
    answer: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_taken: bool = False

    def take(self) -> bool:
        """Whether whoever asks first may have it: to answer it, or to give it up."""
        with self._lock:
            first, self._is_taken = not self._is_taken, True
            return first


class Control:
    """Listens at a socket; `serve` answers what has come, in the thread that calls it."""

    def __init__(
        self, path: Path, handle: Callable[[dict[str, Any]], dict[str, Any]], wait: float = _WAIT
    ) -> None:
        self._path = path
        self._handle = handle
        self._wait = wait
        self._requests: queue.Queue[Request] = queue.Queue()
        self._tails: dict[str, list[queue.Queue[str | None]]] = {}
        self._callers = threading.Semaphore(MOST_CALLERS)
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
            if request.take():
                request.answer.put(self._answered(request.body))

    def _answered(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._handle(body)}
        except KasenError as error:
            return {"error": str(error)}
        except Exception as error:
            # Kasen is at fault, but the pipeline is as it was: a change is made ready before it counts.
            return {"error": f"internal error, please report it: {type(error).__name__}: {error}"}

    def wants_tail(self, query: str) -> bool:
        return query in self._tails

    def tell(self, query: str, lines: Iterator[str]) -> None:
        """Rows of a query for those who follow it; one that is too slow to take them is left behind."""
        with self._lock:
            followers = list(self._tails.get(query, ()))
        for line in lines:
            for follower in followers:
                if follower.qsize() < _FOLLOWS_BEHIND:
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
                if not self._closing:
                    time.sleep(0.1)  # no file descriptor is left, perhaps; callers that go give theirs back
                continue
            if _peer(connection) != os.getuid():
                connection.close()  # the mode says so already; a folder that others may write to would not
            elif not self._callers.acquire(blocking=False):
                with connection:
                    _send(connection, {"error": f"{MOST_CALLERS} callers are connected already: try again"})
            else:
                self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        try:
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            self._callers.release()
            connection.close()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(self._wait)
                self._respond(connection)
            except OSError:
                pass  # the caller went
            finally:
                self._callers.release()

    def _respond(self, connection: socket.socket) -> None:
        try:
            body = _request(connection, time.monotonic() + self._wait)
        except DataError as error:
            _send(connection, {"error": str(error)})
            return
        if body.get("verb") == "tail":
            self._follow(str(body.get("query", "")), connection)
            return
        request = Request(body)
        self._requests.put(request)
        _send(connection, self._answer_to(request))

    def _answer_to(self, request: Request) -> dict[str, Any]:
        deadline = time.monotonic() + self._wait
        while True:
            try:
                return request.answer.get(timeout=min(0.2, self._wait))
            except queue.Empty:
                pass
            late = time.monotonic() >= deadline
            # Given up here, it is not done later either; what is being answered has its answer soon.
            if (late or self._closing) and request.take():
                if self._closing:
                    return {"error": "the pipeline has ended"}
                return {"error": "the pipeline is busy with a long epoch: try again"}

    def _follow(self, query: str, connection: socket.socket) -> None:
        mine: queue.Queue[str | None] = queue.Queue()
        with self._lock:
            self._tails.setdefault(query, []).append(mine)
        try:
            _send(connection, {"ok": {}})
            connection.settimeout(None)  # who follows may pause
            while not self._closing:
                try:
                    line = mine.get(timeout=1.0)
                except queue.Empty:
                    if _has_gone(connection):
                        return
                    continue
                if line is None:
                    return
                connection.sendall(line.encode() + b"\n")
        finally:
            with self._lock:
                self._tails[query].remove(mine)
                if not self._tails[query]:
                    del self._tails[query]


# ---------------------------------------------------------------- what callers say


def _request(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """The one line that a caller sends; DataError if it makes no sense, is too long or takes too long."""
    line = bytearray()
    piece = b" "
    while piece and b"\n" not in piece:
        left = deadline - time.monotonic()
        if left <= 0:
            raise DataError("the request did not come to an end: send one line of JSON")
        connection.settimeout(left)
        try:
            piece = connection.recv(1 << 16)
        except TimeoutError:
            continue
        line += piece
        if len(line) > LONGEST:
            raise DataError(f"a request has at most {LONGEST} bytes: register fewer queries at a time")
    return _parsed(bytes(line.partition(b"\n")[0]))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a request is one line of JSON: {error}") from None
    if not isinstance(body, dict):
        raise DataError(f'a request is an object such as {{"verb": "ps"}}, not {type(body).__name__}')
    for key in ("verb", "text", "query"):
        if not isinstance(body.get(key, ""), str):
            raise DataError(f"{key!r} of a request is a text, not {type(body[key]).__name__}")
    return body


def _send(connection: socket.socket, answer: dict[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _has_gone(connection: socket.socket) -> bool:
    """Whether the other end is closed; whoever follows a query says nothing more."""
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(None)


# ---------------------------------------------------------------- the socket


def _listen(path: Path) -> socket.socket:
    """A socket with mode 0600 in a folder with mode 0700."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True)
    if path.parent.stat().st_uid != os.getuid() or path.parent.stat().st_mode & 0o077:
        raise DataError(f"{path.parent} is open to others: a control socket needs a folder with mode 0700")
    if path.exists():
        try:
            _connected(path).close()
        except DataError:
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
    listening.listen(MOST_CALLERS)
    return listening


def _peer(connection: socket.socket) -> int:
    """The user id of the process at the other end."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def ask(path: Path, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Sends a request to a running pipeline; its answer, then the rows of a tail."""
    with _connected(path) as connection, connection.makefile("rb") as stream:
        connection.settimeout(2 * _WAIT)
        try:
            _send(connection, body)
            line = stream.readline()
        except OSError as error:
            raise DataError(f"the pipeline at {path} does not answer: {error}") from None
        connection.settimeout(None)
        while line.endswith(b"\n"):  # half a line is what a run that was killed leaves
            yield json.loads(line)
            line = stream.readline()


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise DataError(f"no pipeline listens at {path}: {error.strerror}") from None
    return connection
