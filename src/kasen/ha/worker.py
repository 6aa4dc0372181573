"""The working thread of a node: takes what has come, runs it, and puts the answers out.

Work is done without the node's lock, results are put into the queues with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kasen.errors import KasenError
from kasen.ha.config import SECONDARY
from kasen.ha.link.wire import BEGIN, LinkPiece
from kasen.ha.work.sink import SinkWork
from kasen.ha.work.work import AppWork, Result

if TYPE_CHECKING:
    from kasen.ha.node import Node

#: A state is marked at most so often: marks are what input is released by.
_MARK_SECONDS = 0.01
#: From one run of a secondary's work to the next, at least.
_STRIDE_SECONDS = 0.02


class Worker:
    """An edge has no work: it reads its own files, and calls `put_out`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Whether a run goes on.
        self.works = False
        #: Seconds that the work of a tuple takes.
        self.service: float | None = None
        self._worked_at = 0.0
        self._unacknowledged = 0
        self._marked = 0.0
        self._started = node.work is None

    def loop(self) -> None:
        """Until the node ends."""
        node = self._node
        try:
            while not node.stopping.is_set():
                self.work_once()
        except KasenError as fault:
            node.fail(fault)
        except Exception as fault:
            node.log.exception("broken")
            node.fail(KasenError(f"{node.config.name}: {type(fault).__name__}: {fault}"))

    def work_once(self) -> None:
        node, work = self._node, self._node.work
        assert work is not None
        with node.lock:
            while node.receiver.is_empty():
                if node.stopping.is_set():
                    return
                node.work_ready.wait(0.5)
            self._keep_stride()
            restart = node.receiver.begin_anew()
            pieces = node.receiver.take()
            self.works = True
        if restart is not None:
            work.begin(restart)
        begin = time.perf_counter()
        result = work.process(pieces)
        if rows := sum(piece.rows for _, piece in pieces):
            each = (time.perf_counter() - begin) / rows
            self.service = each if self.service is None else self.service + 0.1 * (each - self.service)
        self.put_out(result)
        with node.lock:
            self._note_worked(pieces, result)

    def _note_worked(self, pieces: list[tuple[str, LinkPiece]], result: Result) -> None:
        node = self._node
        self.works = False
        self._worked_at = time.monotonic()
        for stream, piece in pieces:
            node.worked[stream] = piece.upto
            node.inboxes[stream].worked_rows += piece.rows
            self._unacknowledged += piece.rows
        if self._unacknowledged > node.config.queue // 4:
            self._unacknowledged = 0
            node.acks_ready.notify_all()
        if isinstance(node.work, AppWork) and node.is_primary and node.history is None:
            node.releases.note(result.upto, node.worked)
            if node.snapshot_wanted:
                node.snapshot_wanted = False
                node.snapshot = node.take_snapshot()
        node.work_done.notify_all()

    def _keep_stride(self) -> None:
        """Nobody waits for a secondary's answers: it lets input gather, and leaves the CPU to primaries."""
        node, due = self._node, self._worked_at + _STRIDE_SECONDS
        while node.role == SECONDARY and not node.takes_over and not node.stopping.is_set():
            if (left := due - time.monotonic()) <= 0:
                return
            node.role_changes.wait(left)

    def put_out(self, result: Result) -> None:
        """Answers into the queues; waits while the downstream primary is too far behind."""
        node = self._node
        with node.lock:
            if node.receiver.resets:
                return  # answers of a state that has a gap
            for output in node.outputs:
                if result.upto > output.queue.upto or result.ended:
                    output.queue.append(result.answers.get(output.link.query), result.upto, result.ended)
            if isinstance(node.work, AppWork):
                self._after_work()
            elif isinstance(node.work, SinkWork) and result.ended:
                node.finish()
            node.send_ready.notify_all()
            while node.is_primary and not node.stopping.is_set() and self._is_full():
                node.room.wait(0.2)

    def _after_work(self) -> None:
        node, now = self._node, time.monotonic()
        if (history := node.history) is not None and now - self._marked >= _MARK_SECONDS:
            history.mark()
            self._marked = now
        if not self._started and all(inbox.received > BEGIN for inbox in node.inboxes.values()):
            self._started = True
        if self._started and node.is_primary:
            node.receiver.keep_logs(False)
        node.check_finished()

    def _is_full(self) -> bool:
        node = self._node
        for output in node.outputs:
            received = output.heard[node.known[output.link.node].primary].received
            if output.queue.rows_since(received) > node.config.queue:
                return True
        return False
