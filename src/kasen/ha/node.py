"""One copy of a node: what it holds, what it knows of its neighbours, and which role it has.

There is one lock for all of it. What comes in is the receiver's part (receiver.py), what is made of it the
working thread's (worker.py); acknowledgements.py has what copies tell each other.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from kasen.errors import DataError, KasenError
from kasen.ha.config import PRIMARY, SECONDARY, NodeConfig
from kasen.ha.link.inbox import Inbox
from kasen.ha.link.releases import Releases
from kasen.ha.link.wire import BEGIN
from kasen.ha.node_state import KnownPrimary, OutputLink
from kasen.ha.receiver import Receiver
from kasen.ha.takeover import snapshots
from kasen.ha.takeover.snapshots import Snapshot
from kasen.ha.work.sink import SinkWork
from kasen.ha.work.work import AppWork
from kasen.ha.worker import Worker
from kasen.runtime.history import History


class Node:
    """The state of a copy, guarded by `lock`; the conditions on it tell its threads what has changed."""

    def __init__(self, config: NodeConfig, work: AppWork | SinkWork | None) -> None:
        """Without work, an edge."""
        self.config = config
        self.work = work
        self.log = logging.getLogger(f"kasen.ha.{config.name}")
        self.lock = threading.RLock()
        self.work_ready = threading.Condition(self.lock)
        self.send_ready = threading.Condition(self.lock)
        self.acks_ready = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.work_done = threading.Condition(self.lock)
        self.role_changes = threading.Condition(self.lock)
        self.role = config.role
        self.generation = 1
        self.known = {
            link.node: KnownPrimary(1, link.copies[0]) for link in (*config.inputs, *config.outputs)
        }
        self.inboxes = {link.stream: Inbox(link) for link in config.inputs}
        self.outputs: list[OutputLink] = []
        self.stopping = threading.Event()
        self.verdict: str | None = None
        self.fault: KasenError | None = None
        self.finished = False
        self.version = 0
        self.exchanges = 0
        self.measured: dict[str, Any] = {}
        self.worked = {link.stream: BEGIN for link in config.inputs}
        #: Snapshots keep the other copy up to date, because recent input cannot.
        history = isinstance(work, AppWork) and work.why_history is not None
        self.is_passive = config.peer is not None and (history or config.standby == "passive")
        self.snapshot: Snapshot | None = None
        self.snapshot_wanted = False
        #: A primary that was fenced and does not know yet whether the other copy leads: it sends nothing, and
        #: keeps its state, which may be the only one.
        self.suspended = False
        #: When the other copy last answered, by the monotonic clock, and whether it could take over.
        self.peer_heard = time.monotonic()
        self.peer_holds = False
        #: Why this copy does not lead although the other one does not either.
        self.waits_for: str | None = None
        self.releases = Releases(alone=config.peer is None)
        self.takes_over = False
        self.receiver = Receiver(self)
        self.worker = Worker(self)
        if isinstance(work, SinkWork):
            for stream, inbox in self.inboxes.items():
                inbox.received, inbox.ended = work.positions[stream], work.ended[stream]
                self.learn(inbox.link.node, *work.leaders[stream])
        self.receiver.keep_logs(isinstance(work, AppWork))

    def add_outputs(self, outputs: list[OutputLink]) -> None:
        self.outputs = outputs
        for output in outputs:
            output.batch = 1 if isinstance(self.config.batch, str) else self.config.batch

    # ------------------------------------------------------------ roles

    @property
    def is_primary(self) -> bool:
        return self.role == PRIMARY

    @property
    def waits_for_snapshots(self) -> bool:
        """A passive copy has no use for input, until it begins to take over."""
        return self.follows_snapshots and not self.takes_over

    @property
    def follows_snapshots(self) -> bool:
        """Whether this copy's state is the last snapshot that it was sent."""
        return self.is_passive and self.role == SECONDARY and not self.suspended

    def learn(self, name: str, generation: int, primary: str) -> None:
        """News of a neighbour's generation; whoever is behind is not listened to any more."""
        known = self.known[name]
        if generation > known.generation:
            self.log.info("%s is now %s, generation %d", name, primary, generation)
            self.known[name] = KnownPrimary(generation, primary)
            if isinstance(self.work, SinkWork):
                for inbox in self.inboxes.values():
                    if inbox.link.node == name:
                        self.work.leaders[inbox.link.stream] = generation, primary
            self.send_ready.notify_all()

    @property
    def holds_input(self) -> bool:
        """Whether this copy has anything to take over with."""
        if self.waits_for_snapshots:
            return self.snapshot is not None
        return any(inbox.received > BEGIN for inbox in self.inboxes.values())

    def positions(self) -> dict[str, int]:
        """How far this copy has each input, if it were to lead now. Called with the lock."""
        if self.follows_snapshots and self.snapshot is not None:
            return dict(self.snapshot.positions)
        return {stream: inbox.received for stream, inbox in self.inboxes.items()}

    def output_starts(self) -> list[int]:
        """Since when this copy has each output's answers, if it were to lead now. Called with the lock."""
        if self.follows_snapshots and self.snapshot is not None:
            return [int(marks["start"]) for marks, _ in self.snapshot.outputs]
        return [output.queue.start for output in self.outputs]

    @property
    def rebuilds(self) -> bool:
        """Whether this copy can start in the middle, if upstream says how.

        A suspended primary cannot: it no longer has the log of its input. Started anew, it can.
        """
        return not self.is_passive and not self.suspended and self.work is not None

    def promote(self, generation: int) -> None:
        with self.lock:
            self.role, self.generation = PRIMARY, generation
            self.suspended = self.takes_over = False
            self.snapshot = self.waits_for = None
            self.role_changes.notify_all()
            self.send_ready.notify_all()
            self.acks_ready.notify_all()

    def fence(self, generation: int) -> None:
        """Somebody has granted a later generation to the other copy: this one sends nothing from now on.

        It keeps its state until the other copy is known to lead (`step_down`). If that one gives up or dies
        on the way, this one claims the next generation.
        """
        with self.lock:
            if generation > self.generation and self.is_primary:
                self.log.warning("fenced: generation %d was granted, this is %d", generation, self.generation)
                self.role, self.generation = SECONDARY, generation
                self.suspended = True
                self.snapshot = None
                self.role_changes.notify_all()

    def step_down(self, why: str) -> None:
        """The other copy leads: this one starts anew as the secondary, with nothing of its old state."""
        with self.lock:
            if not self.stopping.is_set():
                self.log.warning("%s: starting anew as the secondary", why)
                self.role = SECONDARY
                self.end("fenced")

    def end(self, verdict: str) -> None:
        with self.lock:
            self.verdict = self.verdict or verdict
            self.stopping.set()
            for condition in (
                self.work_ready,
                self.send_ready,
                self.acks_ready,
                self.room,
                self.role_changes,
            ):
                condition.notify_all()

    def fail(self, fault: KasenError) -> None:
        if self.stopping.is_set():
            return  # what is being torn down may well break
        self.log.error("%s", fault)
        self.fault = fault
        self.end("failed")

    # ------------------------------------------------------------ snapshots

    def take_snapshot(self) -> Snapshot | None:
        """The state between two runs, with what downstream may still ask for; None while a run goes on.

        The working thread takes it after the run that was going on, if `snapshot_wanted`.
        """
        with self.lock:
            if self.worker.works or not self.is_primary or not isinstance(self.work, AppWork):
                return None
            return snapshots.take(self.worked, self.work.snapshot(), self.outputs)

    def confirmed(self, snapshot: Snapshot) -> None:
        """The other copy has the snapshot: what went into it is needed no more."""
        with self.lock:
            if self.releases.confirm(snapshot.positions):
                self.tell_upstream()

    def take_snapshot_in(self, snapshot: Snapshot) -> None:
        """On the secondary: the newest state of the primary.

        Not any more when this copy takes over: neighbours send it what follows the state it claimed with.
        The old primary, which was only slow, must not take its snapshot for confirmed.
        """
        with self.lock:
            if self.suspended:
                self.step_down("the other copy sends its state")
            if self.is_primary or self.takes_over or self.stopping.is_set():
                raise DataError(f"{self.config.name}: this copy does not follow the other one now")
            if snapshot.positions.keys() != self.inboxes.keys() or len(snapshot.outputs) != len(self.outputs):
                raise DataError(f"{self.config.name}: a snapshot of a node with other links")
            self.snapshot = snapshot
            for stream, inbox in self.inboxes.items():
                inbox.received = snapshot.positions[stream]

    def begin_takeover(self) -> None:
        """From now on this copy takes input, and no snapshots."""
        with self.lock:
            self.takes_over = True
            self.role_changes.notify_all()

    def give_up(self) -> None:
        """Another copy leads after all, or none can."""
        with self.lock:
            self.takes_over = False

    def restore_snapshot(self) -> None:
        """Before leading: this copy becomes what the primary was at its last snapshot, if it follows any."""
        with self.lock:
            snapshot = self.snapshot
            if not self.follows_snapshots or snapshot is None or not isinstance(self.work, AppWork):
                return
            while self.worker.works and not self.stopping.is_set():
                self.work_done.wait(0.1)
            self.work.begin(None)
            self.work.restore(snapshot.state, snapshot.positions)
            for stream, inbox in self.inboxes.items():
                inbox.skip_to(snapshot.positions[stream])
                self.worked[stream] = snapshot.positions[stream]
            for output, (marks, batch) in zip(self.outputs, snapshot.outputs, strict=True):
                output.queue.reset(marks["start"])
                output.queue.restart = marks["restart"]
                output.queue.append(batch, marks["upto"], marks["ended"])

    # ------------------------------------------------------------ releases and the end

    @property
    def history(self) -> History | None:
        """What the state follows from, if recent input can rebuild it."""
        return self.work.history if isinstance(self.work, AppWork) and not self.is_passive else None

    def tell_upstream(self) -> None:
        """There is news for an acknowledgement, which does not wait for its interval."""
        self.version += 1
        self.acks_ready.notify_all()

    def check_finished(self) -> None:
        """Finished is who has answered everything and whose downstream nodes are finished too."""
        if self.finished or not self.is_primary or not self.outputs:
            return
        if all(output.queue.ended and output.finished for output in self.outputs):
            self.finish()

    def finish(self) -> None:
        with self.lock:
            self.finished = True
            self.tell_upstream()
