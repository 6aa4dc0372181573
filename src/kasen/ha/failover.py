"""Who is the primary: pings, claims of a generation, takeover, and what a copy does when it starts.

A secondary whose primary is silent claims the next generation at every neighbour's primary, upstream and
downstream, and only then sends. A neighbour that has granted a generation rejects messages of earlier ones,
so a primary that was only slow, stopped or cut off does no harm: it hears that it is fenced, and starts anew
as the secondary.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

import pyarrow.flight as flight

from kasen.errors import DataError
from kasen.ha.config import PRIMARY, SECONDARY
from kasen.ha.node import Node
from kasen.ha.sender import Sender
from kasen.ha.snapshots import from_bytes, to_bytes
from kasen.ha.status import status_of
from kasen.ha.wire import BEGIN, FAULTS, Json, ask, call_options, connect, reason, unpack

_ASK_SECONDS = 0.3
#: Of the interval between pings, what an answer may take: two silences in a row are then seen within 2.4 of
#: them.
_PING_SHARE = 0.6
#: Pings that show both copies to be secondaries, before one of them leads.
_TURN = 2
#: Silences in a row that mean a failure; more of them for a copy that was once taken for dead and was not.
PATIENCE, _MOST_PATIENCE = 2, 16
#: How long a copy that never saw its primary waits before it looks whether there is anything to take over.
_GRACE_SECONDS = 5.0
_SNAPSHOT_SECONDS = 30.0
_LEASE_SECONDS = 3.0


class Failover:
    """The questions that copies ask each other, and the thread of a secondary that watches its primary."""

    def __init__(
        self, node: Node, senders: list[Sender], promoted: Callable[[], None], patience: int = PATIENCE
    ) -> None:
        self._node = node
        self._senders = senders
        self._promoted = promoted
        self._patience = min(patience, _MOST_PATIENCE)
        self._claims = False
        config = node.config
        self._ask_seconds = max(_ASK_SECONDS, 2 * config.ping_interval)
        links = (*config.inputs, *config.outputs)
        self._neighbours = {link.node: link.copies for link in links}
        addresses = {copy for link in links for copy in link.copies} | ({config.peer} - {None})
        self._clients = {address: connect(config, address) for address in addresses if address is not None}
        self.answers: dict[str, Callable[[bytes], Json]] = {
            "ping": lambda _: self._ping(),
            "status": lambda _: status_of(node),
            "seen": lambda body: self._seen(unpack(body)["node"]),
            "claim": lambda body: self._claimed(unpack(body)),
            "snapshot": self._snapshot,
            "done": lambda _: self._done(),
            "stop": lambda _: self._stop(),
        }

    def _ask(self, address: str, action: str, body: Json, timeout: float | None = None) -> Json:
        return ask(self._node.config, self._clients[address], action, body, timeout or self._ask_seconds)

    # ------------------------------------------------------------ answers

    def _ping(self) -> Json:
        node = self._node
        return {"role": node.role, "g": node.generation, "holds": node.holds_input}

    def _seen(self, name: str) -> Json:
        """What this copy has of a neighbour: whether that one has been at work before."""
        node = self._node
        with node.lock:
            known = node.known[name]
            received = [box.received for box in node.inboxes.values() if box.link.node == name]
            return {"g": known.generation, "received": max(received, default=BEGIN)}

    def _claimed(self, claim: Json) -> Json:
        node = self._node
        name, generation, copy = claim["node"], claim["g"], claim["copy"]
        with node.lock:
            if name == node.config.name:
                node.fence(generation)
                return {"ok": True, "role": node.role}
            known = node.known[name]
            if copy not in self._neighbours[name]:
                raise DataError(f"{copy} is no copy of {name}; those are {', '.join(self._neighbours[name])}")
            if generation < known.generation or (generation == known.generation and copy != known.primary):
                return {"ok": False, "g": known.generation}
            node.learn(name, generation, copy)
            for sender in self._senders:
                if sender.target == (name, copy):
                    sender.rewind(claim["positions"][sender.stream])
            ends = {each.link.stream: each.queue.upto for each in node.outputs if each.link.node == name}
            boxes = node.inboxes.values()
            received = {box.link.stream: node.ack(box)["received"] for box in boxes if box.link.node == name}
            reply = {"ok": True, "role": node.role, "claims": self._claims}
            return {**reply, "received": received, "ends": ends}

    def _snapshot(self, body: bytes) -> Json:
        self._node.take_snapshot_in(from_bytes(body))
        return {}

    def _done(self) -> Json:
        """The primary has finished, so there is nothing to take over any more."""
        if not self._node.is_primary:
            self._node.end("finished")
        return {}

    def _stop(self) -> Json:
        self._node.end("stopped")
        return {}

    # ------------------------------------------------------------ starting

    def decide_role(self) -> None:
        """A copy that was at work before and comes back leaves the lead to the other one."""
        node, config = self._node, self._node.config
        if node.role == SECONDARY or config.peer is None:
            node.promote(1) if node.role != SECONDARY else None
            return
        try:
            peer = self._ask(config.peer, "ping", {})
        except FAULTS:
            peer = None
        before, generation = self._was_at_work()
        if peer is not None and (peer["role"] == PRIMARY or (before and peer["role"] == SECONDARY)):
            with node.lock:
                node.role, node.generation = SECONDARY, max(peer["g"], generation)
        elif before:
            node.log.warning("both copies of %s were lost; what is left is asked for upstream", config.name)
            node.generation = generation
            if not self._take_over(time.monotonic()):
                node.role = SECONDARY  # the other copy was faster
        else:
            node.promote(max(1, generation))

    def _was_at_work(self) -> tuple[bool, int]:
        before, generation = False, 1
        for name, copies in self._neighbours.items():
            for copy in copies:
                try:
                    seen = self._ask(copy, "seen", {"node": self._node.config.name})
                except FAULTS:
                    continue
                del name
                before = before or seen["received"] > BEGIN or seen["g"] > 1
                generation = max(generation, seen["g"])
                break
        return before, generation

    # ------------------------------------------------------------ watching

    def watch(self) -> None:
        """Pings the primary until it is silent several times in a row; then takes over."""
        node, interval = self._node, self._node.config.ping_interval
        peer = node.config.peer
        assert peer is not None
        seen, misses, idle, turn = False, 0, 0, math.inf
        begin = heard = time.monotonic()
        while not node.stopping.is_set() and node.role == SECONDARY:
            asked = time.monotonic()
            try:
                answer = self._ask(peer, "ping", {}, _PING_SHARE * interval)
                misses, heard = 0, time.monotonic()
                node.generation = max(node.generation, answer["g"])
                seen = seen or answer["role"] == PRIMARY
                idle = idle + 1 if answer["role"] == SECONDARY else 0
                turn = self._turn(bool(answer["holds"]))
            except FAULTS:
                misses += 1
                idle = 0
            lost = seen and misses >= self._patience
            if not seen and misses and time.monotonic() - begin > _GRACE_SECONDS:
                lost, begin = self._was_at_work()[0], time.monotonic()
            if lost or idle >= turn:
                node.measured["detection"] = time.monotonic() - heard
                why = "is silent" if lost else "is a secondary too"
                node.log.warning("%s %s: taking over", peer, why)
                if self._take_over(time.monotonic()):
                    return
                misses = idle = 0
            pause = interval - (time.monotonic() - asked) if misses == 0 else 0.02
            if pause > 0:
                node.stopping.wait(pause)

    def _turn(self, other_holds: bool) -> float:
        """After how many pings between two secondaries this one takes the lead.

        One that holds nothing leaves it to the other; with snapshots for good, as the state would be lost.
        """
        if self._node.holds_input or not other_holds:
            return _TURN
        return math.inf if self._node.is_passive else 3 * _TURN

    def _take_over(self, detected: float) -> bool:
        """Claims the next generation everywhere, then leads; False if another copy does."""
        self._claims = True
        done = self._claim_everywhere(detected)
        self._claims = False
        if not done:
            self._node.give_up()
        return done

    def _claim_everywhere(self, detected: float) -> bool:
        node = self._node
        generation = node.generation + 1
        node.restore_snapshot()
        with node.lock:
            positions = {stream: inbox.received for stream, inbox in node.inboxes.items()}
        claim = {
            "node": node.config.name,
            "g": generation,
            "copy": node.config.listen,
            "positions": positions,
        }
        missing = dict(self._neighbours)
        replies: list[Json] = []
        while missing and not node.stopping.is_set():
            for name in list(missing):
                reply = self._claim_at(name, claim)
                if reply is not None and reply["ok"]:
                    replies.append(reply)
                    del missing[name]
                elif reply is not None:
                    node.log.warning("%s has granted generation %d already", name, reply["g"])
                    node.generation = max(node.generation, reply["g"])
                    return False
            if missing and node.outputs and all(output.finished for output in node.outputs):
                node.finish()  # the primary died when all was done; those who are missing have left
                return True
            if missing and not replies and self._primary_is_back():
                return False
            if missing:
                node.stopping.wait(0.02)
        if not missing:
            self._lead(generation, replies, claim, detected)
        return True

    def _claim_at(self, name: str, claim: Json) -> Json | None:
        """The answer of the neighbour's primary, or None if none could be asked.

        A neighbour that has lost its primary too cannot be waited for while it waits for this node: then the
        copy that is about to lead there answers for it.
        """
        heir = None
        with self._node.lock:
            first = self._node.known[name].primary
        copies = sorted(self._neighbours[name], key=lambda copy: copy != first)
        for copy in copies:
            try:
                reply = self._ask(copy, "claim", claim)
            except FAULTS as fault:
                self._node.log.info("claim at %s: %s", copy, reason(fault))
                continue
            reply["copy"] = copy
            if not reply["ok"] or reply["role"] == PRIMARY:
                return reply
            if reply["claims"]:
                heir = reply
        return heir

    def _primary_is_back(self) -> bool:
        try:
            assert self._node.config.peer is not None
            return bool(self._ask(self._node.config.peer, "ping", {})["role"] == PRIMARY)
        except FAULTS:
            return False

    def _lead(self, generation: int, replies: list[Json], claim: Json, detected: float) -> None:
        node = self._node
        ends: dict[str, int] = {}
        received: dict[tuple[str, str], int] = {}
        for reply in replies:
            ends |= reply["ends"]
            received |= {(reply["copy"], stream): upto for stream, upto in reply["received"].items()}
        with node.lock:
            for sender in self._senders:
                if (key := (sender.target[1], sender.stream)) in received:
                    sender.rewind(received[key])
            node.measured["claim"] = time.monotonic() - detected
            node.promote(generation)
        self._promoted()
        node.log.warning(
            "primary now, generation %d, %.1f ms after detection", generation, node.measured["claim"] * 1e3
        )
        threading.Thread(target=self._tell_the_rest, args=(claim,), daemon=True).start()
        threading.Thread(target=self._measure, args=(ends, detected), daemon=True).start()

    def _tell_the_rest(self, claim: Json) -> None:
        """The other copies too, so that whoever leads next knows; and the old primary, if it listens."""
        others = {copy for copies in self._neighbours.values() for copy in copies}
        if self._node.config.peer is not None:
            others.add(self._node.config.peer)
        for copy in others:
            try:
                self._ask(copy, "claim", claim)
            except FAULTS:
                continue

    def _measure(self, ends: Json, detected: float) -> None:
        """Recovery time: until everything that upstream had at the takeover has been worked on."""
        node = self._node
        with node.lock:
            while not node.stopping.is_set() and any(
                node.worked[stream] < end for stream, end in ends.items()
            ):
                node.work_done.wait(0.05)
            node.measured["recovery"] = time.monotonic() - detected
        node.log.warning("recovered %.1f ms after detection", node.measured["recovery"] * 1e3)

    def send_snapshots(self) -> None:
        """Passive Standby: at every interval the newest state goes to the other copy."""
        node, config = self._node, self._node.config
        assert config.peer is not None
        silent_since: float | None = None
        while not node.stopping.wait(config.snapshot_interval):
            if not node.is_primary:
                continue
            with node.lock:
                snapshot, node.snapshot = node.snapshot, None
                node.snapshot_wanted = True
            if snapshot is None:
                continue
            try:
                body = flight.Action("snapshot", to_bytes(snapshot))
                list(self._clients[config.peer].do_action(body, call_options(config, _SNAPSHOT_SECONDS)))
                silent_since = None
                node.confirmed(snapshot)
            except FAULTS as fault:
                silent_since = silent_since or time.monotonic()
                # As long as the other copy may be about to take over, it must find its input.
                if not node.releases.alone and time.monotonic() - silent_since > _LEASE_SECONDS:
                    node.log.warning("no other copy (%s): running without one", reason(fault))
                    node.releases.alone = True

    def tell_peer_done(self) -> None:
        peer = self._node.config.peer
        for _ in range(3):
            try:
                if peer is not None:
                    self._ask(peer, "done", {}, 1.0)
                return
            except FAULTS:
                time.sleep(0.05)
