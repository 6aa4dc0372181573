"""What a query sees at each of its steps just before a change.

A query that replaces another one, or that is backfilled, must know what was before it. So its new steps run
once over that, in silence. Steps that the query has in common with older ones are asked what they hold.
Windows of its own that remember nothing are empty, also if other queries have the same ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from kasen.engine.batch import Batch, Frontier, empty
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Delay, Node, Ref, Scan, Streamify
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.contents import at

#: How a plan tells its steps apart: by their nodes, or by numbers.
PlanStep = TypeVar("PlanStep", bound=Hashable)


class ContentsBefore(ABC, Generic[PlanStep]):
    """The changes that lead to what each step of one query held before the change.

    `new_steps` of the graph are run over what was before: from `begins_at` on, below `change_at`.
    """

    def __init__(
        self, graph: Graph, new_steps: Collection[int], begins_at: Frontier, change_at: Frontier
    ) -> None:
        self.graph = graph
        self.new_steps = new_steps
        self.begins_at = begins_at
        self.change_at = change_at
        self._found: dict[PlanStep, Batch] = {}

    def contents(self, plan_step: PlanStep) -> Batch:
        """What was before at a step. It is computed once: only then may a new step run."""
        if plan_step not in self._found:
            self._found[plan_step] = self._compute(plan_step)
        return self._found[plan_step]

    def _compute(self, plan_step: PlanStep) -> Batch:
        node = self._node(plan_step)
        if isinstance(node, Ref | Scan):
            return self._stream(node) if node.is_stream else at(self._relation(node), self.begins_at)
        step = self._step(plan_step)
        if not is_stateless(node) and step not in self.new_steps:
            return empty(len(node.schema)) if node.is_stream else at(self._held(step), self.begins_at)
        if isinstance(node, Delay):
            return empty(len(node.schema))  # what was on its way before the change is never delivered
        return self._fill(plan_step, node, step)

    def _fill(self, plan_step: PlanStep, node: Node, step: int) -> Batch:
        """Runs a new step over what was before."""
        if not is_stateless(node):
            self.graph.begin_steps([step], self.begins_at)
        changes = self.graph.operator(step).process(self._inputs(plan_step), self.change_at)
        # A stream within a query that goes on does not emit again what its relation held before.
        return empty(len(node.schema)) if isinstance(node, Streamify) and not self._has_past() else changes

    def _stream(self, node: Ref | Scan) -> Batch:
        """The past of a stream, as far as the query may see it."""
        return empty(len(node.schema))

    def _has_past(self) -> bool:
        """Whether the query emits what it would have emitted in the past."""
        return False

    @abstractmethod
    def _node(self, plan_step: PlanStep) -> Node: ...

    @abstractmethod
    def _step(self, plan_step: PlanStep) -> int:
        """The graph's step."""

    @abstractmethod
    def _inputs(self, plan_step: PlanStep) -> list[Batch]:
        """What was before at the steps that it reads."""

    @abstractmethod
    def _relation(self, node: Ref | Scan) -> Batch:
        """What a relation from outside the query held, as far as it will not flow in by itself."""

    @abstractmethod
    def _held(self, step: int) -> Batch:
        """What a step that the query shares with older ones held, as far as it will not flow in by itself."""
