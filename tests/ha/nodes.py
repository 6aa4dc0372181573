"""Real node processes for tests: started from a warm fork server, killed, stopped, cut off and healed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kasen.ha.cluster import Cluster, ClusterMember, members_of, write_node_file
from kasen.ha.link.wire import BEGIN, Json
from tests.ha.relay import Relay, Route
from tests.ha.warm import run_member

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.ha.warm"])


class Nodes(Cluster):
    """A cluster whose members are children of the fork server."""

    def __init__(
        self, folder: Path, given: dict[str, Any], members: list[ClusterMember] | None = None
    ) -> None:
        super().__init__(members or members_of({"folder": "run", **given}, folder))
        self._processes: dict[str, BaseProcess] = {}

    def __enter__(self) -> Nodes:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            self.signal(member, signal.SIGKILL)
        for process in self._processes.values():
            process.join(60)

    def start(self, member: ClusterMember) -> None:
        write_node_file(member)
        process = _CONTEXT.Process(target=run_member, args=(str(member.file), str(member.log)), daemon=False)
        process.start()
        self._processes[member.name] = process

    def pid(self, member: ClusterMember) -> int | None:
        process = self._processes.get(member.name)
        return process.pid if process is not None and process.is_alive() else None

    def signal(self, member: ClusterMember, number: signal.Signals) -> None:
        """To the member's whole process group."""
        pid = self.pid(member)
        if pid is not None:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                os.kill(pid, number)  # it has no group of its own yet
            if number == signal.SIGKILL:
                self._processes[member.name].join(60)

    def names(self) -> list[str]:
        """The nodes, from the sources on."""
        return list(dict.fromkeys(member.node for member in self.members))

    def member(self, name: str) -> ClusterMember:
        return self.find(name)[0]

    def leader(self, node: str) -> ClusterMember | None:
        """The copy that says it leads."""
        for member in self.find(node):
            if self.pid(member) is not None and (self.status(member) or {}).get("role") == "primary":
                return member
        return None

    def wait_for(self, node: str, what: str, seconds: float = 120.0) -> Json:
        """Until a copy of the node has measured something; returns its status."""
        due = time.monotonic() + seconds
        while time.monotonic() < due:
            for member in self.find(node):
                status = self.status(member) if self.pid(member) is not None else None
                if status is not None and (what in status["measured"] or status.get(what)):
                    return status
            time.sleep(0.02)
        raise AssertionError(f"{node} has no {what} after {seconds} s:\n{self.logs()}")

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120.0) -> float:
        """How long it took."""
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() - begin < seconds, self.logs()
            time.sleep(0.02)
        return time.monotonic() - begin

    def finish(self, node: str, seconds: float = 300.0) -> None:
        """Waits until the members of a node have ended by themselves."""
        due = time.monotonic() + seconds
        for member in self.find(node):
            process = self._processes[member.name]
            process.join(max(0.0, due - time.monotonic()))
            assert not process.is_alive(), f"{member.name} does not end:\n{self.logs()}"

    def exit_code(self, member: ClusterMember) -> int | None:
        """None while it runs."""
        return self._processes[member.name].exitcode

    def logs(self) -> str:
        texts = [f"== {each.name}\n{each.log.read_text()}" for each in self.members if each.log.exists()]
        return "\n".join(texts)


def has_released(nodes: Nodes) -> bool:
    """Whether the source of a chain has dropped what it had sent first."""
    state = nodes.status(nodes.member("source"))
    return state is not None and state["outputs"]["sent -> n"]["start"] > BEGIN


def through(
    relay: Relay, member: ClusterMember, routes: dict[tuple[str, str], Route] | None = None
) -> ClusterMember:
    """The member, reaching all others through the relay; `routes` is told the way from each to each.

    The tests themselves ask nodes directly: they share the relay's process.
    """
    links = [*member.config.inputs, *member.config.outputs]
    others = {copy for link in links for copy in link.copies} | {member.config.peer} - {None}
    dialled = {}
    for address in sorted(str(each) for each in others):
        route = relay.add(address)
        if routes is not None:
            routes[member.config.listen, address] = route
        dialled[f'"{address}"'] = f"127.0.0.1:{route.port}"
    return replace(member, settings={**member.settings, "routes": dialled})
