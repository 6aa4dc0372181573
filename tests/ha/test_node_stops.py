"""A node that is told to stop ends, however often it is told."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.ha.chains import chain, make_chain
from tests.ha.nodes import Nodes


def test_many_signals_at_once_stop_a_node(tmp_path: Path) -> None:
    """A terminal and the parent of a node both hand a signal on: the second interrupts the first."""
    make_chain(tmp_path, "selection", 20_000)
    with Nodes(tmp_path, chain(rate=1000)) as nodes:
        nodes.wait_for("out", "inputs_begun")
        for _ in range(40):
            for member in nodes.members:
                nodes.signal(member, signal.SIGTERM)
        nodes.wait_until(lambda: all(nodes.pid(member) is None for member in nodes.members), 60)
