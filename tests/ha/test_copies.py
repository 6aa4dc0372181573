"""How copies of a node find out who leads, one decision at a time, without processes or networks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from kasen.errors import DataError, KasenError
from kasen.ha.config import PRIMARY, SECONDARY, STARTING, Neighbour, NodeConfig
from kasen.ha.failover import Failover
from kasen.ha.node import Node
from kasen.ha.node_state import Heard, Output
from kasen.ha.out_queue import OutQueue, times
from kasen.ha.snapshots import Snapshot
from kasen.ha.wire import BEGIN, Json, Piece, pack
from kasen.ha.work import AppWork
from tests.ha import reference
from tests.ha.chains import make_chain
from tests.ha.warm import load_plan

HERE, PEER = "127.0.0.1:1", "127.0.0.1:2"
UPSTREAM = Neighbour("source", "sent", "readings", ("127.0.0.1:3",))
TWICE = (
    Neighbour("left", "answers", "same", ("127.0.0.1:4", "127.0.0.1:5")),
    Neighbour("right", "answers", "same", ("127.0.0.1:6", "127.0.0.1:7")),
)


class FakeSender:
    """Remembers how far back it was told to go."""

    def __init__(self, node: str, copy: str, stream: str) -> None:
        self.target, self.stream = (node, copy), stream
        self.rewound: int | None = None

    def rewind(self, position: int) -> None:
        self.rewound = position


class Copy:
    """A copy of a node between a source and two nodes that call its answers the same."""

    def __init__(
        self, folder: Path, operator: str = "selection", role: str = SECONDARY, **settings: Any
    ) -> None:
        self.folder = folder
        make_chain(folder, operator, 50)
        config = NodeConfig("n", HERE, role, PEER, inputs=(UPSTREAM,), outputs=TWICE, **settings)
        self.work = AppWork(load_plan(folder / "n.cql"), folder, (UPSTREAM,))
        self.node = Node(config, self.work)
        schema = self.work.schemas["answers"]
        self.node.add_outputs(
            [Output(link, OutQueue(schema), {copy: Heard() for copy in link.copies}) for link in TWICE]
        )
        self.senders = [FakeSender(link.node, copy, link.stream) for link in TWICE for copy in link.copies]
        self.failover = Failover(self.node, self.senders, lambda: None)  # type: ignore[arg-type]

    def answers(self, replies: dict[str, Json | None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Lets neighbours answer so; who was asked is in the list."""
        asked: list[str] = []

        def ask(address: str, action: str, body: Json, timeout: float | None = None) -> Json:
            del action, body, timeout
            asked.append(address)
            reply = replies.get(address)
            if reply is None:
                raise flight.FlightUnavailableError("gone")
            return dict(reply)

        monkeypatch.setattr(self.failover, "_ask", ask)
        return asked


def granted(role: str = PRIMARY, *, claims: bool = False, **received: int) -> Json:
    return {"ok": True, "role": role, "claims": claims, "received": received, "ends": {}}


def test_each_downstream_node_gets_what_it_lacks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when two of them call their stream the same."""
    copy = Copy(tmp_path)
    copy.answers(
        {"127.0.0.1:3": granted(), "127.0.0.1:4": granted(same=700), "127.0.0.1:6": granted(same=300)},
        monkeypatch,
    )
    assert copy.failover._take_over(0.0)
    assert copy.node.is_primary
    assert [sender.rewound for sender in copy.senders] == [700, None, 300, None]


def test_neighbours_that_both_lost_their_primaries_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path)
    heir = granted(SECONDARY, claims=True, same=300)
    copy.answers(
        {"127.0.0.1:3": granted(), "127.0.0.1:4": granted(same=700), "127.0.0.1:7": heir}, monkeypatch
    )
    assert copy.failover._take_over(0.0)
    assert [sender.rewound for sender in copy.senders] == [700, None, None, 300]


def test_who_finds_everything_done_and_everybody_gone_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path)
    copy.answers({}, monkeypatch)
    for output in copy.node.outputs:
        done = {"role": PRIMARY, "g": 1, "received": 900, "finished": True}
        copy.node.heard(output, output.link.copies[0], done)
    assert copy.failover._take_over(0.0)
    assert copy.node.finished


def test_what_breaks_while_a_fenced_copy_is_torn_down_does_not_matter(tmp_path: Path) -> None:
    """It is to be started again as the secondary."""
    node = Copy(tmp_path, role=PRIMARY).node
    node.fence(2)
    node.fail(KasenError("the engine was stopped in the middle of its work"))
    assert (node.verdict, node.fault) == ("fenced", None)


def test_a_copy_that_comes_back_and_is_not_first_is_the_secondary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, role=STARTING)
    monkeypatch.setattr(copy.failover, "_was_at_work", lambda: (True, 3))
    copy.answers({"127.0.0.1:3": {"ok": False, "g": 4}}, monkeypatch)
    copy.failover.decide_role()
    assert copy.node.role == SECONDARY
    assert copy.node.generation == 4


@pytest.mark.parametrize(("patience", "pings"), [(2, 2), (4, 4), (1000, 16)])
def test_who_was_taken_for_dead_waits_longer_for_others(
    patience: int, pings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, ping_interval=0.001)
    copy.failover = Failover(copy.node, [], lambda: None, patience)
    replies: dict[str, Json | None] = {PEER: {"role": PRIMARY, "g": 1, "holds": True}}
    asked = copy.answers(replies, monkeypatch)

    def take_over(detected: float) -> bool:
        del detected
        return True

    monkeypatch.setattr(copy.failover, "_take_over", take_over)
    monkeypatch.setattr(copy.node.stopping, "wait", lambda _: replies.clear())
    copy.failover.watch()
    assert len(asked) == 1 + pings


def test_a_copy_that_holds_nothing_leaves_the_lead_to_one_that_does(tmp_path: Path) -> None:
    for operator, turns in (("selection", 6), ("total", math.inf)):
        (tmp_path / operator).mkdir()
        copy = Copy(tmp_path / operator, operator)
        assert copy.failover._turn(other_holds=True) == turns
        assert copy.failover._turn(other_holds=False) == 2


def test_a_copy_that_was_started_again_has_less_than_before(tmp_path: Path) -> None:
    """What it had counts no more: it may yet ask for that."""
    copy = Copy(tmp_path, role=PRIMARY)
    output = copy.node.outputs[0]
    for received in (500, BEGIN):
        copy.node.heard(output, "127.0.0.1:5", {"role": SECONDARY, "g": 1, "received": received})
    assert output.heard["127.0.0.1:5"].received == BEGIN


def test_a_takeover_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    """A copy kept by snapshots takes input while it tries to lead, and forgets it at the next snapshot."""
    copy = Copy(tmp_path, "total")
    node, inbox = copy.node, copy.node.inboxes["readings"]
    state = copy.work.snapshot()
    outputs: list[tuple[Json, pa.RecordBatch | None]] = [
        ({"start": BEGIN, "upto": BEGIN, "ended": False, "restart": None}, None) for _ in TWICE
    ]
    node.take_snapshot_in(Snapshot(10, {"readings": 10}, state, outputs))
    node.restore_snapshot()
    meta = {"g": 1, "to": 1}
    node.receive(inbox, "127.0.0.1:3", meta, Piece(None, 10, 20))
    assert inbox.received == 20
    node.give_up()
    node.take_snapshot_in(Snapshot(30, {"readings": 30}, state, outputs))
    assert node.holds_input
    node.restore_snapshot()
    assert (inbox.received, len(inbox.waiting)) == (30, 0)


def test_a_snapshot_that_comes_during_a_takeover_is_refused(tmp_path: Path) -> None:
    """The primary was only slow; what upstream sends by now follows the snapshot before."""
    copy = Copy(tmp_path, "total")
    node, inbox = copy.node, copy.node.inboxes["readings"]
    outputs: list[tuple[Json, pa.RecordBatch | None]] = [
        ({"start": BEGIN, "upto": BEGIN, "ended": False, "restart": None}, None) for _ in TWICE
    ]
    node.take_snapshot_in(Snapshot(10, {"readings": 10}, copy.work.snapshot(), outputs))
    node.restore_snapshot()
    node.receive(inbox, "127.0.0.1:3", {"g": 1, "to": 1}, Piece(None, 10, 30))
    late = Snapshot(20, {"readings": 20}, copy.work.snapshot(), outputs)
    with pytest.raises(DataError, match="taking over"):
        node.take_snapshot_in(late)
    node.promote(2)
    with pytest.raises(DataError, match="taking over"):
        node.take_snapshot_in(late)
    assert inbox.received == 30


def test_a_claim_from_a_stranger_is_refused(tmp_path: Path) -> None:
    copy = Copy(tmp_path, role=PRIMARY)
    claim = {"node": "source", "g": 2, "copy": "127.0.0.1:9", "positions": {}}
    with pytest.raises(DataError, match="is no copy of source"):
        copy.failover.answers["claim"](pack(claim))
    assert copy.node.known["source"].generation == 1


def test_what_waits_is_worked_on_in_one_piece(tmp_path: Path) -> None:
    inbox = Copy(tmp_path).node.inboxes["readings"]
    schema = pa.schema([("ts", pa.int64())])
    for start, count in ((0, 2), (10, 0), (20, 3), (30, 4)):
        batch = pa.record_batch([pa.array(range(start, start + count), pa.int64())], schema=schema)
        inbox.take(Piece(batch if count else None, start, start + 10, start == 30))
    first = inbox.next(5)
    assert first is not None
    assert (first.rows, first.start, first.upto, first.ended) == (5, 0, 30, False)
    last = inbox.next(5)
    assert last is not None
    assert (last.rows, last.start, last.upto, last.ended) == (4, 30, 40, True)
    assert inbox.next(5) is None
    assert inbox.waiting_rows == 0


def fed(copy: Copy) -> Iterator[int]:
    """The copy works on one reading after the other; how far it is after each."""
    node, inbox = copy.node, copy.node.inboxes["readings"]
    batch = reference.edge(copy.folder / "source.cql")["sent"].batch
    assert batch is not None
    copy.work.accept(UPSTREAM, batch.schema)
    for row, ts in enumerate(times(batch).tolist()):
        node._marked = 0.0  # marks are made by the clock, which does not matter here
        piece = Piece(batch.slice(row, 1), inbox.received, ts + 1)
        node.receive(inbox, "127.0.0.1:3", {"g": 1, "to": 1}, piece)
        node._work_once()
        yield ts + 1


def arrived(copy: Copy, upto: int) -> None:
    """All downstream copies have the answers below a time."""
    for output in copy.node.outputs:
        for address in output.link.copies:
            copy.node.heard(output, address, {"role": SECONDARY, "g": 1, "received": upto})


@pytest.mark.parametrize("role", [PRIMARY, SECONDARY])
def test_a_copy_does_not_remember_every_state_it_was_in(role: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path, "filter", role=role)
    for upto in fed(copy):
        arrived(copy, upto)
    assert copy.work.history is not None
    assert len(copy.work.history._marks) <= 2
    told = copy.node.ack(copy.node.inboxes["readings"]).get("release")
    assert told == (upto if role == PRIMARY else None)


def test_a_single_copy_that_remembers_everything_does_not_let_upstream_keep_everything(
    tmp_path: Path,
) -> None:
    copy = Copy(tmp_path, "total", role=PRIMARY)
    copy.node.is_passive, copy.node.releases.alone = False, True  # as without a peer
    positions = list(fed(copy))
    arrived(copy, positions[20])
    assert copy.node.ack(copy.node.inboxes["readings"])["release"] == positions[20]
