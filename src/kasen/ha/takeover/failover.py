"""Who is the primary: pings, elections, takeover, and what a copy does when it starts.

Both copies of a node ping each other for as long as they live. A secondary whose primary is silent takes
over, if it is fit (`claims.py`). A primary that was paused or cut off learns from its own pings, of the other
copy and of its neighbours, that a later generation was granted: it sends nothing any more, and starts anew as
the secondary as soon as the other copy leads.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable

from kasen.ha.config import PRIMARY, SECONDARY
from kasen.ha.link.wire import BEGIN, FAULTS, Json, ask, connect, unpack
from kasen.ha.node import Node
from kasen.ha.status import status_of
from kasen.ha.takeover.claims import Candidate, Grants, Rewindable
from kasen.ha.takeover.snapshots import from_bytes

_ASK_SECONDS = 0.3
#: Of the interval between pings, what an answer may take: two silences in a row are then seen within 2.4 of
#: them.
_PING_SHARE = 0.6
#: Pings that show both copies to be secondaries, before a fit one of them leads; a copy that holds nothing
#: leaves it to the other for three times as long.
_TURN = 2
#: Silences in a row that mean a failure; more of them for a copy that was once taken for dead and was not.
PATIENCE, _MOST_PATIENCE = 2, 16
#: How often a copy that never saw its primary looks whether there is anything to take over, and how long it
#: waits for a primary that may still be starting.
_LOOK_SECONDS, _START_SECONDS = 1.0, 10.0
#: How long a copy that starts waits for neighbours that may know it from before.
_GRACE_SECONDS = 3.0


class Failover:
    """The questions that copies ask each other, and the thread that watches the other copy."""

    def __init__(
        self, node: Node, senders: list[Rewindable], promoted: Callable[[], None], patience: int = PATIENCE
    ) -> None:
        self._node = node
        self._promoted = promoted
        self._patience = min(patience, _MOST_PATIENCE)
        config = node.config
        self._ask_seconds = max(_ASK_SECONDS, 2 * config.ping_interval)
        links = (*config.inputs, *config.outputs)
        self._neighbours = {link.node: link.copies for link in links}
        addresses = {copy for link in links for copy in link.copies} | ({config.peer} - {None})
        self._clients = {address: connect(config, address) for address in addresses if address is not None}
        self._grants = Grants(node, senders, self._neighbours)
        self._candidate = Candidate(
            node, senders, self._neighbours, self._ask_copy, self._grants, self._primary_is_back
        )
        self._seen_primary = False
        self._in_turn = itertools.cycle([copy for copies in self._neighbours.values() for copy in copies])
        self.answers: dict[str, Callable[[bytes], Json]] = {
            "ping": lambda _: self._ping(),
            "status": lambda _: status_of(node),
            "seen": lambda body: self._seen(unpack(body)["node"]),
            "probe": lambda body: self._grants.probe(unpack(body)),
            "claim": lambda body: self._grants.claim(unpack(body)),
            "snapshot": self._snapshot,
            "done": lambda _: self._done(),
            "stop": lambda _: self._stop(),
        }

    def _ask(self, address: str, action: str, body: Json, timeout: float | None = None) -> Json:
        return ask(self._node.config, self._clients[address], action, body, timeout or self._ask_seconds)

    def _ask_copy(self, address: str, action: str, body: Json, /) -> Json:
        return self._ask(address, action, body)

    # ------------------------------------------------------------ answers

    def _ping(self) -> Json:
        node = self._node
        claims = self._grants.claiming
        return {"role": node.role, "g": node.generation, "holds": node.holds_input, "claims": claims}

    def _seen(self, name: str) -> Json:
        """What this copy has of a neighbour: whether that one has been at work before."""
        node = self._node
        with node.lock:
            known = node.known[name]
            received = [box.received for box in node.inboxes.values() if box.link.node == name]
            return {"g": known.generation, "received": max(received, default=BEGIN)}

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
        """A copy that was at work before and comes back leaves the lead to the other one, or to an election.

        Neighbours know whether it was. While some of them have not started yet, nobody can tell.
        """
        node, config = self._node, self._node.config
        if node.role == SECONDARY:
            return
        if config.peer is None:
            node.promote(1)
            return
        due = time.monotonic() + _GRACE_SECONDS
        while not node.stopping.is_set():
            peer = self._ping_peer(self._ask_seconds)
            before, generation, unknown = self._was_at_work()
            if before or (peer is not None and peer["role"] == PRIMARY):
                with node.lock:
                    node.role, node.generation = SECONDARY, max(generation, peer["g"] if peer else 1)
                self._seen_primary = before
                return
            if not unknown or time.monotonic() > due:
                node.promote(max(1, generation))
                return
            node.stopping.wait(0.05)

    def _was_at_work(self) -> tuple[bool, int, list[str]]:
        """Whether a neighbour has seen this node at work, its last generation, and who could not be asked."""
        before, generation, unknown = False, 1, []
        for name, copies in self._neighbours.items():
            asked = False
            for copy in copies:
                try:
                    seen = self._ask(copy, "seen", {"node": self._node.config.name})
                except FAULTS:
                    continue
                asked = True
                before = before or seen["received"] > BEGIN or seen["g"] > 1
                generation = max(generation, seen["g"])
            if not asked:
                unknown.append(name)
        return before, generation, unknown

    # ------------------------------------------------------------ watching

    def watch(self) -> None:
        """Pings the other copy until this one ends, and takes over where that is called for."""
        node, interval = self._node, self._node.config.ping_interval
        misses = idle = 0
        begin = heard = looked = time.monotonic()
        while not node.stopping.is_set():
            asked = time.monotonic()
            answer = self._ping_peer(_PING_SHARE * interval)
            if answer is not None:
                misses, heard = 0, time.monotonic()
                node.peer_heard, node.peer_holds = heard, bool(answer["holds"])
            if node.is_primary:
                misses = idle = 0
                self._check_lead(answer)
            else:
                misses, idle = self._count(answer, misses, idle)
                lost = misses >= self._patience and (self._seen_primary or node.suspended)
                if misses and not lost and asked - looked > _LOOK_SECONDS:
                    looked = asked
                    lost = asked - max(begin, heard) > _START_SECONDS or self._was_at_work()[0]
                if lost or idle >= self._turn(answer):
                    node.measured["detection"] = time.monotonic() - heard
                    self._take_over("is silent" if lost else "does not lead")
                    misses = idle = 0
            pause = interval - (time.monotonic() - asked) if misses == 0 else 0.02
            if pause > 0:
                node.stopping.wait(pause)

    def _ping_peer(self, timeout: float) -> Json | None:
        peer = self._node.config.peer
        assert peer is not None
        try:
            return self._ask(peer, "ping", {}, timeout)
        except FAULTS:
            return None

    def _check_lead(self, answer: Json | None) -> None:
        """On a primary: has a later generation been granted while it was paused or cut off?"""
        node = self._node
        if answer is not None and answer["g"] > node.generation:
            if answer["role"] == PRIMARY:
                node.step_down(f"the other copy leads generation {answer['g']}")
            elif not answer["claims"]:
                node.fence(answer["g"])  # it was granted by some, and gave up
            return
        copy = next(self._in_turn)
        try:
            node.fence(self._ask(copy, "seen", {"node": node.config.name})["g"])
        except FAULTS:
            return

    def _count(self, answer: Json | None, misses: int, idle: int) -> tuple[int, int]:
        """On a secondary: pings in a row without an answer, and with one that shows that nobody leads."""
        node = self._node
        if answer is None:
            return misses + 1, 0
        with node.lock:
            leads = answer["role"] == PRIMARY and answer["g"] >= node.generation
            if node.suspended and leads:
                node.step_down(f"the other copy leads generation {answer['g']}")
            node.generation = max(node.generation, answer["g"])
        self._seen_primary = self._seen_primary or answer["role"] == PRIMARY
        if leads:
            node.waits_for = None
        if answer["role"] == SECONDARY and not answer["claims"]:
            return 0, idle + 1
        return 0, 0

    def _turn(self, answer: Json | None) -> float:
        """After how many pings between two secondaries this one tries to lead.

        One that holds nothing leaves it to the other at first; and of two that may lead, one tries earlier.
        """
        node = self._node
        if answer is None:
            return math.inf
        first = node.suspended or node.config.listen < str(node.config.peer)
        turn = _TURN if first else _TURN + 1
        return turn if node.holds_input or not answer["holds"] else 3 * turn

    def _primary_is_back(self) -> bool:
        answer = self._ping_peer(self._ask_seconds) if self._node.config.peer is not None else None
        return answer is not None and answer["role"] == PRIMARY

    def _take_over(self, why: str) -> None:
        node = self._node
        detected = time.monotonic()
        before = node.waits_for
        if before is None:
            node.log.warning("%s %s: taking over", node.config.peer, why)
        ends = self._candidate.take_over(detected)
        if ends is None:
            if node.waits_for is not None and node.waits_for != before:
                node.log.warning("not taking over: %s", node.waits_for)
            if node.suspended and not node.is_passive and node.waits_for is not None:
                node.step_down(node.waits_for)  # started anew, it can be told how to begin
            return
        if node.finished:
            return
        self._promoted()
        claimed = node.measured["claim"] * 1e3
        node.log.warning("primary now, generation %d, %.1f ms after detection", node.generation, claimed)
        threading.Thread(target=self._tell_the_rest, daemon=True).start()
        threading.Thread(target=self._measure, args=(ends, detected), daemon=True).start()

    def _tell_the_rest(self) -> None:
        """The other copies too, so that whoever leads next knows; and the old primary, if it listens."""
        claim = self._candidate.last_claim()
        others = {copy for copies in self._neighbours.values() for copy in copies}
        others.add(str(self._node.config.peer))
        for copy in others.difference(self._candidate.granted):
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

    def tell_peer_done(self) -> None:
        peer = self._node.config.peer
        for _ in range(3):
            try:
                if peer is not None:
                    self._ask(peer, "done", {}, 1.0)
                return
            except FAULTS:
                time.sleep(0.05)
