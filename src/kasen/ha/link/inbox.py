"""What has come over one link: the input queue of a node."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from kasen.ha.config import Neighbour
from kasen.ha.link.out_queue import since
from kasen.ha.link.wire import BEGIN, LinkPiece


class Inbox:
    """Pieces in order. Not thread-safe: the node's lock guards it.

    `received` is how far this copy has everything that it needs; `log` is what a secondary keeps, because a
    gap on one input makes it start anew with what it has of the others; `worked_rows` counts what has been
    worked on, for acknowledgements.
    """

    def __init__(self, link: Neighbour) -> None:
        self.link = link
        self.received = BEGIN
        self.ended = False
        self.waiting: deque[LinkPiece] = deque()
        self.waiting_rows = 0
        self.worked_rows = 0
        self.log: list[LinkPiece] = []
        self.keeps_log = False

    def take(self, piece: LinkPiece) -> None:
        """Adds a piece that begins at or before `received`; what was received before is passed over."""
        if piece.start < self.received and piece.batch is not None:
            piece = LinkPiece(since(piece.batch, self.received), self.received, piece.upto, piece.ended)
        if piece.upto <= self.received and (not piece.ended or self.ended):
            return
        self.received = max(self.received, piece.upto)
        self.ended = self.ended or piece.ended
        self.waiting.append(piece)
        self.waiting_rows += piece.rows
        if self.keeps_log:
            self.log.append(piece)

    def skip_to(self, position: int) -> None:
        """A gap: what lies before the position is needed by nobody any more."""
        self.received = position
        self.ended = False
        self.log.clear()
        self.waiting.clear()
        self.waiting_rows = 0

    def release(self, position: int) -> None:
        """Forgets what a copy that starts anew would not ask for."""
        gone = 0
        for piece in self.log:
            if piece.upto > position or piece.ended:
                break
            gone += 1
        del self.log[:gone]

    def work_from_log(self) -> None:
        """Everything kept is to be worked on again."""
        self.waiting = deque(self.log)
        self.waiting_rows = sum(piece.rows for piece in self.log)

    def next(self, most: int) -> LinkPiece | None:
        """What waits, as one piece of about `most` rows: a run costs much the same for one or many."""
        if not self.waiting:
            return None
        first = last = self.waiting.popleft()
        batches = [] if first.batch is None else [first.batch]
        rows = first.rows
        while self.waiting and rows < most and _fits(batches, self.waiting[0].batch):
            last = self.waiting.popleft()
            rows += last.rows
            if last.batch is not None:
                batches.append(last.batch)
        self.waiting_rows -= rows
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches) if batches else None
        return LinkPiece(batch, first.start, last.upto, last.ended)


def _fits(batches: list[pa.RecordBatch], next_: pa.RecordBatch | None) -> bool:
    """Whether a batch can follow others in one piece: copies upstream may differ in what else they send."""
    return not batches or next_ is None or bool(batches[-1].schema == next_.schema)
