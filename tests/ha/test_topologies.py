"""Fan-in, fan-out, restarts and losses: what is more than a chain, and what cannot be made good."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from examples.sensors.generate import generate
from kasen.ha.cluster import members_of
from tests.ha import reference
from tests.ha.chains import SOURCE, chain, expected, make_chain, written
from tests.ha.nodes import Nodes, has_released, through
from tests.ha.relay import Relay, Route
from tests.ha.warm import load_plan

STREAM = "REGISTER STREAM {name} (id BIGINT, temperature DOUBLE) TIMESTAMP BY ts FROM 'link';\n"
JOINED = (
    STREAM.format(name="left_")
    + STREAM.format(name="right_")
    + """
REGISTER QUERY pairs AS ISTREAM(SELECT a.id, a.temperature, b.temperature AS other
  FROM left_ [ROWS 20] AS a, right_ [RANGE 50 MILLISECONDS] AS b WHERE a.id = b.id);
REGISTER QUERY rates AS RSTREAM(SELECT id, COUNT(*) AS n FROM left_ [ROWS 40 SLIDE 20] GROUP BY id);
"""
)


def make_diamond(folder: Path, rows: int) -> dict[str, Any]:
    """Two sources into one node, whose two queries go to two sinks."""
    for name, seed in (("a", 1), ("b", 2)):
        (folder / name).mkdir()
        table = generate(rows, seed, 4, 1000)["readings"].sort_by("timestamp")
        options = pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
        pyarrow.csv.write_csv(table, folder / name / "readings.csv", options)
        (folder / name / "source.cql").write_text(SOURCE)
    (folder / "joined.cql").write_text(JOINED)
    inputs = {"left_": "a.sent", "right_": "b.sent"}
    nodes = [
        {"name": "a", "app": "a/source.cql", "rate": 1000},
        {"name": "b", "app": "b/source.cql", "rate": 1300},
        {"name": "joined", "app": "joined.cql", "copies": 2, "inputs": inputs},
        {"name": "pairs", "sink": "pairs", "inputs": {"pairs": "joined.pairs"}},
        {"name": "rates", "sink": "rates", "inputs": {"rates": "joined.rates"}},
    ]
    return {"defaults": {"batch": 50}, "node": nodes}


def test_fan_in_and_fan_out_survive_a_crash(tmp_path: Path) -> None:
    given = make_diamond(tmp_path, 2500)
    with Nodes(tmp_path, given) as nodes:
        nodes.wait_for("pairs", "inputs_begun")
        time.sleep(1.0)
        nodes.signal(nodes.member("joined/1"), signal.SIGKILL)
        nodes.finish("pairs")
        nodes.finish("rates")
    sent = {name: reference.edge(tmp_path / name / "source.cql")["sent"] for name in ("a", "b")}
    answers = reference.node(tmp_path / "joined.cql", {"left_": sent["a"], "right_": sent["b"]})
    schemas = reference.output_schemas(load_plan(tmp_path / "joined.cql"))
    for name in ("pairs", "rates"):
        right = reference.csv(answers[name], schemas[name], tmp_path / "expected.csv")
        assert (tmp_path / name / f"{name}.csv").read_text() == right, nodes.logs()


def test_a_node_without_a_second_copy_is_rebuilt_from_upstream(tmp_path: Path) -> None:
    make_chain(tmp_path, "aggregation", 2500)
    with Nodes(tmp_path, chain(copies=1)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.8)
        nodes.signal(nodes.member("n"), signal.SIGKILL)
        nodes.heal("n")
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_both_copies_lost_are_rebuilt_from_upstream(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 2500)
    with Nodes(tmp_path, chain(batch=100)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.8)
        for name in ("n/2", "n/1"):
            nodes.signal(nodes.member(name), signal.SIGKILL)
        nodes.heal("n")
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_state_that_was_lost_with_both_copies_is_told(tmp_path: Path) -> None:
    """Nobody can know whether a copy is lost or only cut off, so the node waits, and says why."""
    make_chain(tmp_path, "total", 20_000)
    with Nodes(tmp_path, chain(snapshot_interval="100ms")) as nodes:
        nodes.wait_until(lambda: has_released(nodes))
        for name in ("n/2", "n/1"):
            nodes.signal(nodes.member(name), signal.SIGKILL)
        nodes.heal("n")
        status = nodes.wait_for("n", "waits_for")
        assert "upstream holds readings only from" in status["waits_for"]
        assert nodes.leader("n") is None


def test_a_sink_that_was_killed_goes_on_where_its_journal_ends(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 2500)
    with Nodes(tmp_path, chain(copies=1)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.5)
        nodes.signal(nodes.member("out"), signal.SIGKILL)
        with (tmp_path / "out" / "counted.csv").open("a") as file:
            file.write("half a li")
        nodes.heal("out")
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_the_source_may_have_a_second_copy_that_reads_the_files_again(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 2500)
    given = chain()
    given["node"][0]["copies"] = 2
    with Nodes(tmp_path, given) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.8)
        nodes.signal(nodes.member("source/1"), signal.SIGKILL)
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_two_neighbours_that_lose_their_primaries_at_once(tmp_path: Path) -> None:
    """As when the machine is lost on which both were."""
    make_chain(tmp_path, "selection", 2500)
    with Nodes(tmp_path, chain(batch=100)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        time.sleep(0.8)
        for name in ("n/1", "d/1"):
            nodes.signal(nodes.member(name), signal.SIGKILL)
        nodes.finish("out")
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_nodes_find_each_other_on_a_slow_network(tmp_path: Path) -> None:
    """Making a connection takes longer than the pauses between attempts."""
    make_chain(tmp_path, "selection", 1500)
    relay = Relay(delay=0.15)
    try:
        members = members_of({"folder": "run", **chain(batch=100, ping_interval="1s")}, tmp_path)
        with Nodes(tmp_path, {}, [through(relay, member) for member in members]) as nodes:
            nodes.wait_for("out", "inputs_begun")
            nodes.signal(nodes.member("n/1"), signal.SIGKILL)
            nodes.finish("out")
            assert written(tmp_path) == expected(tmp_path), nodes.logs()
    finally:
        relay.close()


@pytest.mark.soak
def test_secondaries_that_hang_hold_nobody_up(tmp_path: Path) -> None:
    make_chain(tmp_path, "selection", 2500)
    with Nodes(tmp_path, chain(batch=1, queue=300)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        for name in ("n/2", "d/2"):
            nodes.signal(nodes.member(name), signal.SIGSTOP)
        nodes.finish("out", 30)
        nodes.finish("n/1", 30)
    assert written(tmp_path) == expected(tmp_path), nodes.logs()


def test_a_link_that_is_lost_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """Both of its ends live, so nobody takes over."""
    make_chain(tmp_path, "range", 2500)
    relay = Relay()
    routes: dict[tuple[str, str], Route] = {}
    try:
        members = members_of({"folder": "run", **chain(batch=100, ping_interval="1s")}, tmp_path)
        with Nodes(tmp_path, {}, [through(relay, member, routes) for member in members]) as nodes:
            nodes.wait_for("out", "inputs_begun")
            link = [routes[nodes.member("n/1").config.listen, nodes.member("d/1").config.listen]]
            relay.cut(link)
            time.sleep(3.0)  # longer than a copy may be silent
            relay.join(link)
            nodes.finish("out")
            assert written(tmp_path) == expected(tmp_path), nodes.logs()
            assert "taking over" not in nodes.logs()
    finally:
        relay.close()


@pytest.mark.soak
def test_slow_receivers_hold_their_senders_back(tmp_path: Path) -> None:
    """While a node is stopped, what waits for it stays bounded, and nothing is lost."""
    make_chain(tmp_path, "filter", 60_000)
    given = chain(copies=1, rate=None, queue=500)
    with Nodes(tmp_path, given) as nodes:
        nodes.wait_for("out", "inputs_begun")
        member = nodes.member("d")
        nodes.signal(member, signal.SIGSTOP)
        time.sleep(1.5)
        status = nodes.status(nodes.member("n"))
        assert status is not None
        held = next(iter(status["outputs"].values()))["held"]
        nodes.signal(member, signal.SIGCONT)
        nodes.finish("out")
        # The queue's bound, and what the few pieces that are on their way may put into it beyond.
        assert 0 < held <= 500 + 4 * 4096
    assert written(tmp_path) == expected(tmp_path), nodes.logs()
