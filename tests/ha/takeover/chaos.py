"""One round of chaos: a chain under load, to whose nodes random things happen at random moments."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kasen.ha.cluster import ClusterMember, members_of
from tests.ha.chains import OPERATORS, WITH_HISTORY, chain, make_chain
from tests.ha.nodes import Nodes, through
from tests.ha.relay import Relay, Route

BATCHES: tuple[int | str, ...] = (1, 20, 100, 500, "infinite")
FAULTS = ("kill", "kill and heal", "stop", "cut", "kill secondary", "one after another", "neighbours")


@dataclass(frozen=True)
class Round:
    """Everything that a seed decides, so that a round can be told and repeated."""

    seed: int
    operator: str
    batch: int | str
    fault: str
    node: str
    after: float

    @staticmethod
    def drawn(seed: int) -> Round:
        random = Random(seed)
        # Every operator, batch size and fault comes up early; which ones meet is chance.
        operators = [*OPERATORS, *WITH_HISTORY]
        return Round(
            seed,
            operators[seed % len(operators)],
            BATCHES[seed % len(BATCHES)] if seed < len(operators) else random.choice(BATCHES),
            FAULTS[seed % len(FAULTS)],
            random.choice(["n", "d"]),
            random.uniform(0.2, 1.2),
        )


class Chaos:
    """The nodes of a round, with a relay on every way from one copy to another."""

    def __init__(self, folder: Path, round_: Round, rows: int, rate: int) -> None:
        self.round = round_
        self.relay = Relay()
        make_chain(folder, round_.operator, rows, rate)
        given = chain(rate=rate, batch=round_.batch, snapshot_interval="200ms")
        self._routes: dict[tuple[str, str], Route] = {}
        members = members_of({"folder": "run", **given}, folder)
        self.nodes = Nodes(folder, {}, [through(self.relay, member, self._routes) for member in members])

    def around(self, member: ClusterMember) -> list[Route]:
        return [route for ends, route in self._routes.items() if member.config.listen in ends]

    # ------------------------------------------------------------ faults

    def strike(self) -> None:
        """Lets the round's fault happen, and heals what it broke."""
        nodes, round_ = self.nodes, self.round
        match round_.fault:
            case "kill":
                self._kill(round_.node)
            case "kill and heal":
                self._kill(round_.node)
                nodes.heal(round_.node)
            case "stop":
                if (leader := self._leader(round_.node)) is not None:
                    nodes.signal(leader, signal.SIGSTOP)
                    time.sleep(1.2)
                    nodes.signal(leader, signal.SIGCONT)
            case "cut":
                leader = self._leader(round_.node)
                routes = [] if leader is None else self.around(leader)
                self.relay.cut(routes)
                time.sleep(1.2)
                self.relay.join(routes)
            case "kill secondary":
                second = next(each for each in nodes.find(round_.node) if each != self._leader(round_.node))
                nodes.signal(second, signal.SIGKILL)
                nodes.heal(round_.node)
            case "one after another":
                self._kill(round_.node)
                nodes.heal(round_.node)
                self._wait_until_ready(round_.node)
                self._kill(round_.node)
            case "neighbours":
                self._kill("n")
                self._leader("n")
                self._kill("d")

    def _kill(self, node: str) -> None:
        if (leader := self._leader(node)) is not None:
            self.nodes.signal(leader, signal.SIGKILL)

    def _leader(self, node: str) -> ClusterMember | None:
        """The copy that leads, once one does; None if the node has finished."""
        due = time.monotonic() + 120
        while time.monotonic() < due:
            if (member := self.nodes.leader(node)) is not None or self._has_finished(node):
                return member
            time.sleep(0.02)
        raise AssertionError(f"nobody leads {node}: {self.round}\n{self.nodes.logs()}")

    def _has_finished(self, node: str) -> bool:
        return self.nodes.has_finished(self.nodes.member(node))

    def _wait_until_ready(self, node: str) -> None:
        """Until the healed copy has caught up with its leader."""
        due = time.monotonic() + 120
        while time.monotonic() < due:
            states = [self.nodes.status(member) for member in self.nodes.find(node)]
            ready = all(state is not None and state["ready"] for state in states)
            if ready or self._has_finished(node):
                return
            time.sleep(0.05)
        raise AssertionError(f"{node} has no second copy: {self.round}\n{self.nodes.logs()}")
