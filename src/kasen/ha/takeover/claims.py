"""Who may lead a node: what a copy asks its neighbours before it leads, and what they answer.

A copy that wants to lead first *probes* every neighbour: from where upstream still holds the inputs, and how
far downstream has the answers. Only if it can go on from there, without a gap on either side, is it *fit*,
and only then does it claim the next generation. A claim takes the lead from the primary, which may hold the
only state that is left, so a copy that is not fit must never make one.

Every neighbour grants a generation once. It looks at the positions again when it grants it, as the old
primary may have moved them since the probe. A copy that some neighbours granted and one refused gives up; the
old primary, which those have fenced, then claims the generation after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from kasen.errors import DataError
from kasen.ha.acknowledgements import acknowledge
from kasen.ha.config import PRIMARY
from kasen.ha.link.wire import BEGIN, FAULTS, Json, reason
from kasen.ha.node import Node
from kasen.runtime.history import Restart

_RETRY_SECONDS = 0.02


class Rewindable(Protocol):
    """The sending end of a link, as far as claims are concerned."""

    @property
    def target(self) -> tuple[str, str]: ...

    @property
    def stream(self) -> str: ...

    def rewind(self, position: int) -> None: ...


class AskReplica(Protocol):
    """A question to another copy; one of FAULTS if it does not answer."""

    def __call__(self, address: str, action: str, body: Json, /) -> Json: ...


# ---------------------------------------------------------------- the neighbour


class Grants:
    """What this copy answers to a neighbour's copy that wants to lead."""

    def __init__(self, node: Node, senders: list[Rewindable], copies: Mapping[str, tuple[str, ...]]) -> None:
        self._node = node
        self._senders = senders
        self._copies = copies
        #: Whether this copy is about to lead itself: it then answers for its node, whose primary is gone.
        self.claiming = False

    def probe(self, question: Json) -> Json:
        """What this copy has for a neighbour and of it. Changes nothing."""
        node, name = self._node, question["node"]
        with node.lock:
            known = node.known[name]
            outputs = [each for each in node.outputs if each.link.node == name]
            boxes = [box for box in node.inboxes.values() if box.link.node == name]
            return {
                "ok": True,
                "role": node.role,
                "claims": self.claiming,
                "g": known.generation,
                "held": {
                    each.link.stream: {"start": each.queue.start, "restart": each.queue.restart}
                    for each in outputs
                },
                "ends": {each.link.stream: each.queue.upto for each in outputs},
                "received": {box.link.stream: acknowledge(node, box)["received"] for box in boxes},
            }

    def claim(self, claim: Json) -> Json:
        node = self._node
        name, generation, copy = claim["node"], claim["g"], claim["copy"]
        with node.lock:
            if name == node.config.name:
                node.fence(generation)
                return {"ok": True, "role": node.role}
            known = node.known[name]
            if copy not in self._copies[name]:
                raise DataError(
                    f"{copy} is not a copy of {name}; its copies: {', '.join(self._copies[name])}"
                )
            if generation < known.generation or (generation == known.generation and copy != known.primary):
                return {"ok": False, "g": known.generation}
            answer = self.probe(claim)
            for stream, held in answer["held"].items():
                if gap := gap_before(stream, held, claim["positions"][stream], rebuilds=claim["rebuilds"]):
                    return {"ok": False, "g": known.generation, "unfit": gap}
            node.learn(name, generation, copy)
            for sender in self._senders:
                if sender.target == (name, copy):
                    sender.rewind(claim["positions"][sender.stream])
            return answer


def gap_before(stream: str, held: Json, position: int, *, rebuilds: bool) -> str | None:
    """What a copy lacks that has a stream up to `position`, if upstream can neither send nor skip it."""
    if position >= held["start"]:
        return None
    restart = held["restart"]
    if rebuilds and restart is not None and Restart.from_json(restart).of(stream) >= held["start"]:
        return None
    have = "nothing of it" if position == BEGIN else f"it up to {position}"
    return f"upstream holds {stream} only from {held['start']} on, and this copy has {have}"


# ---------------------------------------------------------------- the candidate


class Candidate:
    """Asks the neighbours of a node whether this copy may lead."""

    def __init__(
        self,
        node: Node,
        senders: list[Rewindable],
        copies: Mapping[str, tuple[str, ...]],
        ask: AskReplica,
        grants: Grants,
        primary_is_back: Callable[[], bool],
    ) -> None:
        self._node = node
        self._senders = senders
        self._copies = copies
        self._ask = ask
        self._grants = grants
        self._primary_is_back = primary_is_back
        self.granted: list[str] = []

    def take_over(self, detected: float) -> Json | None:
        """Probes, claims and leads; then how far upstream was, by stream. None if this copy does not lead."""
        self._grants.claiming = True
        self._node.begin_takeover()
        ends = self._claim(detected)
        self._grants.claiming = False
        if ends is None:
            self._node.give_up()
        return ends

    def _claim(self, detected: float) -> Json | None:
        node = self._node
        offers = self._ask_all("probe", {"node": node.config.name})
        if offers is None:
            return None
        if node.finished:
            return {}
        with node.lock:
            node.waits_for = why_unfit(node, offers)
            if node.waits_for is not None:
                return None
        node.restore_snapshot()
        with node.lock:
            # From here on this copy may be granted what fences the primary: whoever asks is told so.
            node.generation = generation = max(node.generation, *(offer["g"] for offer in offers)) + 1
            claim = self._claim_of(generation)
        replies = self._ask_all("claim", claim)
        if replies is None:
            return None
        if node.finished:
            return {}
        self._lead(generation, replies, detected)
        ends: Json = {}
        for reply in replies:
            ends |= reply["ends"]
        return ends

    def _claim_of(self, generation: int) -> Json:
        node = self._node
        claim = {"node": node.config.name, "g": generation, "copy": node.config.listen}
        return {**claim, "positions": node.positions(), "rebuilds": node.rebuilds}

    def last_claim(self) -> Json:
        """For copies that were not asked, so that they know who leads."""
        with self._node.lock:
            return self._claim_of(self._node.generation)

    def _ask_all(self, action: str, body: Json) -> list[Json] | None:
        """The answers of all neighbours, waiting for those that are silent; None if one says no.

        None also if the other copy turns out to lead, as long as nobody has granted anything.
        """
        node = self._node
        missing = list(self._copies)
        replies: list[Json] = []
        while missing and not node.stopping.is_set():
            for name in list(missing):
                reply = self._ask_node(name, action, body)
                if reply is not None and reply["ok"]:
                    replies.append(reply)
                    missing.remove(name)
                elif reply is not None:
                    self._refused(name, reply)
                    return None
            if not missing:
                break
            if node.outputs and all(output.finished for output in node.outputs):
                node.finish()  # the primary died when all was done; those who are missing have left
                return replies
            if (action == "probe" or not replies) and self._primary_is_back():
                return None
            node.waits_for = f"{', '.join(missing)} cannot be asked"
            node.stopping.wait(_RETRY_SECONDS)
        return None if missing else replies

    def _refused(self, name: str, reply: Json) -> None:
        node = self._node
        with node.lock:
            if "unfit" in reply:
                node.waits_for = f"{name}: {reply['unfit']}"
            else:
                node.log.warning("%s has granted generation %d already", name, reply["g"])
            node.generation = max(node.generation, reply["g"])

    def _ask_node(self, name: str, action: str, body: Json) -> Json | None:
        """The answer of the neighbour's primary, or None if none could be asked.

        A neighbour that has lost its primary too cannot be waited for while it waits for this node: then the
        copy that is about to lead there answers for it.
        """
        heir = None
        with self._node.lock:
            first = self._node.known[name].primary
        for copy in sorted(self._copies[name], key=lambda copy: copy != first):
            try:
                reply = self._ask(copy, action, body)
            except FAULTS as fault:
                self._node.log.info("%s at %s: %s", action, copy, reason(fault))
                continue
            reply["copy"] = copy
            if not reply["ok"] or reply["role"] == PRIMARY:
                return reply
            if reply["claims"]:
                heir = reply
        return heir

    def _lead(self, generation: int, replies: list[Json], detected: float) -> None:
        node = self._node
        received = {
            (reply["copy"], stream): upto for reply in replies for stream, upto in reply["received"].items()
        }
        self.granted = [reply["copy"] for reply in replies]
        with node.lock:
            for sender in self._senders:
                if (key := (sender.target[1], sender.stream)) in received:
                    sender.rewind(received[key])
            node.measured["claim"] = time.monotonic() - detected
            node.promote(generation)


def why_unfit(node: Node, offers: list[Json]) -> str | None:
    """What this copy would lack if it led; None if it is fit. Called with the node's lock.

    Upstream must hold each input from where this copy has it, or tell how to start behind the gap. A primary
    downstream must have all answers from before this copy's own, or be told how to start behind them.
    """
    positions = node.positions()
    starts = node.output_starts()
    for offer in offers:
        for stream, held in offer["held"].items():
            if gap := gap_before(stream, held, positions[stream], rebuilds=node.rebuilds):
                return gap
            if positions[stream] < held["start"]:
                at = Restart.from_json(held["restart"]).at
                starts = [max(start, at) for start in starts]
    for output, start in zip(node.outputs, starts, strict=True):
        for offer in offers:
            if offer["copy"] not in output.link.copies or offer["role"] != PRIMARY:
                continue
            if (received := offer["received"][output.link.stream]) < start and output.queue.restart is None:
                return f"{output.link.node} has answers up to {received}, and this copy only from {start} on"
    return None
