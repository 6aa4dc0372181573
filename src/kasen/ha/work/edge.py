"""A node at the edge: it reads its own files, at a given rate if one is given, and sends its queries' answers
on.

Files can be read again, so an edge keeps nothing for its second copy: one that takes over reads from the
start, at full speed until it has passed what the downstream nodes have.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from kasen.connect.decode import decode
from kasen.errors import DataError
from kasen.ha.node import Node
from kasen.ha.work.work import Result
from kasen.plan.physical import Plan
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.pipeline import Answer
from kasen.types import TIMESTAMP

#: Without a rate, so many rows an epoch; with one, the rows of so many seconds.
_EPOCH_ROWS = 4096
_EPOCH_SECONDS = 0.004


class Edge:
    """Runs the app of an edge node, in its working thread."""

    def __init__(self, node: Node, plan: Plan, base: Path) -> None:
        self._node = node
        self._plan = plan
        self._rate, self._speed = node.config.rate, node.config.speed
        if self._speed is not None and plan.app.time != TIMESTAMP:
            raise DataError(
                f"speed goes with TIMESTAMP time; the time of {node.config.app} is {plan.app.time}"
            )
        for input_ in plan.app.inputs:
            once = input_.connector.format == "memory" or (
                input_.timestamp is None and not input_.is_relation
            )
            if once and node.config.peer is not None:
                raise DataError(f"{input_.name} cannot be read again, so its node cannot have a second copy")
        rows = _EPOCH_ROWS if self._rate is None else int(self._rate * _EPOCH_SECONDS)
        rows = 1 if self._speed is not None else max(1, min(_EPOCH_ROWS, rows))
        self._run = LocalRun(plan, Options(base, batch=rows), on_answer=self._on_answer)
        self._begin: float | None = None
        self._rows = self._first = 0

    def run(self) -> None:
        """Reads to the end of the input, from when those are there who want it."""
        node = self._node
        while not node.stopping.is_set() and not all(output.connected for output in node.outputs):
            node.stopping.wait(0.01)
        self._run.run()
        if not self._node.stopping.is_set():
            self._node.worker.put_out(Result({}, self._run.pipeline.upto, True))

    def _on_answer(self, answer: Answer) -> None:
        pipeline, app = self._run.pipeline, self._plan.app
        answers: dict[str, pa.RecordBatch] = {}
        for query in app.queries:
            batch = answer.changes.get(query.name)
            if batch is not None and len(batch):
                table = decode(batch, query.schema, pipeline.dictionary, app.time)
                answers[query.name] = table.to_batches()[0]
        self._node.worker.put_out(Result(answers, pipeline.upto))
        if self._node.stopping.is_set():
            self._run.stop()
        elif self._rate is not None or self._speed is not None:
            self._wait_for_turn(pipeline.upto)

    def _wait_for_turn(self, upto: int) -> None:
        rows = self._run.outputs.progress.rows
        known = [max(heard.received for heard in out.heard.values()) for out in self._node.outputs]
        if known and upto <= min(known):
            return  # being read again: the others have it
        if self._begin is None:
            self._begin, self._rows, self._first = time.monotonic(), rows, upto
            # When a tuple was read, by the wall clock, follows from its own time and this.
            self._node.measured["offset"] = time.time_ns() // 1000 - upto
        if self._rate is not None:
            due = self._begin + (rows - self._rows) / self._rate
        else:
            assert self._speed is not None
            due = self._begin + (upto - self._first) / 1e6 / self._speed
        if (left := due - time.monotonic()) > 0:
            self._node.stopping.wait(left)
