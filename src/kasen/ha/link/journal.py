"""Pieces on their way through another engine, numbered as they came; and how its processes get them."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight

from kasen.errors import DataError
from kasen.ha.config import read_node
from kasen.ha.link.wire import Json, LinkPiece, ask, call_options, connect, pack

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("stream", pa.string()),
        ("start", pa.int64()),
        ("upto", pa.int64()),
        ("ended", pa.bool_()),
        ("content", pa.binary()),
    ]
)
_ASK_SECONDS = 30.0


class PieceJournal:
    """The node's side: keeps pieces until the engine has committed them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = 0
        self._kept: list[tuple[str, LinkPiece]] = []

    def add(self, pieces: list[tuple[str, LinkPiece]]) -> int:
        """The number after the last one."""
        with self._lock:
            self._kept += pieces
            return self._first + len(self._kept)

    @property
    def end(self) -> int:
        with self._lock:
            return self._first + len(self._kept)

    def forget(self, number: int) -> None:
        with self._lock:
            gone = max(0, min(number - self._first, len(self._kept)))
            del self._kept[:gone]
            self._first += gone

    def read(self, first: int, last: int) -> pa.Table:
        """DataError if some are gone: the engine asked for what it has committed."""
        with self._lock:
            if first < self._first or last > self._first + len(self._kept):
                raise DataError(f"no pieces {first} to {last}; there are {self._first} on")
            taken = self._kept[first - self._first : last - self._first]
        rows = [
            {
                "number": number,
                "stream": stream,
                "start": piece.start,
                "upto": piece.upto,
                "ended": piece.ended,
            }
            | {"content": None if piece.batch is None else piece.batch.serialize().to_pybytes()}
            for number, (stream, piece) in enumerate(taken, first)
        ]
        return pa.Table.from_pylist(rows, SCHEMA)


def pieces_of(table: pa.Table, schemas: dict[str, pa.Schema]) -> list[tuple[int, str, LinkPiece]]:
    """What `Journal.read` gave, in order of number."""
    found = []
    for row in sorted(table.to_pylist(), key=lambda row: int(row["number"])):
        content = row["content"]
        batch = None
        if content is not None:
            batch = pa.ipc.read_record_batch(pa.py_buffer(content), schemas[row["stream"]])
        piece = LinkPiece(batch, row["start"], row["upto"], row["ended"])
        found.append((row["number"], row["stream"], piece))
    return found


class JournalClient:
    """The engine's side: any process that knows the node's file."""

    def __init__(self, file: str) -> None:
        self._config = read_node(Path(file))
        self._client = connect(self._config, self._config.listen)

    def _ask(self, action: str, body: Json) -> Json:
        return ask(self._config, self._client, action, body, _ASK_SECONDS)

    def end(self) -> int:
        return int(self._ask("journal end", {})["end"])

    def forget(self, number: int) -> None:
        self._ask("journal forget", {"number": number})

    def read(self, first: int, last: int) -> pa.Table:
        ticket = flight.Ticket(pack({"first": first, "last": last}))
        return self._client.do_get(ticket, call_options(self._config, _ASK_SECONDS)).read_all()

    def close(self) -> None:
        self._client.close()
