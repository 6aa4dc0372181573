"""What copies tell each other of the tuples on their links.

Level 0 goes one link up: how far a copy has its input. Level 1 goes along the chain: what upstream may
forget, because every downstream node is done with it.
"""

from __future__ import annotations

from kasen.ha.config import PRIMARY
from kasen.ha.link.inbox import Inbox
from kasen.ha.link.wire import Json
from kasen.ha.node import Node
from kasen.ha.node_state import OutputLink
from kasen.ha.work.sink import SinkWork
from kasen.ha.work.work import AppWork


def acknowledge(node: Node, inbox: Inbox) -> Json:
    """What an upstream copy is told. Called with the lock."""
    ack: Json = {"role": node.role, "g": node.generation, "received": inbox.received}
    if isinstance(node.work, SinkWork):
        position = node.work.positions[inbox.link.stream]
        ack |= {"received": position, "release": position}
    elif node.is_primary:
        ack |= node.releases.told(inbox.link.stream, node.outputs)
    if node.is_passive and not node.is_primary:
        ack["snapshots"] = True
    if node.worker.service is not None:
        ack["service"] = node.worker.service
    if node.finished:
        ack["finished"] = True
    return ack


def hear(node: Node, output: OutputLink, copy: str, ack: Json) -> None:
    """A level-0 acknowledgement from a downstream copy, with what that node itself releases."""
    with node.lock:
        if ack["role"] == PRIMARY:
            node.learn(output.link.node, ack["g"], copy)
        heard = output.heard[copy]
        output.connected = True
        # Not the most ever heard: a copy that was started again has less than the one before it.
        heard.received = ack["received"]
        heard.takes_batches = not ack.get("snapshots")
        if "service" in ack:
            output.cost.saw_service(ack["service"])
        if copy == node.known[output.link.node].primary:
            if ack.get("release") is not None:
                if ack["release"] > output.queue.start:
                    total = output.queue.row_number(output.queue.upto)
                    output.cost.saw_peak(len(output.queue), total - output.arrived)
                    output.arrived = total
                    _adapt(node, output)
                output.queue.release(ack["release"], ack.get("restart"))
            output.finished = output.finished or bool(ack.get("finished"))
        _pass_on(node)
        node.check_finished()
        node.room.notify_all()


def _adapt(node: Node, output: OutputLink) -> None:
    """batch = "auto": the size that keeps the bound, as load is now."""
    config = node.config
    if config.batch != "auto":
        return
    if config.max_recovery is not None:
        output.batch, kept = output.cost.batch_for_recovery(config.max_recovery)
    else:
        assert config.max_overhead is not None
        output.batch, kept = output.cost.batch_for_overhead(config.max_overhead)
    if kept != output.bound_kept:
        output.bound_kept = kept
        text = "can be kept again" if kept else "cannot be kept, not even with batch 1"
        expected = output.cost.recovery(output.batch) * 1e3
        node.log.warning("the bound for %s %s: recovery is %.0f ms", output.link.node, text, expected)


def _pass_on(node: Node) -> None:
    """The level-1 acknowledgement: what upstream may forget, as all downstream nodes are done with it."""
    if isinstance(node.work, AppWork) and node.outputs:
        done = min(_done(node, output) for output in node.outputs)
        if node.releases.follow(done, node.history, leads=node.is_primary):
            node.tell_upstream()


def _done(node: Node, output: OutputLink) -> int:
    """Below this, a downstream node never asks for answers again."""
    primary = output.heard[node.known[output.link.node].primary].received
    if node.config.ack == "document" or len(output.heard) == 1:
        return primary
    # The downstream secondary must find what it may still ask for, even if this copy dies and a new one
    # takes over, and then the downstream primary dies too.
    second = min(heard.received for heard in output.heard.values())
    return min(primary, max(second, output.queue.start))
