"""What changes of the queries of this process leave for the next run of the graph.

What came has not seen anything yet: until it has run, its contents are not those of its steps. A checkpoint
between a change and the next run has all of this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from kasen.engine.batch import Batch, concat
from kasen.engine.operator import State
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.splice import LiveQuery, Splice


class PendingSplices:
    """The queries and steps that came since the last run, and what queries emit first in the next one."""

    def __init__(self) -> None:
        self.queries: set[str] = set()
        self.steps: set[int] = set()
        self.primed: dict[int, Batch] = {}
        self.transitions: dict[str, Batch] = {}

    def add(self, splice: Splice) -> None:
        self.steps.update(splice.new_steps)
        self.queries.update(splice.new_queries)
        self.primed |= splice.primed
        for name, batch in splice.transitions.items():
            before = self.transitions.get(name)
            self.transitions[name] = batch if before is None else concat((before, batch), batch.columns)

    def discard_query(self, query: LiveQuery) -> None:
        self.queries.discard(query.key)
        self.transitions.pop(query.registered.name, None)

    def discard_step(self, step: int) -> None:
        self.steps.discard(step)
        self.primed.pop(step, None)

    def finish(self, queries: Mapping[str, LiveQuery]) -> dict[str, Batch]:
        """The graph has run: what came is like the rest now. Returns what queries emit first."""
        transitions = self.transitions
        if self.queries or self.steps or self.primed or transitions:
            for key in self.queries:
                queries[key].initial = None
            self.queries.clear()
            self.steps.clear()
            self.primed.clear()
            self.transitions = {}
        return transitions

    def save(self, graph: Graph, queries: Mapping[str, LiveQuery]) -> dict[str, State]:
        if not (self.steps or self.queries or self.transitions):
            return {}
        names = {"came": sorted(self.queries), "born": sorted(self.steps)}
        found = {"live.names": {"json": np.frombuffer(json.dumps(names).encode(), np.uint8)}}
        for step, inputs in graph.initial_inputs.items():
            for position, batch in inputs.items():
                found[f"live.birth.{step}.{position}"] = _pack(batch)
        found |= {f"live.told.{name}": _pack(batch) for name, batch in self.transitions.items()}
        found |= {f"live.primed.{step}": _pack(batch) for step, batch in self.primed.items()}
        for key in self.queries:
            initial = queries[key].initial
            if initial is not None:
                found[f"live.initial.{key}"] = _pack(initial)
        return found

    def restore(self, states: Mapping[str, State], graph: Graph, queries: Mapping[str, LiveQuery]) -> None:
        names = json.loads(states["live.names"]["json"].tobytes())
        self.queries, self.steps = set(names["came"]), set(names["born"])
        for key, state in states.items():
            if key.startswith("live.birth."):
                step, position = key.removeprefix("live.birth.").split(".")
                graph.inject(int(step), int(position), _unpack(state))
            elif key.startswith("live.told."):
                self.transitions[key.removeprefix("live.told.")] = _unpack(state)
            elif key.startswith("live.primed."):
                self.primed[int(key.removeprefix("live.primed."))] = _unpack(state)
            elif key.startswith("live.initial."):
                queries[key.removeprefix("live.initial.")].initial = _unpack(state)


def _pack(batch: Batch) -> State:
    return {"ts": batch.ts, "sub": batch.seq_tick, "diff": batch.diff, "data": batch.data}


def _unpack(state: State) -> Batch:
    ts, seq_tick, diff = (np.array(state[name], np.int64) for name in ("ts", "sub", "diff"))
    return Batch(ts, seq_tick, diff, np.array(state["data"], np.int64, order="C"))
