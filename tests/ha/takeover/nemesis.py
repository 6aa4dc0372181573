"""A nemesis: round after round of random faults on one running cluster, each followed by a check.

It kills, pauses, cuts off, slows down and disconnects copies, several at once, also while they take over,
heal or send snapshots. It keeps to what Kasen promises (docs/reliability.md): a copy is killed only if the
other one of its node could lead from what it has. Pauses and broken links have no such limit.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kasen.ha.cluster import ClusterMember, members_of
from kasen.ha.config import PRIMARY, SECONDARY
from kasen.ha.link.wire import Json
from tests.ha.nodes import Nodes, through
from tests.ha.relay import Relay, Route

#: What may happen to a copy. Kills come up more often, as not each of them is allowed at once.
FAULTS = ("kill", "kill", "kill", "pause", "pause", "cut", "slow", "drop")
#: Within so many seconds each node has one primary and one secondary again ...
_SETTLE_SECONDS = 5.0
#: ... unless processes queue for the cores: then nobody knows whose seconds they are.
_SETTLE_SECONDS_WHEN_BUSY = 60.0


def _settle_seconds() -> float:
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    return _SETTLE_SECONDS_WHEN_BUSY if is_busy else _SETTLE_SECONDS


@dataclass
class Tally:
    """What the nemesis has done."""

    rounds: int = 0
    kills: int = 0
    pauses: int = 0
    broken_links: int = 0
    slowest_lead: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds: {self.kills} kills, {self.pauses} pauses, {self.broken_links} links cut, "
            f"slowed or dropped; one primary per node again after {self.slowest_lead:.1f} s at most"
        )


class Nemesis:
    """A cluster with a relay on every way from one copy to another, and what happens to it."""

    def __init__(self, folder: Path, given: dict[str, Any], seed: int, *, patience: float = 1.0) -> None:
        """`patience` is how much longer than a local node its slowest node takes for everything."""
        self.random = Random(seed)
        self.seed = seed
        self.tally = Tally()
        self.relay = Relay()
        self._patience = patience
        self._routes: dict[tuple[str, str], Route] = {}
        members = members_of({"folder": "run", **given}, folder)
        self.nodes = Nodes(folder, {}, [through(self.relay, member, self._routes) for member in members])
        self._twofold = [node for node in self.nodes.names() if len(self.nodes.find(node)) == 2]

    # ------------------------------------------------------------ faults

    def round(self) -> None:
        """One to three faults, overlapping in time; then everything is put right again."""
        self.tally.rounds += 1
        paused: list[tuple[float, ClusterMember]] = []
        for _ in range(self.random.randint(1, 3)):
            node = self.random.choice(self._twofold)
            member = self.random.choice(self.nodes.find(node))
            fault = self.random.choice(FAULTS)
            if fault == "kill":
                self._kill(member)
            elif fault == "pause":
                self.tally.pauses += 1
                self.nodes.signal(member, signal.SIGSTOP)
                paused.append((time.monotonic() + self._drawn(0.05, 2.5), member))
            else:
                self._break_links(member, fault)
            time.sleep(self._drawn(0.0, 0.8))
            if self.random.random() < 0.5:
                self._heal()
        for due, member in sorted(paused, key=lambda each: each[0]):
            time.sleep(max(0.0, due - time.monotonic()))
            self.nodes.signal(member, signal.SIGCONT)
        self._mend_links()
        self._heal()

    def _drawn(self, least: float, most: float) -> float:
        return self.random.uniform(least, most) * self._patience

    def _kill(self, member: ClusterMember) -> None:
        """Only if the other copy could lead without this one."""
        other = next(each for each in self.nodes.find(member.node) if each != member)
        if self.nodes.pid(member) is not None and self._could_lead(other):
            self.tally.kills += 1
            self.nodes.signal(member, signal.SIGKILL)

    def _could_lead(self, member: ClusterMember) -> bool:
        """Whether upstream still holds each input from where this copy has it."""
        state = self._state(member)
        if state is None or state["role"] not in (PRIMARY, SECONDARY):
            return False
        if state["role"] == PRIMARY:
            return not state["suspended"]
        if not state["ready"]:
            return False
        if not state["follows_snapshots"]:
            return True
        for link in member.config.inputs:
            upstream = [self._state(each) for each in self.nodes.find(link.node)]
            held = [
                each["outputs"][f"{link.query} -> {member.node}"]["start"]
                for each in upstream
                if each is not None and each["role"] == PRIMARY
            ]
            if not held or state["inputs"][link.stream] < max(held):
                return False
        return True

    def _break_links(self, member: ClusterMember, fault: str) -> None:
        self.tally.broken_links += 1
        routes = [route for ends, route in self._routes.items() if member.config.listen in ends]
        routes = self.random.sample(routes, self.random.randint(1, len(routes)))
        if fault == "cut":
            self.relay.cut(routes)
        elif fault == "drop":
            self.relay.drop(routes)
        else:
            delay = self._drawn(0.0, 0.3)
            for route in routes:
                route.delay = delay

    def _mend_links(self) -> None:
        routes = list(self._routes.values())
        self.relay.join(routes)
        for route in routes:
            route.delay = 0.0

    def _heal(self) -> None:
        for node in self._twofold:
            self.nodes.heal(node)

    # ------------------------------------------------------------ checks

    def settle(self) -> None:
        """Waits until each node that has not finished has exactly one primary and one secondary."""
        begin = time.monotonic()
        due = begin + _settle_seconds() * self._patience
        missing = list(self._twofold)
        while time.monotonic() < due:
            missing = [node for node in self._twofold if not self._is_settled(node)]
            if not missing:
                self.tally.slowest_lead = max(self.tally.slowest_lead, time.monotonic() - begin)
                return
            time.sleep(0.05)
        states = {node: [self._state(each) for each in self.nodes.find(node)] for node in missing}
        raise AssertionError(
            f"seed {self.seed}, round {self.tally.rounds}: not one primary and one secondary: {states}\n"
            f"{self.nodes.logs()}"
        )

    def wait_until_redundant(self, seconds: float = 120.0) -> None:
        """Until a copy of each node could be killed: so that the next round has something to do."""
        due = time.monotonic() + seconds * self._patience
        while time.monotonic() < due:
            if all(
                self.nodes.has_finished(member) or self._could_lead(member)
                for node in self._twofold
                for member in self.nodes.find(node)
            ):
                return
            time.sleep(0.05)
        raise AssertionError(f"seed {self.seed}: a copy does not catch up\n{self.nodes.logs()}")

    def _is_settled(self, node: str) -> bool:
        members = self.nodes.find(node)
        if self.nodes.has_finished(members[0]):
            return True
        states = [self._state(member) for member in members]
        roles = sorted(state["role"] for state in states if state is not None and not state["suspended"])
        return roles == [PRIMARY, SECONDARY]

    def _state(self, member: ClusterMember) -> Json | None:
        return self.nodes.status(member) if self.nodes.pid(member) is not None else None

    @property
    def is_over(self) -> bool:
        return any(self.nodes.has_finished(member) for member in self.nodes.members)
