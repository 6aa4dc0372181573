"""What a node has put out for one downstream node and must still be able to send: a link's output queue."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kasen.connect.decode import INSTANT_AND_DIFF
from kasen.engine.batch import I64
from kasen.errors import DataError
from kasen.ha.link.wire import BEGIN, Json, LinkPiece

_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Segment:
    """Changes at times in [.., upto); `first` is how many rows were put in before them."""

    upto: int
    first: int
    batch: pa.RecordBatch
    ts: I64


class OutQueue:
    """Rows in time order from `start` up to `upto`. Not thread-safe: the node's lock guards it.

    `restart` says how a new copy downstream may begin at `start`, as the downstream primary told with its
    release.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.start = BEGIN
        self.upto = BEGIN
        self.ended = False
        self.restart: Json | None = None
        self._segments: list[_Segment] = []
        self._rows = 0

    def append(self, batch: pa.RecordBatch | None, upto: int, ended: bool = False) -> None:
        """Rows below `upto`, all at or above the queue's end."""
        if batch is not None and batch.num_rows:
            self._segments.append(_Segment(upto, self._rows, batch, times(batch)))
            self._rows += batch.num_rows
        self.upto = max(self.upto, upto)
        self.ended = self.ended or ended

    def reset(self, start: int) -> None:
        """Forgets everything; what comes from now on begins at `start`."""
        self._segments.clear()
        self.start = self.upto = start
        self.ended = False
        self.restart = None

    def release(self, position: int, restart: Json | None) -> None:
        """Nobody needs what is below the position any more."""
        if position < self.start:
            return
        self.restart = restart or self.restart
        if position == self.start:
            return
        self.start = position
        self.restart = restart
        gone = bisect_right(self._segments, position, key=lambda segment: segment.upto)
        del self._segments[:gone]

    def row_number(self, position: int) -> int:
        """How many rows lie below a position, counted from the first ever put in."""
        at = bisect_right(self._segments, position, key=lambda segment: segment.upto)
        if at == len(self._segments):
            return self._rows
        segment = self._segments[at]
        return segment.first + int(np.searchsorted(segment.ts, position, "left"))

    def rows_since(self, position: int) -> int:
        return self._rows - self.row_number(max(position, self.start))

    def read(self, position: int, most: int) -> LinkPiece:
        """What lies at or above the position, at most about so many rows, but always whole times."""
        start = max(position, self.start)
        first = bisect_right(self._segments, start, key=lambda segment: segment.upto)
        taken: list[pa.RecordBatch] = []
        count = 0
        upto = self.upto
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            if count >= most:
                upto = self._segments[index - 1].upto
                break
            cut = int(np.searchsorted(segment.ts, start, "left")) if index == first else 0
            if cut < len(segment.ts):
                taken.append(segment.batch.slice(cut) if cut else segment.batch)
                count += len(segment.ts) - cut
        batch = None
        if taken:
            batch = taken[0] if len(taken) == 1 else pa.concat_batches(taken)
        return LinkPiece(batch, start, upto, self.ended and upto == self.upto)

    def __len__(self) -> int:
        return self.rows_since(self.start)


def check_stretch(piece: LinkPiece) -> None:
    """DataError if a piece's rows are not in order, or not within the stretch of time that it covers."""
    if not BEGIN <= piece.start <= piece.upto <= _END:
        raise DataError(f"a message for the time from {piece.start} to {piece.upto}")
    if piece.batch is None:
        return
    if any(piece.batch.column(index).null_count for index in range(len(INSTANT_AND_DIFF))):
        raise DataError("a message with rows that have no instant")
    ts = times(piece.batch)
    if ts[0] < piece.start or ts[-1] >= piece.upto or bool((ts[1:] < ts[:-1]).any()):
        raise DataError(f"a message with rows out of order, or not from {piece.start} to {piece.upto}")


def times(batch: pa.RecordBatch) -> I64:
    """The times of a link's rows: its first column."""
    column = batch.column(0)
    found: I64 = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
    return found


def since(batch: pa.RecordBatch, position: int) -> pa.RecordBatch | None:
    """The rows at or above a position."""
    cut = int(np.searchsorted(times(batch), position, "left"))
    if cut == batch.num_rows:
        return None
    return batch.slice(cut) if cut else batch
