"""cluster.toml: a whole topology on one machine, one process a copy.

folder = "run"                      # where node files, logs and process ids go
port = 7100                         # the first of consecutive ports; without it, free ones are taken
[defaults]                          # settings of every node, as in node.toml
batch = 100
[[node]]
name = "source"
app = "source.cql"
[[node]]
name = "mean"
app = "mean.cql"
copies = 2                          # a primary and a secondary
inputs = { readings = "source.all" }   # stream = "node.query"
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kasen.errors import DataError
from kasen.ha.config import PRIMARY, SECONDARY, NodeConfig, node_of, read_toml
from kasen.ha.link.wire import FAULTS, Json, ask, connect
from kasen.ha.takeover.finished import FinishedNodes

_LOG_END = 1 << 14
_OWN = ("name", "copies", "inputs")


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """One copy: `mean/1` is the primary of `mean` at the start, `mean/2` its secondary."""

    name: str
    node: str
    file: Path
    settings: dict[str, Any]
    config: NodeConfig

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")


def read_cluster(file: Path, ports: Callable[[int], list[int]] | None = None) -> list[ClusterMember]:
    """The members of a cluster file, each with its own node settings."""
    return members_of(read_toml(file), file.parent, ports)


def members_of(
    given: dict[str, Any], base: Path, ports: Callable[[int], list[int]] | None = None
) -> list[ClusterMember]:
    for key in given:
        if key not in ("folder", "port", "defaults", "node"):
            raise DataError(f"a cluster has no setting {key!r}; there are: folder, port, defaults, node")
    nodes = given.get("node", [])
    names = [str(node.get("name", "")) for node in nodes]
    if not nodes or len(set(names)) < len(names) or not all(names):
        raise DataError("a cluster needs [[node]] tables, each with a name of its own")
    counts = [int(node.get("copies", 1)) for node in nodes]
    if any(count not in (1, 2) for count in counts):
        raise DataError("copies is 1 or 2")
    folder = (base / str(given.get("folder", "run"))).resolve()
    addresses = _addresses(folder, given.get("port"), names, counts, ports)
    links = _links(nodes, addresses)
    members = []
    for node, name in zip(nodes, names, strict=True):
        copies = addresses[name]
        for index, address in enumerate(copies):
            settings = dict(given.get("defaults", {}))
            settings |= {key: value for key, value in node.items() if key not in _OWN}
            settings |= {"name": name, "listen": address, "role": PRIMARY if index == 0 else SECONDARY}
            settings["finished_folder"] = str(folder / "finished")
            for key in ("app", "sink", "tls_certificate", "tls_key", "tls_authority"):
                if key in settings:
                    settings[key] = str((base / str(settings[key])).resolve())
            if len(copies) == 2:
                settings["peer"] = copies[1 - index]
            settings["inputs"] = [link for to, link, _ in links if to == name]
            settings["outputs"] = [link for _, link, origin in _outgoing(links, addresses) if origin == name]
            file = folder / f"{name}-{index + 1}.toml"
            members.append(
                ClusterMember(f"{name}/{index + 1}", name, file, settings, node_of(settings, base))
            )
    return members


Link = tuple[str, dict[str, Any], str]


def _links(nodes: list[dict[str, Any]], addresses: dict[str, list[str]]) -> list[Link]:
    """(downstream node, its input, upstream node) of every link."""
    found = []
    for node in nodes:
        for stream, source in node.get("inputs", {}).items():
            origin, _, query = str(source).partition(".")
            if origin not in addresses or not query:
                raise DataError(
                    f"{node['name']}: {source!r} is not node.query; nodes are {', '.join(addresses)}"
                )
            link = {"node": origin, "query": query, "stream": stream, "copies": addresses[origin]}
            found.append((node["name"], link, origin))
    return found


def _outgoing(links: list[Link], addresses: dict[str, list[str]]) -> list[Link]:
    return [(to, {**link, "node": to, "copies": addresses[to]}, origin) for to, link, origin in links]


def _addresses(
    folder: Path,
    port: object,
    names: list[str],
    counts: list[int],
    choose: Callable[[int], list[int]] | None,
) -> dict[str, list[str]]:
    """Given ports, or those of an earlier start, or free ones."""
    total = sum(counts)
    known = folder / "ports.json"
    if isinstance(port, int):
        ports = list(range(port, port + total))
    elif known.exists() and len(found := json.loads(known.read_text())) == total:
        ports = found
    else:
        ports = (choose or free_ports)(total)
        make_private(folder)
        known.write_text(json.dumps(ports))
    taken = iter(ports)
    return {
        name: [f"127.0.0.1:{next(taken)}" for _ in range(n)] for name, n in zip(names, counts, strict=True)
    }


def free_ports(count: int) -> list[int]:
    """Below the ports that systems give to outgoing connections, or one of those might take them."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def to_toml(settings: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return json.dumps(value)


# ---------------------------------------------------------------- processes


class Cluster:
    """The processes of a cluster, found again by the ids in its folder."""

    def __init__(self, members: list[ClusterMember]) -> None:
        self.members = members
        self._pids_file = members[0].file.parent / "pids.json"
        self._finished = FinishedNodes(members[0].config.finished_folder)

    def up(self) -> list[str]:
        """Starts every member that does not run and whose node has not finished."""
        return self._start_missing(self.members)

    def has_finished(self, member: ClusterMember) -> bool:
        return member.node in self._finished

    def _start_missing(self, members: list[ClusterMember]) -> list[str]:
        missing = [each for each in members if self.pid(each) is None and not self.has_finished(each)]
        for member in missing:
            self.start(member)
        return [member.name for member in missing]

    def start(self, member: ClusterMember) -> None:
        write_node_file(member)
        with member.log.open("ab") as log:
            command = [sys.executable, "-m", "kasen", "node", str(member.file)]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._save(self._pids() | {member.name: process.pid})

    def kill(self, name: str) -> list[str]:
        """SIGKILL to a copy (`mean/1`), or to the one that leads (`mean`)."""
        chosen = [member for member in self.find(name) if self.pid(member) is not None]
        if "/" not in name and len(chosen) > 1:
            leading = [member for member in chosen if (self.status(member) or {}).get("role") == PRIMARY]
            chosen = leading[:1] or chosen[:1]
        for member in chosen:
            pid = self.pid(member)
            assert pid is not None
            os.killpg(pid, signal.SIGKILL)
        return [member.name for member in chosen]

    def heal(self, name: str) -> list[str]:
        """Starts the dead copies of a node again, unless the node has finished."""
        return self._start_missing(self.find(name))

    def down(self) -> None:
        for member in self.members:
            if (pid := self.pid(member)) is not None:
                os.killpg(pid, signal.SIGTERM)

    def find(self, name: str) -> list[ClusterMember]:
        found = [member for member in self.members if name in (member.name, member.node)]
        if not found:
            raise DataError(
                f"no node {name!r}; there are: {', '.join(member.name for member in self.members)}"
            )
        return found

    def status(self, member: ClusterMember) -> Json | None:
        """What a member says of itself, or None if it does not answer."""
        try:
            with connect(member.config, member.config.listen) as client:
                return ask(member.config, client, "status", {}, 1.0)
        except FAULTS:
            return None

    def pid(self, member: ClusterMember) -> int | None:
        """The id of a member's process, if it runs."""
        pid = self._pids().get(member.name)
        if pid is None:
            return None
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return None
        except ChildProcessError:
            pass  # started by another process
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        return pid if _is_node(pid, member.file) else None

    def is_gone(self, node: str) -> bool:
        """Whether no copy of a node runs, and it has not finished. A copy notes that before it ends."""
        copies = self.find(node)
        return all(self.pid(member) is None for member in copies) and not self.has_finished(copies[0])

    def errors(self, node: str) -> list[str]:
        """What copies of a node said when they ended; nothing of those that were killed."""
        said = [last_error(member.log) for member in self.find(node)]
        return list(dict.fromkeys(error for error in said if error is not None))

    def _pids(self) -> dict[str, int]:
        return json.loads(self._pids_file.read_text()) if self._pids_file.exists() else {}

    def _save(self, pids: dict[str, int]) -> None:
        draft = self._pids_file.with_suffix(".tmp")
        draft.write_text(json.dumps(pids))
        draft.replace(self._pids_file)


def last_error(log: Path) -> str | None:
    """The error that a process ended with: nothing follows it in its log."""
    if not log.exists():
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_END))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-1] if lines and lines[-1].startswith("error: ") else None


def make_private(folder: Path) -> None:
    """A folder that only its owner can look into; one that is there already keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_node_file(member: ClusterMember) -> None:
    """The settings of a copy, which may have a token in them: nobody else may read the file."""
    make_private(member.file.parent)
    handle = os.open(member.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        os.fchmod(handle, 0o600)  # it may be there already, from before
        file.write(to_toml(member.settings))


def _is_node(pid: int, file: Path) -> bool:
    """Whether a process id still means the node, and not another program that got the number since."""
    command = Path(f"/proc/{pid}/cmdline")
    if not command.exists():
        return True  # no /proc here
    try:
        return str(file).encode() in command.read_bytes()
    except OSError:
        return False
