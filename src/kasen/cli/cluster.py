"""`kasen cluster`: a whole topology on one machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kasen import stops

if TYPE_CHECKING:
    from kasen.ha.cluster import Cluster, ClusterMember
    from kasen.ha.link.wire import Json

app = typer.Typer(help="Start and watch a distributed pipeline on this machine.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The cluster: a TOML file.", metavar="CLUSTER.toml")]
Name = Annotated[str, typer.Argument(help="A node (its leading copy), or a copy such as mean/2.")]


def _open(file: Path) -> Cluster:
    from kasen.ha.cluster import Cluster, read_cluster

    return Cluster(read_cluster(file))


@app.command()
def up(
    file: File,
    wait: Annotated[bool, typer.Option(help="Stay until every node has ended by itself.")] = False,
) -> None:
    """Start every copy that does not run."""
    members = _open(file)
    with stops.postponed():  # who is started must be known to `down`
        started = members.up()
    folder = members.members[0].file.parent
    if not started and all(members.has_finished(member) for member in members.members):
        typer.echo(f"every node has finished; to run it again, remove {folder} and the folders of the sinks")
        return
    typer.echo(f"{len(started)} processes started; their logs are in {folder}")
    told: set[str] = set()
    while wait and any(members.pid(member) is not None for member in members.members):
        for node in {member.node for member in members.members} - told:
            if members.is_gone(node) and (errors := members.errors(node)):
                told.add(node)
                typer.echo(f"{node}: {'; '.join(errors)}", err=True)
        time.sleep(0.2)


@app.command()
def status(file: File) -> None:
    """Show who leads, what is held, and what went over the links."""
    from rich.console import Console
    from rich.table import Table

    members = _open(file)
    table = Table("copy", "process", "role", "generation", "held", "sent", "backup", "recovered")
    states = {member.name: members.status(member) for member in members.members}
    for member in members.members:
        table.add_row(*_row(members, member, states[member.name]))
    Console().print(table)
    for node in dict.fromkeys(member.node for member in members.members):
        if (trouble := _trouble(members, node, states)) is not None:
            typer.echo(f"{node}: {trouble}", err=True)


def _trouble(members: Cluster, node: str, states: Mapping[str, Json | None]) -> str | None:
    """Why nobody leads a node, if nobody does."""
    from kasen.ha.config import PRIMARY

    copies = members.find(node)
    if members.is_gone(node):
        gone = "its process is gone" if len(copies) == 1 else "both copies are gone"
        return "; ".join([gone, *members.errors(node)])
    if members.has_finished(copies[0]):
        return None
    said = [state for member in copies if (state := states[member.name]) is not None]
    if any(state["role"] == PRIMARY for state in said):
        return None
    reasons = [state["waits_for"] for state in said if state["waits_for"] is not None]
    return f"nobody leads: {'; '.join(reasons)}" if reasons else "nobody leads yet"


def _row(members: Cluster, member: ClusterMember, said: Json | None) -> list[str]:
    pid = members.pid(member)
    if pid is None:
        ended = "finished" if members.has_finished(member) else "ended"
        return [member.name, "-", ended, "", "", "", "", ""]
    if said is None:
        return [member.name, str(pid), "silent", "", "", "", "", ""]
    outputs = list(said["outputs"].values())
    held = sum(output["held"] for output in outputs)
    sent, backup = (sum(output[key][0] for output in outputs) for key in ("main", "backup"))
    recovery = said["measured"].get("recovery")
    recovered = "" if recovery is None else f"{recovery * 1e3:.0f} ms"
    numbers = [str(each) for each in (said["generation"], held, sent, backup)]
    return [member.name, str(pid), said["role"], *numbers, recovered]


@app.command()
def kill(file: File, name: Name) -> None:
    """Kill a copy, as a crash would."""
    killed = _open(file).kill(name)
    typer.echo(f"killed {', '.join(killed)}" if killed else f"{name} does not run")


@app.command()
def heal(file: File, name: Name) -> None:
    """Start the dead copies of a node again; they come back as secondaries."""
    with stops.postponed():
        healed = _open(file).heal(name)
    typer.echo(f"started {', '.join(healed)}" if healed else f"{name} needs no healing")


@app.command()
def down(file: File) -> None:
    """Stop every copy."""
    _open(file).down()
