"""Runs one node in this process, until its input has ended, it is stopped, or it is fenced."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from _thread import start_new_thread
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from kasen.errors import DataError, KasenError, ResourceError
from kasen.ha.config import SECONDARY, STARTING, Neighbour, NodeConfig, read_node, with_role
from kasen.ha.link.out_queue import OutQueue
from kasen.ha.link.sender import Sender
from kasen.ha.link.server import NodeServer
from kasen.ha.node import Node
from kasen.ha.node_state import Acknowledgement, OutputLink
from kasen.ha.takeover.failover import PATIENCE, Failover
from kasen.ha.takeover.finished import FinishedNodes
from kasen.ha.takeover.snapshot_sender import send_snapshots
from kasen.ha.work.edge import Edge
from kasen.ha.work.sink import SinkWork
from kasen.ha.work.work import AppWork
from kasen.plan.physical import Plan
from kasen.runtime.memory import own_process

_LINGER_SECONDS = 10.0
#: Within this time, copies that lost a connection have made another one.
_RECONNECT_SECONDS = 1.0
#: For what a node that has finished still writes to its links.
_LAST_WORDS_SECONDS = 0.5
#: The exit code of a child that is to be started again as the secondary.
FENCED = 75
LoadPlan = Callable[[Path], Plan]


class RunningNode:
    """A node with its server, its senders and its threads."""

    def __init__(self, config: NodeConfig, load: LoadPlan, patience: int = PATIENCE) -> None:
        self.config = config
        plan = load(config.app) if config.app is not None else None
        work: AppWork | SinkWork | None = None
        if config.sink is not None:
            work = SinkWork(config.sink, config.inputs)
        elif config.inputs:
            assert plan is not None
            assert config.app is not None
            work = app_work(config, plan, config.app.parent)
        check_standby(config, work)
        self.node = Node(replace(config, role=STARTING if config.role != SECONDARY else SECONDARY), work)
        schemas = output_schemas(plan)
        self.node.add_outputs([self._output(link, schemas) for link in config.outputs])
        self._edge, self._reads = None, False
        if work is None:
            assert plan is not None
            assert config.app is not None
            self._edge = Edge(self.node, plan, config.app.parent)
        self._senders = [
            Sender(self.node, out, copy) for out in self.node.outputs for copy in out.link.copies
        ]
        self._failover = Failover(self.node, list(self._senders), self._promoted, patience)
        self._finished = FinishedNodes(config.finished_folder)
        self._server: NodeServer | None = None

    def _output(self, link: Neighbour, schemas: dict[str, pa.Schema]) -> OutputLink:
        if link.query not in schemas:
            known = ", ".join(schemas) or "none"
            raise DataError(
                f"{self.config.name} has no query {link.query!r} to send to {link.node}; it has: {known}"
            )
        return OutputLink(
            link, OutQueue(schemas[link.query]), {copy: Acknowledgement() for copy in link.copies}
        )

    def run(self, wanted: Callable[[], bool] = lambda: True) -> str:
        """The verdict: finished, stopped or fenced.

        A fault is raised. Stops when it is not `wanted` any more.
        """
        node = self.node
        if self._is_done():
            self._finished.note(self.config.name)
            return "finished"
        self._server = NodeServer(self.config, node)
        self._server.answers |= self._failover.answers
        if node.work is not None:
            if node.work.journal is not None:
                self._server.give_out(node.work.journal)
            node.work.start()
        for sender in self._senders:
            sender.start()
        self._failover.decide_role()
        node.log.info("%s %s listens on %s", node.role, self.config.name, self.config.listen)
        if node.work is not None:
            threading.Thread(target=node.worker.loop, name="work", daemon=True).start()
        if node.is_primary:
            self._promoted()
        if self.config.peer is not None:
            threading.Thread(target=self._failover.watch, name="watch", daemon=True).start()
        if node.is_passive:
            threading.Thread(target=send_snapshots, args=(node,), name="snapshots", daemon=True).start()
        if isinstance(node.work, SinkWork) and all(node.work.ended.values()):
            node.finish()  # those who send here may not know it yet
            node.stopping.wait(_RECONNECT_SECONDS)
        while not node.stopping.wait(0.2):
            if node.finished or self._is_done():
                node.finish()
                self._leave()
            if not wanted():
                node.end("stopped")
        due = time.monotonic() + (_LAST_WORDS_SECONDS if node.verdict == "finished" else 0.0)
        for sender in self._senders:
            sender.join(max(0.0, due - time.monotonic()))
            sender.cancel()
        if node.work is not None:
            node.work.close()
        if node.fault is not None:
            raise node.fault
        assert node.verdict is not None
        return node.verdict

    def _is_done(self) -> bool:
        """Nothing is left to do for a node whose downstream nodes have all finished, whoever leads it."""
        below = [output.link.node for output in self.node.outputs] or [self.config.name]
        return all(name in self._finished for name in below)

    def _promoted(self) -> None:
        """An edge begins to read when it leads for the first time."""
        if self._edge is not None and not self._reads:
            self._reads = True
            threading.Thread(target=self._read, name="edge", daemon=True).start()

    def _read(self) -> None:
        assert self._edge is not None
        try:
            self._edge.run()
        except Exception as fault:
            self.node.fail(
                fault if isinstance(fault, DataError) else ResourceError(f"reading failed: {fault}")
            )

    def _leave(self) -> None:
        """Stays until those who send here know that all is done."""
        self._finished.note(self.config.name)
        self._failover.tell_peer_done()
        due = time.monotonic() + _LINGER_SECONDS
        while self.node.exchanges and time.monotonic() < due and not self.node.stopping.is_set():
            time.sleep(0.02)
        self.node.end("finished")


def app_work(config: NodeConfig, plan: Plan, base: Path) -> AppWork:
    """Spark is loaded only where it is asked for."""
    if config.engine == "local":
        return AppWork(plan, base, config.inputs)
    from kasen.ha.work.spark_work import SparkWork

    if config.file is None:
        raise DataError(f"{config.name}: a Spark node is started from its file")
    return SparkWork(plan, base, config.inputs, config.file)


def output_schemas(plan: Plan | None) -> dict[str, pa.Schema]:
    from kasen.connect.decode import output_schema

    if plan is None:
        return {}
    return {query.name: output_schema(query.schema, plan.app.time) for query in plan.app.queries}


def check_standby(config: NodeConfig, work: AppWork | SinkWork | None) -> None:
    """What the plan allows, told at the start."""
    log = logging.getLogger(f"kasen.ha.{config.name}")
    if not isinstance(work, AppWork):
        return
    if config.ack == "document" and not work.without_history:
        raise DataError(
            f'{config.name}: ack = "document" forgets input as soon as its answers have arrived, which is'
            ' right only for plans without history; leave ack = "safe"'
        )
    if work.why_history is not None:
        how = "the other copy gets snapshots" if config.peer else "without another copy, it would be lost"
        log.warning("the state cannot be rebuilt from recent input (%s): %s", work.why_history, how)


def run_node(file: Path, load: LoadPlan, role: str | None = None) -> int:
    """`kasen node`: the exit code of a node's life.

    The node itself is a child process. One that was fenced ends, and a new one starts as the secondary:
    nothing of the old generation is left in it, and nothing has to be loaded again.
    """
    config = read_node(file)
    if role is not None:
        config = with_role(config, role)
    logging.basicConfig(
        format="%(asctime)s.%(msecs)03d %(name)s: %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    logging.getLogger("kasen").setLevel(logging.INFO)
    own_process()  # its children inherit that, and a child that takes another's place starts at once
    patience = PATIENCE
    while True:
        child = os.fork()
        if child == 0:
            _be_node(config, load, patience)
        code = _wait_for(child)
        if code != FENCED:
            return code
        config = with_role(config, SECONDARY)
        # It was alive when it was taken for dead. So would the other one be, on this machine or this network:
        # waiting longer each time ends what would else go to and fro without any progress.
        patience *= 2


def _wait_for(child: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    while True:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        if os.WIFSIGNALED(status):
            return 128 + os.WTERMSIG(status)


def _be_node(config: NodeConfig, load: LoadPlan, patience: int) -> NoReturn:
    """Never returns: gRPC would wait for connections of peers that may be gone."""
    parent = os.getppid()
    code = 0
    try:
        running = RunningNode(config, load, patience)
        # In a thread of its own: a second signal may interrupt the handler of the first (a terminal and the
        # parent both send one), and would wait for ever for the locks that that one has taken.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: start_new_thread(running.node.end, ("stopped",)))
        verdict = running.run(lambda: os.getppid() == parent)
        running.node.log.info("%s", verdict)
        code = FENCED if verdict == "fenced" else 0
    except KasenError as fault:
        print(f"error: {fault}", file=sys.stderr)
        code = fault.exit_code
    except BaseException:
        traceback.print_exc()
        code = 1
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)
