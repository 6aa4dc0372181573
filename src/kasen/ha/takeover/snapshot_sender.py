"""Passive Standby, on the primary: at every interval the newest state goes to the other copy."""

from __future__ import annotations

import time

import pyarrow.flight as flight

from kasen.ha.link.wire import FAULTS, call_options, connect, reason
from kasen.ha.node import Node
from kasen.ha.takeover.snapshots import Snapshot, to_bytes

_SNAPSHOT_SECONDS = 30.0
#: While the other copy may only be slow, or about to take over, it must find its input.
_LEASE_SECONDS = 3.0
#: How often it is looked whether the other copy is there.
_LOOK_SECONDS = 0.5


def send_snapshots(node: Node) -> None:
    """Until the node ends. Does nothing while this copy does not lead."""
    config = node.config
    assert config.peer is not None
    confirmed: dict[str, int] | None = None
    with connect(config, config.peer) as client:
        due = time.monotonic()
        while not node.stopping.wait(min(config.snapshot_interval, _LOOK_SECONDS)):
            if not _other_copy_is_there(node) or (node.peer_holds and time.monotonic() < due):
                continue
            if (snapshot := _next(node)) is None:
                continue
            due = time.monotonic() + config.snapshot_interval
            if node.peer_holds and snapshot.positions == confirmed:
                continue  # it has this state already
            try:
                body = flight.Action("snapshot", to_bytes(snapshot))
                list(client.do_action(body, call_options(config, _SNAPSHOT_SECONDS)))
                node.confirmed(snapshot)
                confirmed = snapshot.positions
            except FAULTS as fault:
                confirmed = None
                node.log.info("the other copy did not take a snapshot: %s", reason(fault))


def _other_copy_is_there(node: Node) -> bool:
    """Whether this copy leads and there is another one to send snapshots to."""
    with node.lock:
        if not node.is_primary:
            return False
        absent = time.monotonic() - node.peer_heard > _LEASE_SECONDS
        if absent != node.releases.alone:
            node.releases.alone = absent
            state = "silent: running without one" if absent else "back"
            node.log.warning("the other copy is %s", state)
            # While it was away, input was forgotten that an older snapshot would ask for.
            node.snapshot = None
        return not absent


def _next(node: Node) -> Snapshot | None:
    """The state now, or after the run that goes on."""
    with node.lock:
        snapshot, node.snapshot = node.snapshot or node.take_snapshot(), None
        node.snapshot_wanted = True
        return snapshot
