"""No message ends a node: whatever arrives is refused with a reason, and the next good one is taken."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.ha import reference
from tests.ha.chains import READINGS, SOURCE
from tests.ha.link.link_fuzzer import LinkFuzzer, trickle
from tests.ha.nodes import Nodes

#: With a text, whose offsets a hostile message can move.
APP = (
    READINGS.replace("id BIGINT", "id BIGINT, name VARCHAR")
    + "REGISTER QUERY answers AS SELECT name, COUNT(*) AS n FROM readings [RANGE 1 SECOND] GROUP BY name;\n"
)
EDGE = SOURCE.replace("id BIGINT", "id BIGINT, name VARCHAR")
ROWS = "id,name,timestamp,temperature,illuminance,x,y,z\n" + "".join(
    f"{i},sensor {i % 7},2026-01-01T00:00:00.{i:06},1.5,2.5,0,0,{i}\n" for i in range(50)
)


@pytest.mark.parametrize("messages", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_message_ends_a_node(messages: int, tmp_path: Path) -> None:
    (tmp_path / "readings.csv").write_text(ROWS)
    (tmp_path / "source.cql").write_text(EDGE)
    (tmp_path / "n.cql").write_text(APP)
    nodes = [
        {"name": "source", "app": "source.cql"},
        {"name": "n", "app": "n.cql", "inputs": {"readings": "source.sent"}},
        {"name": "out", "sink": "out", "inputs": {"answers": "n.answers"}},
    ]
    sent = reference.edge(tmp_path / "source.cql")["sent"].batch
    assert sent is not None
    with Nodes(tmp_path, {"node": nodes}) as cluster:
        member = cluster.member("n")
        cluster.signal(cluster.member("source"), signal.SIGKILL)  # the fuzzer takes its place
        cluster.wait_for("n", "ready")
        process = cluster.pid(member)
        fuzzer = LinkFuzzer(member, sent.schema, sent, seed=messages)
        slow = trickle(member.config.listen, 20, 3)
        try:
            for _ in range(messages):
                fuzzer.send_one()
        finally:
            fuzzer.close()
            for each in slow:
                each.close()
        print(
            messages, "messages:", fuzzer.outcome.refused, "refused,", len(fuzzer.outcome.reasons), "reasons"
        )
        assert cluster.pid(member) == process, cluster.logs()
        assert cluster.status(member) is not None, cluster.logs()
        assert "Traceback" not in cluster.logs()
        assert "broken" not in cluster.logs()
        assert fuzzer.outcome.refused > messages // 2
        assert "primary n" in cluster.logs()
        assert cluster.logs().count("primary n listens") == 1, "the node was started anew"
