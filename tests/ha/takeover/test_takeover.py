"""Pauses and late starts, on real processes: who may lead, who steps down, and that everybody ends."""

from __future__ import annotations

import signal
import stat
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kasen.cli import app
from kasen.ha.cluster import ClusterMember, members_of, to_toml, write_node_file
from tests.ha.chains import chain, expected, make_chain, written
from tests.ha.nodes import Nodes, has_released, through
from tests.ha.relay import Relay, Route


def roles(nodes: Nodes, node: str) -> list[tuple[str, int]]:
    states = [nodes.status(member) for member in nodes.find(node)]
    return [(state["role"], state["generation"]) for state in states if state is not None]


def relayed(
    folder: Path, relay: Relay, routes: dict[tuple[str, str], Route], **defaults: Any
) -> list[ClusterMember]:
    """The copies of a chain that reach each other through a relay only."""
    members = members_of({"folder": "run", **chain(**defaults)}, folder)
    return [through(relay, member, routes) for member in members]


def test_a_copy_without_the_state_does_not_take_over_from_a_paused_primary(tmp_path: Path) -> None:
    """The state of n cannot be rebuilt, and no snapshot has reached its other copy."""
    make_chain(tmp_path, "total", 20_000)
    relay = Relay()
    routes: dict[tuple[str, str], Route] = {}
    with Nodes(tmp_path, {}, relayed(tmp_path, relay, routes, ping_interval="1s")) as nodes:
        primary, secondary = nodes.member("n/1"), nodes.member("n/2")
        relay.cut([routes[primary.config.listen, secondary.config.listen]])
        nodes.wait_until(lambda: has_released(nodes))  # as the primary finds itself alone
        nodes.signal(primary, signal.SIGSTOP)
        nodes.wait_until(lambda: bool((nodes.status(secondary) or {}).get("waits_for")))
        time.sleep(1.5)
        waiting = nodes.status(secondary)
        nodes.signal(primary, signal.SIGCONT)
        assert waiting is not None
        assert waiting["role"] == "secondary", nodes.logs()
        assert "upstream holds readings only from" in waiting["waits_for"], nodes.logs()
        nodes.finish("out")
        assert "generation 2" not in nodes.logs()
    relay.close()
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_a_paused_primary_steps_down_when_it_wakes(tmp_path: Path) -> None:
    """From its own pings: its neighbour's primary was killed meanwhile, and nobody else can reach it."""
    make_chain(tmp_path, "range", 9000)
    relay = Relay()
    routes: dict[tuple[str, str], Route] = {}
    with Nodes(tmp_path, {}, relayed(tmp_path, relay, routes, batch=20, ping_interval="500ms")) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.5)
        paused = nodes.member("d/1")
        own_ping = paused.config.listen, nodes.member("d/2").config.listen
        others = [
            route for ends, route in routes.items() if paused.config.listen in ends and ends != own_ping
        ]
        nodes.signal(paused, signal.SIGSTOP)
        relay.cut(others)
        nodes.signal(nodes.member("n/1"), signal.SIGKILL)
        nodes.wait_until(lambda: ("primary", 2) in roles(nodes, "d"))
        nodes.signal(paused, signal.SIGCONT)
        nodes.wait_until(lambda: ("primary", 1) not in roles(nodes, "d"))
        took = nodes.wait_until(lambda: sorted(roles(nodes, "d")) == [("primary", 2), ("secondary", 2)])
        print(f"back as the secondary after {took:.2f} s")
        relay.join(others)
        nodes.finish("out")
    relay.close()
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_copies_that_return_after_the_end_exit_by_themselves(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 1000)
    with Nodes(tmp_path, chain(batch=20)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        for node in nodes.names():
            nodes.finish(node)
        for name in ("n/2", "d/1", "out"):
            nodes.start(nodes.member(name))
        for node in nodes.names():
            nodes.finish(node)
        assert [nodes.heal(node) for node in nodes.names()] == [[]] * 4
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_a_copy_that_returns_when_everybody_leaves_exits_too(tmp_path: Path) -> None:
    """It has begun before the end was noted, and finds nobody to ask."""
    make_chain(tmp_path, "total", 1500)
    with Nodes(tmp_path, chain(batch=20)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        nodes.signal(nodes.member("n/2"), signal.SIGKILL)
        nodes.finish("out")
        nodes.start(nodes.member("n/2"))
        for node in nodes.names():
            nodes.finish(node)
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_status_tells_a_good_end_from_a_loss(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    given = chain()
    text = "".join(f"[[node]]\n{to_toml(node)}" for node in given["node"])
    file.write_text(text)
    make_chain(tmp_path, "selection", 10)
    runner = CliRunner()
    lost = runner.invoke(app, ["cluster", "status", str(file)])
    assert "n: both copies are gone" in lost.stderr
    for name in ("source", "n", "d", "out"):
        (tmp_path / "run" / "finished").mkdir(exist_ok=True)
        (tmp_path / "run" / "finished" / name).touch()
    done = runner.invoke(app, ["cluster", "status", str(file)])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.count("finished") == 6
    again = runner.invoke(app, ["cluster", "up", str(file), "--wait"])
    assert "every node has finished" in again.stdout


def test_only_the_owner_can_read_files_with_tokens(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 10)
    member = members_of({"folder": "run", **chain(token="swordfish")}, tmp_path)[0]
    member.file.touch(0o644)  # left by an earlier version
    write_node_file(member)
    assert "swordfish" in member.file.read_text()
    assert stat.S_IMODE(member.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(member.file.parent.stat().st_mode) == 0o700
