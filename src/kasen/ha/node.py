"""One copy of a node: what it holds, what it knows of its neighbours, and its working thread.

Lock order: there is one lock. Work is done without it, results are put into the queues with it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from kasen.errors import DataError, KasenError
from kasen.ha.config import PRIMARY, SECONDARY, STARTING, NodeConfig
from kasen.ha.link.inbox import Inbox
from kasen.ha.link.releases import Releases
from kasen.ha.link.wire import BEGIN, Json, LinkPiece
from kasen.ha.node_state import KnownPrimary, OutputLink
from kasen.ha.takeover import snapshots
from kasen.ha.takeover.snapshots import Snapshot
from kasen.ha.work.sink import SinkWork
from kasen.ha.work.work import AppWork, Result
from kasen.runtime.history import History, Restart

_MOST_ROWS = 1 << 16
#: A state is marked at most so often: marks are what input is released by.
_MARK_SECONDS = 0.01
#: From one run of a secondary's work to the next, at least.
_STRIDE_SECONDS = 0.02


class Node:
    """The state of a copy, guarded by `lock`; the conditions on it tell its threads what has changed."""

    def __init__(self, config: NodeConfig, work: AppWork | SinkWork | None) -> None:
        """Without work, an edge: it reads its own files and calls `put_out`."""
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
        self.service: float | None = None
        self.worked = {link.stream: BEGIN for link in config.inputs}
        self._restart: Restart | None = None
        self._restart_outputs: list[Json | None] = []
        self._resets = False
        self._marked = 0.0
        self._started = work is None
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
        self._takes_over = False
        self._works = False
        self._worked_at = 0.0
        self._unacknowledged = 0
        if isinstance(work, SinkWork):
            for stream, inbox in self.inboxes.items():
                inbox.received, inbox.ended = work.positions[stream], work.ended[stream]
                self.learn(inbox.link.node, *work.leaders[stream])
        self._keep_logs(isinstance(work, AppWork))

    def add_outputs(self, outputs: list[OutputLink]) -> None:
        self.outputs = outputs
        for output in outputs:
            output.batch = 1 if isinstance(self.config.batch, str) else self.config.batch

    # ------------------------------------------------------------ roles

    @property
    def is_primary(self) -> bool:
        return self.role == PRIMARY

    @property
    def _waits_for_snapshots(self) -> bool:
        """A passive copy has no use for input, until it begins to take over."""
        return self.follows_snapshots and not self._takes_over

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
        if self._waits_for_snapshots:
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
            self.suspended = self._takes_over = False
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

    # ------------------------------------------------------------ input

    def receive(self, inbox: Inbox, sender: str, meta: Json, piece: LinkPiece) -> None:
        """A complete piece from a copy of an upstream node. DataError ends the connection."""
        with self.lock:
            # What a piece means, and whether a gap before it matters, depends on which copy this is.
            while self.role == STARTING and not self.stopping.is_set():
                self.room.wait(0.02)
            known = self.known[inbox.link.node]
            if meta["g"] < known.generation:
                raise DataError(f"fenced: {inbox.link.node} has generation {known.generation}")
            self.learn(inbox.link.node, meta["g"], sender)
            if meta["to"] > self.generation:
                self.fence(meta["to"])
            given = meta.get("restart")
            restart = Restart.from_json(given) if given is not None else None
            if restart is not None and not self.is_primary:
                for stream, other in self.inboxes.items():
                    other.release(restart.of(stream))
            if given is not None:
                self._restart_outputs = given.get("outputs", [])
            if piece.start > inbox.received and not self._waits_for_snapshots:
                if not meta.get("gap"):
                    # The sender took this copy to have more than it has. It asks when it connects again.
                    raise DataError(f"{inbox.link.stream} from {piece.start} on, after {inbox.received}")
                self._gap(inbox, piece, restart)
            while inbox.waiting_rows > self.config.queue and not self.stopping.is_set():
                self.room.wait(0.2)
            if self._waits_for_snapshots:
                return  # this copy gets snapshots instead
            inbox.take(piece)
            self.work_ready.notify_all()

    def _gap(self, inbox: Inbox, piece: LinkPiece, restart: Restart | None) -> None:
        """Upstream has released what this copy has not got: then nobody needs it, or it is lost here."""
        fault = DataError(
            f"{self.config.name} has the input {inbox.link.stream} up to {inbox.received}, and"
            f" {inbox.link.node} holds it only from {piece.start} on"
        )
        if self.suspended or (self.is_primary and self.config.peer is not None):
            # Started anew, this copy may be told how to begin behind the gap; or the other one is fit.
            self.step_down(str(fault))
            raise fault
        if restart is None or restart.of(inbox.link.stream) < piece.start:
            if self.role == SECONDARY:
                raise DataError(f"a gap up to {piece.start} that no release explains")
            fault = DataError(f"{fault}: what lies between is lost with the copy that had it")
            self.fail(fault)
            raise fault
        if self._restart is None or restart.at > self._restart.at:
            self._restart, self._resets = restart, True
        inbox.skip_to(piece.start)

    def _keep_logs(self, keep: bool) -> None:
        for inbox in self.inboxes.values():
            inbox.keeps_log = keep
            if not keep:
                inbox.log.clear()

    # ------------------------------------------------------------ working

    def work_loop(self) -> None:
        """The working thread: takes what has come, runs it, puts out the answers."""
        try:
            while not self.stopping.is_set():
                self._work_once()
        except KasenError as fault:
            self.fail(fault)
        except Exception as fault:
            self.log.exception("broken")
            self.fail(KasenError(f"{self.config.name}: {type(fault).__name__}: {fault}"))

    def _work_once(self) -> None:
        work = self.work
        assert work is not None
        with self.lock:
            while not self._resets and not any(box.waiting for box in self.inboxes.values()):
                if self.stopping.is_set():
                    return
                self.work_ready.wait(0.5)
            self._keep_stride()
            restart = self._begin_anew()
            pieces = self._take()
            self._works = True
        if restart is not None:
            work.begin(restart)
        begin = time.perf_counter()
        result = work.process(pieces)
        if rows := sum(piece.rows for _, piece in pieces):
            each = (time.perf_counter() - begin) / rows
            self.service = each if self.service is None else self.service + 0.1 * (each - self.service)
        self.put_out(result)
        with self.lock:
            self._works = False
            self._worked_at = time.monotonic()
            for stream, piece in pieces:
                self.worked[stream] = piece.upto
                self.inboxes[stream].worked_rows += piece.rows
                self._unacknowledged += piece.rows
            if self._unacknowledged > self.config.queue // 4:
                self._unacknowledged = 0
                self.acks_ready.notify_all()
            if isinstance(work, AppWork) and self.is_primary and self._history(work) is None:
                self.releases.note(result.upto, self.worked)
                if self.snapshot_wanted:
                    self.snapshot_wanted = False
                    self.snapshot = self.take_snapshot()
            self.work_done.notify_all()

    def _keep_stride(self) -> None:
        """Nobody waits for a secondary's answers: it lets input gather, and leaves the CPU to primaries."""
        due = self._worked_at + _STRIDE_SECONDS
        while self.role == SECONDARY and not self._takes_over and not self.stopping.is_set():
            if (left := due - time.monotonic()) <= 0:
                return
            self.role_changes.wait(left)

    # ------------------------------------------------------------ snapshots

    def take_snapshot(self) -> Snapshot | None:
        """The state between two runs, with what downstream may still ask for; None while a run goes on.

        The working thread takes it after the run that was going on, if `snapshot_wanted`.
        """
        with self.lock:
            if self._works or not self.is_primary or not isinstance(self.work, AppWork):
                return None
            return snapshots.take(self.worked, self.work.snapshot(), self.outputs)

    def confirmed(self, snapshot: Snapshot) -> None:
        """The other copy has the snapshot: what went into it is needed no more."""
        with self.lock:
            if self.releases.confirm(snapshot.positions):
                self._tell_upstream()

    def take_snapshot_in(self, snapshot: Snapshot) -> None:
        """On the secondary: the newest state of the primary.

        Not any more when this copy takes over: neighbours send it what follows the state it claimed with.
        The old primary, which was only slow, must not take its snapshot for confirmed.
        """
        with self.lock:
            if self.suspended:
                self.step_down("the other copy sends its state")
            if self.is_primary or self._takes_over or self.stopping.is_set():
                raise DataError(f"{self.config.name}: this copy does not follow the other one now")
            if snapshot.positions.keys() != self.inboxes.keys() or len(snapshot.outputs) != len(self.outputs):
                raise DataError(f"{self.config.name}: a snapshot of a node with other links")
            self.snapshot = snapshot
            for stream, inbox in self.inboxes.items():
                inbox.received = snapshot.positions[stream]

    def begin_takeover(self) -> None:
        """From now on this copy takes input, and no snapshots."""
        with self.lock:
            self._takes_over = True
            self.role_changes.notify_all()

    def give_up(self) -> None:
        """Another copy leads after all, or none can."""
        with self.lock:
            self._takes_over = False

    def restore_snapshot(self) -> None:
        """Before leading: this copy becomes what the primary was at its last snapshot, if it follows any."""
        with self.lock:
            snapshot = self.snapshot
            if not self.follows_snapshots or snapshot is None or not isinstance(self.work, AppWork):
                return
            while self._works and not self.stopping.is_set():
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

    def _begin_anew(self) -> Restart | None:
        if not self._resets:
            return None
        assert self._restart is not None
        self._resets = False
        self.log.info("starting anew, right from %d on", self._restart.at)
        for index, output in enumerate(self.outputs):
            output.queue.reset(self._restart.at)
            if index < len(self._restart_outputs):
                output.queue.restart = self._restart_outputs[index]
        for inbox in self.inboxes.values():
            inbox.work_from_log()
        return self._restart

    def _take(self) -> list[tuple[str, LinkPiece]]:
        taken = [(stream, inbox.next(_MOST_ROWS)) for stream, inbox in self.inboxes.items()]
        self.room.notify_all()
        return [(stream, piece) for stream, piece in taken if piece is not None]

    def put_out(self, result: Result) -> None:
        """Answers into the queues; waits while the downstream primary is too far behind."""
        with self.lock:
            if self._resets:
                return  # answers of a state that has a gap
            for output in self.outputs:
                if result.upto > output.queue.upto or result.ended:
                    output.queue.append(result.answers.get(output.link.query), result.upto, result.ended)
            if isinstance(self.work, AppWork):
                self._after_work(self.work)
            elif isinstance(self.work, SinkWork) and result.ended:
                self.finish()
            self.send_ready.notify_all()
            while self.is_primary and not self.stopping.is_set() and self._is_full():
                self.room.wait(0.2)

    def _after_work(self, work: AppWork) -> None:
        now = time.monotonic()
        if (history := self._history(work)) is not None and now - self._marked >= _MARK_SECONDS:
            history.mark()
            self._marked = now
        if not self._started and all(inbox.received > BEGIN for inbox in self.inboxes.values()):
            self._started = True
        if self._started and self.is_primary:
            self._keep_logs(False)
        self.check_finished()

    def _is_full(self) -> bool:
        for output in self.outputs:
            received = output.heard[self.known[output.link.node].primary].received
            if output.queue.rows_since(received) > self.config.queue:
                return True
        return False

    # ------------------------------------------------------------ acknowledgements

    def heard(self, output: OutputLink, copy: str, ack: Json) -> None:
        """A level-0 acknowledgement from a downstream copy, with what that node itself releases."""
        with self.lock:
            if ack["role"] == PRIMARY:
                self.learn(output.link.node, ack["g"], copy)
            heard = output.heard[copy]
            output.connected = True
            # Not the most ever heard: a copy that was started again has less than the one before it.
            heard.received = ack["received"]
            heard.takes_batches = not ack.get("snapshots")
            if "service" in ack:
                output.cost.saw_service(ack["service"])
            if copy == self.known[output.link.node].primary:
                if ack.get("release") is not None:
                    if ack["release"] > output.queue.start:
                        total = output.queue.row_number(output.queue.upto)
                        output.cost.saw_peak(len(output.queue), total - output.arrived)
                        output.arrived = total
                        self._adapt(output)
                    output.queue.release(ack["release"], ack.get("restart"))
                output.finished = output.finished or bool(ack.get("finished"))
            self._pass_on()
            self.check_finished()
            self.room.notify_all()

    def _adapt(self, output: OutputLink) -> None:
        """batch = "auto": the size that keeps the bound, as load is now."""
        config = self.config
        if config.batch != "auto":
            return
        if config.max_recovery is not None:
            output.batch, kept = output.cost.batch_for_recovery(config.max_recovery)
        else:
            assert config.max_overhead is not None
            output.batch, kept = output.cost.batch_for_overhead(config.max_overhead)
        if kept != output.bound_kept:
            output.bound_kept = kept
            text = "can be kept again" if kept else "cannot be kept, not even with batch 1"
            expected = output.cost.recovery(output.batch) * 1e3
            self.log.warning("the bound for %s %s: recovery is %.0f ms", output.link.node, text, expected)

    def _pass_on(self) -> None:
        """The level-1 acknowledgement: what upstream may forget, as all downstream nodes are done with it."""
        if isinstance(self.work, AppWork) and self.outputs:
            done = min(self._done(output) for output in self.outputs)
            if self.releases.follow(done, self._history(self.work), leads=self.is_primary):
                self._tell_upstream()

    def _history(self, work: AppWork) -> History | None:
        """What the state follows from, if recent input can rebuild it."""
        return None if self.is_passive else work.history

    def _tell_upstream(self) -> None:
        """There is news for an acknowledgement, which does not wait for its interval."""
        self.version += 1
        self.acks_ready.notify_all()

    def _done(self, output: OutputLink) -> int:
        """Below this, a downstream node never asks for answers again."""
        primary = output.heard[self.known[output.link.node].primary].received
        if self.config.ack == "document" or len(output.heard) == 1:
            return primary
        # The downstream secondary must find what it may still ask for, even if this copy dies and a new one
        # takes over, and then the downstream primary dies too.
        second = min(heard.received for heard in output.heard.values())
        return min(primary, max(second, output.queue.start))

    def ack(self, inbox: Inbox) -> Json:
        """What an upstream copy is told."""
        ack: Json = {"role": self.role, "g": self.generation, "received": inbox.received}
        if isinstance(self.work, SinkWork):
            position = self.work.positions[inbox.link.stream]
            ack |= {"received": position, "release": position}
        elif self.is_primary:
            ack |= self.releases.told(inbox.link.stream, self.outputs)
        if self.is_passive and not self.is_primary:
            ack["snapshots"] = True
        if self.service is not None:
            ack["service"] = self.service
        if self.finished:
            ack["finished"] = True
        return ack

    # ------------------------------------------------------------ the end

    def check_finished(self) -> None:
        """Finished is who has answered everything and whose downstream nodes are finished too."""
        if self.finished or not self.is_primary or not self.outputs:
            return
        if all(output.queue.ended and output.finished for output in self.outputs):
            self.finish()

    def finish(self) -> None:
        with self.lock:
            self.finished = True
            self._tell_upstream()
