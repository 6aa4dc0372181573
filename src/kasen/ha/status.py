"""What a copy of a node says of itself: `kasen cluster status`, tests and experiments read it."""

from __future__ import annotations

from kasen.ha.link.wire import BEGIN, Json
from kasen.ha.node import Node
from kasen.ha.node_state import OutputLink
from kasen.ha.work.sink import SinkWork


def status_of(node: Node) -> Json:
    with node.lock:
        measured = dict(node.measured)
        if isinstance(node.work, SinkWork) and node.work.lateness:
            late = sorted(node.work.lateness)
            measured["lateness"] = [late[len(late) // 2], late[len(late) * 99 // 100]]
        return {
            "name": node.config.name,
            "role": node.role,
            "generation": node.generation,
            "finished": node.finished,
            "suspended": node.suspended,
            "follows_snapshots": node.follows_snapshots,
            "waits_for": None if node.is_primary else node.waits_for,
            "ready": _is_ready(node),
            "inputs_begun": any(inbox.received > BEGIN for inbox in node.inboxes.values()),
            "inputs": {stream: inbox.received for stream, inbox in node.inboxes.items()},
            "outputs": {f"{each.link.query} -> {each.link.node}": _link(each) for each in node.outputs},
            "measured": measured,
        }


def _is_ready(node: Node) -> bool:
    """Whether this copy leads, or could: it has, or will be sent, what taking over needs."""
    return node.is_primary or not node.is_passive or node.snapshot is not None


def _link(output: OutputLink) -> Json:
    return {
        "held": len(output.queue),
        "upto": output.queue.upto,
        "start": output.queue.start,
        "main": [output.main.rows, output.main.payload, output.main.wire],
        "batch": output.batch,
        "bound_kept": output.bound_kept,
        "predicted": [output.cost.overhead(output.batch), output.cost.recovery(output.batch)],
        "backup": [output.backup.rows, output.backup.payload, output.backup.wire],
    }
