"""How copies of a node find out who leads, one decision at a time, without processes or networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from kasen.errors import DataError, KasenError
from kasen.ha.acknowledgements import acknowledge, hear
from kasen.ha.config import PRIMARY, SECONDARY, STARTING, Neighbour, NodeConfig
from kasen.ha.link.out_queue import OutQueue, times
from kasen.ha.link.wire import BEGIN, Json, LinkPiece, pack
from kasen.ha.node import Node
from kasen.ha.node_state import Acknowledgement, OutputLink
from kasen.ha.takeover.failover import Failover
from kasen.ha.takeover.snapshots import Snapshot
from kasen.ha.work.work import AppWork
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


@dataclass
class Asked:
    """Who was asked, and what."""

    addresses: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)


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
            [
                OutputLink(link, OutQueue(schema), {copy: Acknowledgement() for copy in link.copies})
                for link in TWICE
            ]
        )
        self.senders = [FakeSender(link.node, copy, link.stream) for link in TWICE for copy in link.copies]
        self.failover = Failover(self.node, self.senders, lambda: None)  # type: ignore[arg-type]

    def answers(self, replies: dict[str, Json | None], monkeypatch: pytest.MonkeyPatch) -> Asked:
        """Lets neighbours answer so."""
        asked = Asked()

        def ask(address: str, action: str, body: Json, timeout: float | None = None) -> Json:
            del body, timeout
            asked.addresses.append(address)
            asked.actions.append(action)
            reply = replies.get(address)
            if reply is None:
                raise flight.FlightUnavailableError("gone")
            return dict(reply)

        monkeypatch.setattr(self.failover, "_ask", ask)
        return asked


def granted(role: str = PRIMARY, *, claims: bool = False, g: int = 1, **received: int) -> Json:
    """What a neighbour answers to a probe and to a claim, if nothing speaks against it."""
    reply = {"ok": True, "role": role, "claims": claims, "g": g, "received": received}
    return {**reply, "held": {}, "ends": {}}


def holding(start: int, restart: Json | None = None) -> Json:
    """What an upstream neighbour answers that holds the readings from a time on."""
    return {**granted(), "held": {"readings": {"start": start, "restart": restart}}}


def everybody(source: Json) -> dict[str, Json | None]:
    """The answers of all neighbours, of whom those downstream have nothing yet."""
    return {
        "127.0.0.1:3": source,
        "127.0.0.1:4": granted(same=BEGIN),
        "127.0.0.1:6": granted(same=BEGIN),
    }


def queues(start: int = BEGIN) -> list[tuple[Json, pa.RecordBatch | None]]:
    """The output queues of a snapshot, empty."""
    marks: Json = {"start": start, "upto": start, "ended": False, "restart": None}
    return [(marks, None) for _ in TWICE]


def test_each_downstream_node_gets_what_it_lacks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when two of them call their stream the same."""
    copy = Copy(tmp_path)
    copy.answers(
        {"127.0.0.1:3": granted(), "127.0.0.1:4": granted(same=700), "127.0.0.1:6": granted(same=300)},
        monkeypatch,
    )
    copy.failover._take_over("is silent")
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
    copy.failover._take_over("is silent")
    assert [sender.rewound for sender in copy.senders] == [700, None, None, 300]


@pytest.mark.parametrize(
    ("operator", "snapshot", "held", "leads"),
    [
        ("total", None, BEGIN, True),  # everything can be read again
        ("total", None, 20, False),
        ("total", 20, 20, True),
        ("total", 10029, 10810, False),
        ("selection", None, 20, False),  # upstream does not say how to start there
    ],
)
def test_only_a_fit_copy_claims_the_lead(
    operator: str,
    snapshot: int | None,
    held: int,
    leads: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = Copy(tmp_path, operator)
    if snapshot is not None:
        copy.node.take_snapshot_in(Snapshot({"readings": snapshot}, copy.work.snapshot(), queues()))
    asked = copy.answers(everybody(holding(held)), monkeypatch)
    copy.failover._take_over("is silent")
    assert copy.node.is_primary == leads
    assert ("claim" in asked.actions) == leads
    if not leads:
        assert f"holds readings only from {held} on" in str(copy.node.waits_for)
        assert copy.node.generation == 1


def test_a_copy_that_can_be_rebuilt_leads_behind_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path)
    restart = {"at": 30, "since": [["readings", 20]], "counts": [], "begun": False}
    replies = everybody(holding(20, restart))
    copy.answers(replies, monkeypatch)
    copy.failover._take_over("is silent")
    assert not copy.node.is_primary  # its answers would begin at 30, and nobody downstream has those before
    replies |= {"127.0.0.1:4": granted(same=30), "127.0.0.1:6": granted(same=40)}
    copy.failover._take_over("is silent")
    assert copy.node.is_primary


def test_upstream_looks_at_positions_again_when_it_grants_a_generation(tmp_path: Path) -> None:
    """Between a probe and the claim, the old primary may have released more."""
    copy = Copy(tmp_path, role=PRIMARY)
    queue = copy.node.outputs[0].queue
    queue.append(None, 50)
    queue.release(20, None)
    claim: Json = {"node": "left", "g": 2, "copy": "127.0.0.1:5", "rebuilds": False}
    late = copy.failover.answers["claim"](pack(claim | {"positions": {"same": 10}}))
    assert (late["ok"], late["g"]) == (False, 1)
    assert "only from 20 on" in late["unfit"]
    assert copy.node.known["left"].primary == "127.0.0.1:4"
    assert copy.failover.answers["claim"](pack(claim | {"positions": {"same": 20}}))["ok"]
    assert copy.node.known["left"].primary == "127.0.0.1:5"


def test_a_fenced_primary_keeps_its_state_until_the_other_copy_leads(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "total", role=PRIMARY)
    node = copy.node
    node.fence(2)
    assert (node.role, node.suspended, node.stopping.is_set()) == (SECONDARY, True, False)
    answer = {"role": SECONDARY, "g": 2, "holds": False, "claims": True}
    copy.failover._count(answer, 0, 0)
    assert not node.stopping.is_set()
    copy.failover._count({**answer, "role": PRIMARY}, 0, 0)
    assert node.verdict == "fenced"


def test_a_fenced_primary_leads_again_if_the_other_copy_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, "total", role=PRIMARY)
    copy.node.inboxes["readings"].received = 20
    copy.node.fence(2)
    peer = {"role": SECONDARY, "g": 2, "holds": False, "claims": False}
    assert copy.failover._turn(peer) == 2
    copy.answers(everybody(holding(20)), monkeypatch)
    copy.failover._take_over("does not lead")
    assert (copy.node.role, copy.node.generation, copy.node.suspended) == (PRIMARY, 3, False)


def test_a_primary_learns_from_its_own_pings_that_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, role=PRIMARY)
    copy.answers({}, monkeypatch)
    leads = {"role": PRIMARY, "g": 2, "holds": True, "claims": False}
    copy.failover._check_lead(leads)
    assert (copy.node.role, copy.node.verdict) == (SECONDARY, "fenced")


def test_a_primary_learns_from_its_neighbours_that_a_generation_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that got it has died since, so it must be led from here again."""
    copy = Copy(tmp_path, role=PRIMARY)
    copy.answers({"127.0.0.1:3": {"g": 2, "received": BEGIN}}, monkeypatch)
    copy.failover._check_lead(None)
    assert (copy.node.suspended, copy.node.generation) == (True, 2)


def test_who_finds_everything_done_and_everybody_gone_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path)
    copy.answers({}, monkeypatch)
    for output in copy.node.outputs:
        done = {"role": PRIMARY, "g": 1, "received": 900, "finished": True}
        hear(copy.node, output, output.link.copies[0], done)
    copy.failover._take_over("is silent")
    assert copy.node.finished


def test_what_breaks_while_a_fenced_copy_is_torn_down_does_not_matter(tmp_path: Path) -> None:
    """It is to be started again as the secondary."""
    node = Copy(tmp_path, role=PRIMARY).node
    node.step_down("the other copy leads")
    node.fail(KasenError("the engine was stopped in the middle of its work"))
    assert (node.verdict, node.fault) == ("fenced", None)


def test_a_copy_that_comes_back_and_is_not_first_is_the_secondary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, role=STARTING)
    copy.answers({"127.0.0.1:3": {"g": 3, "received": BEGIN}}, monkeypatch)
    copy.failover.decide_role()
    assert copy.node.role == SECONDARY
    assert copy.node.generation == 3


@pytest.mark.parametrize(("patience", "pings"), [(2, 2), (4, 4), (1000, 16)])
def test_who_was_taken_for_dead_waits_longer_for_others(
    patience: int, pings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Copy(tmp_path, ping_interval=0.001)
    copy.failover = Failover(copy.node, [], lambda: None, patience)
    primary = {"role": PRIMARY, "g": 1, "holds": True, "claims": False}
    replies: dict[str, Json | None] = {PEER: primary}
    asked = copy.answers(replies, monkeypatch)
    monkeypatch.setattr(copy.failover, "_take_over", lambda _: copy.node.end("stopped"))
    monkeypatch.setattr(copy.node.stopping, "wait", lambda _: replies.clear())
    copy.failover.watch()
    assert asked.addresses == [PEER] * (1 + pings)


def test_a_copy_that_holds_nothing_leaves_the_lead_to_one_that_does(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    assert copy.failover._turn({"holds": True}) == 6
    assert copy.failover._turn({"holds": False}) == 2


def test_a_copy_that_was_started_again_has_less_than_before(tmp_path: Path) -> None:
    """What it had counts no more: it may yet ask for that."""
    copy = Copy(tmp_path, role=PRIMARY)
    output = copy.node.outputs[0]
    for received in (500, BEGIN):
        hear(copy.node, output, "127.0.0.1:5", {"role": SECONDARY, "g": 1, "received": received})
    assert output.heard["127.0.0.1:5"].received == BEGIN


def test_a_takeover_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    """A copy kept by snapshots takes input while it tries to lead, and forgets it at the next snapshot."""
    copy = Copy(tmp_path, "total")
    node, inbox = copy.node, copy.node.inboxes["readings"]
    state, outputs = copy.work.snapshot(), queues()
    node.take_snapshot_in(Snapshot({"readings": 10}, state, outputs))
    node.begin_takeover()
    node.restore_snapshot()
    meta = {"g": 1, "to": 1}
    node.receiver.receive(inbox, "127.0.0.1:3", meta, LinkPiece(None, 10, 20))
    assert inbox.received == 20
    node.give_up()
    node.take_snapshot_in(Snapshot({"readings": 30}, state, outputs))
    assert node.holds_input
    node.restore_snapshot()
    assert (inbox.received, len(inbox.waiting)) == (30, 0)


def test_a_snapshot_that_comes_during_a_takeover_is_refused(tmp_path: Path) -> None:
    """The primary was only slow; what upstream sends by now follows the snapshot before."""
    copy = Copy(tmp_path, "total")
    node, inbox = copy.node, copy.node.inboxes["readings"]
    node.take_snapshot_in(Snapshot({"readings": 10}, copy.work.snapshot(), queues()))
    node.begin_takeover()
    node.restore_snapshot()
    node.receiver.receive(inbox, "127.0.0.1:3", {"g": 1, "to": 1}, LinkPiece(None, 10, 30))
    late = Snapshot({"readings": 20}, copy.work.snapshot(), queues())
    with pytest.raises(DataError, match="does not follow"):
        node.take_snapshot_in(late)
    node.promote(2)
    with pytest.raises(DataError, match="does not follow"):
        node.take_snapshot_in(late)
    assert inbox.received == 30


def test_a_claim_from_a_stranger_is_refused(tmp_path: Path) -> None:
    copy = Copy(tmp_path, role=PRIMARY)
    claim = {"node": "source", "g": 2, "copy": "127.0.0.1:9", "positions": {}, "rebuilds": True}
    with pytest.raises(DataError, match="is not a copy of source"):
        copy.failover.answers["claim"](pack(claim))
    assert copy.node.known["source"].generation == 1


def test_what_waits_is_worked_on_in_one_piece(tmp_path: Path) -> None:
    inbox = Copy(tmp_path).node.inboxes["readings"]
    schema = pa.schema([("ts", pa.int64())])
    for start, count in ((0, 2), (10, 0), (20, 3), (30, 4)):
        batch = pa.record_batch([pa.array(range(start, start + count), pa.int64())], schema=schema)
        inbox.take(LinkPiece(batch if count else None, start, start + 10, start == 30))
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
        node.worker._marked = 0.0  # marks are made by the clock, which does not matter here
        piece = LinkPiece(batch.slice(row, 1), inbox.received, ts + 1)
        node.receiver.receive(inbox, "127.0.0.1:3", {"g": 1, "to": 1}, piece)
        node.worker.work_once()
        yield ts + 1


def arrived(copy: Copy, upto: int) -> None:
    """All downstream copies have the answers below a time."""
    for output in copy.node.outputs:
        for address in output.link.copies:
            hear(copy.node, output, address, {"role": SECONDARY, "g": 1, "received": upto})


@pytest.mark.parametrize("role", [PRIMARY, SECONDARY])
def test_a_copy_does_not_remember_every_state_it_was_in(role: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path, "filter", role=role)
    for upto in fed(copy):
        arrived(copy, upto)
    assert copy.work.history is not None
    assert len(copy.work.history._marks) <= 2
    told = acknowledge(copy.node, copy.node.inboxes["readings"]).get("release")
    assert told == (upto if role == PRIMARY else None)


def test_a_single_copy_that_remembers_everything_does_not_let_upstream_keep_everything(
    tmp_path: Path,
) -> None:
    copy = Copy(tmp_path, "total", role=PRIMARY)
    copy.node.is_passive, copy.node.releases.alone = False, True  # as without a peer
    positions = list(fed(copy))
    arrived(copy, positions[20])
    assert acknowledge(copy.node, copy.node.inboxes["readings"])["release"] == positions[20]
