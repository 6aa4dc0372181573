"""The input side of a node: pieces from upstream go into the inboxes; a gap is bridged, or ends the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasen.errors import DataError
from kasen.ha.config import SECONDARY, STARTING
from kasen.ha.link.inbox import Inbox
from kasen.ha.link.wire import Json, LinkPiece
from kasen.ha.work.sink import SinkWork
from kasen.runtime.history import Restart

if TYPE_CHECKING:
    from kasen.ha.node import Node

_MOST_ROWS = 1 << 16


class Receiver:
    """Guarded by the node's lock, as everything of a node is."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._restart: Restart | None = None
        self._restart_outputs: list[Json | None] = []
        #: There was a gap: what is worked on next begins anew, with the newest restart.
        self.resets = False

    def receive(self, inbox: Inbox, sender: str, meta: Json, piece: LinkPiece) -> None:
        """A complete piece from a copy of an upstream node. DataError ends the connection."""
        node = self._node
        with node.lock:
            # What a piece means, and whether a gap before it matters, depends on which copy this is.
            while node.role == STARTING and not node.stopping.is_set():
                node.room.wait(0.02)
            known = node.known[inbox.link.node]
            if meta["g"] < known.generation:
                raise DataError(f"fenced: {inbox.link.node} has generation {known.generation}")
            node.learn(inbox.link.node, meta["g"], sender)
            if meta["to"] > node.generation:
                node.fence(meta["to"])
            given = meta.get("restart")
            restart = Restart.from_json(given) if given is not None else None
            if restart is not None and not node.is_primary:
                for stream, other in node.inboxes.items():
                    other.release(restart.of(stream))
            if given is not None:
                self._restart_outputs = given.get("outputs", [])
            if piece.start > inbox.received and not node.waits_for_snapshots:
                if not meta.get("gap"):
                    # The sender took this copy to have more than it has. It asks when it connects again.
                    raise DataError(f"{inbox.link.stream} from {piece.start} on, after {inbox.received}")
                self._gap(inbox, piece, restart)
            while inbox.waiting_rows > node.config.queue and not node.stopping.is_set():
                node.room.wait(0.2)
            if node.waits_for_snapshots:
                return  # this copy gets snapshots instead
            inbox.take(piece)
            node.work_ready.notify_all()

    def _gap(self, inbox: Inbox, piece: LinkPiece, restart: Restart | None) -> None:
        """Upstream has released what this copy has not got: then nobody needs it, or it is lost here."""
        node = self._node
        fault = DataError(
            f"{node.config.name} has the input {inbox.link.stream} up to {inbox.received}, and"
            f" {inbox.link.node} holds it only from {piece.start} on"
        )
        if node.suspended or (node.is_primary and node.config.peer is not None):
            # Started anew, this copy may be told how to begin behind the gap; or the other one is fit.
            node.step_down(str(fault))
            raise fault
        if restart is None or restart.of(inbox.link.stream) < piece.start:
            if node.role == SECONDARY:
                raise DataError(f"a gap up to {piece.start} that no release explains")
            lost = f"{fault}: what lies between is lost with the copy that had it"
            end = node.work.gap(lost) if isinstance(node.work, SinkWork) else DataError(lost)
            node.fail(end)
            raise end
        if self._restart is None or restart.at > self._restart.at:
            self._restart, self.resets = restart, True
        inbox.skip_to(piece.start)

    # ------------------------------------------------------------ for the working thread

    def is_empty(self) -> bool:
        """Whether there is nothing to work on."""
        return not self.resets and not any(box.waiting for box in self._node.inboxes.values())

    def begin_anew(self) -> Restart | None:
        """What the state is to begin with behind a gap, if there was one."""
        if not self.resets:
            return None
        assert self._restart is not None
        self.resets = False
        self._node.log.info("starting anew, right from %d on", self._restart.at)
        for index, output in enumerate(self._node.outputs):
            output.queue.reset(self._restart.at)
            if index < len(self._restart_outputs):
                output.queue.restart = self._restart_outputs[index]
        for inbox in self._node.inboxes.values():
            inbox.work_from_log()
        return self._restart

    def take(self) -> list[tuple[str, LinkPiece]]:
        """The next pieces to work on."""
        taken = [(stream, inbox.next(_MOST_ROWS)) for stream, inbox in self._node.inboxes.items()]
        self._node.room.notify_all()
        return [(stream, piece) for stream, piece in taken if piece is not None]

    def keep_logs(self, keep: bool) -> None:
        """Whether inboxes keep what was worked on, to begin anew with it."""
        for inbox in self._node.inboxes.values():
            inbox.keeps_log = keep
            if not keep:
                inbox.log.clear()
