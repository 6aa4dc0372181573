"""No message ends a node: whatever arrives is refused with a reason, and the next good one is taken."""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.ha import reference
from tests.ha.chains import READINGS, SOURCE
from tests.ha.link.link_fuzzer import LinkFuzzer, trickle, with_text_offset
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


def make_nodes(folder: Path) -> tuple[Nodes, pa.RecordBatch]:
    """The chain source -> n -> out, not started yet, and what source would send."""
    (folder / "readings.csv").write_text(ROWS)
    (folder / "source.cql").write_text(EDGE)
    (folder / "n.cql").write_text(APP)
    nodes = [
        {"name": "source", "app": "source.cql"},
        {"name": "n", "app": "n.cql", "inputs": {"readings": "source.sent"}},
        {"name": "out", "sink": "out", "inputs": {"answers": "n.answers"}},
    ]
    sent = reference.edge(folder / "source.cql")["sent"].batch
    assert sent is not None
    return Nodes(folder, {"node": nodes}), sent


@pytest.mark.parametrize("messages", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_message_ends_a_node(messages: int, tmp_path: Path) -> None:
    chain, sent = make_nodes(tmp_path)
    with chain as cluster:
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


def test_offsets_of_texts_beyond_their_buffer_are_not_followed(tmp_path: Path) -> None:
    """Uncompressed, and with the right checksum: only Arrow's own full validation finds them."""
    chain, sent = make_nodes(tmp_path)
    with chain as cluster:
        member = cluster.member("n")
        cluster.signal(cluster.member("source"), signal.SIGKILL)  # the fuzzer takes its place
        cluster.wait_for("n", "ready")
        process = cluster.pid(member)
        fuzzer = LinkFuzzer(member, sent.schema, sent, seed=1)
        upto = sent.column("ts")[-1].value + 1
        cases = [(slot, offset) for slot in (1, 25, 50) for offset in (1 << 12, 1 << 20, 2**31 - 1)]
        cases += [(1, -1), (25, -(2**31))]
        try:
            for slot, offset in cases:
                fuzzer.send_rows(with_text_offset(sent, slot, offset), upto)
            assert fuzzer.outcome.refused == len(cases)
            reasons = fuzzer.outcome.reasons
            assert all("Offset invariant failure" in reason for reason in reasons), reasons
            fuzzer.send_rows(sent, upto)
        finally:
            fuzzer.close()
        assert fuzzer.outcome.taken == 1, fuzzer.outcome
        assert cluster.pid(member) == process, cluster.logs()
        assert "Traceback" not in cluster.logs()
