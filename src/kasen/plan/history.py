"""Whether a plan's state can be rebuilt from recent input, and if not, why.

A window over a stream forgets, so what it holds follows from the input since its oldest tuple, and what joins
and aggregates hold follows from the windows below them. What never forgets needs all input from the beginning
on: then a second copy can only be kept up to date by snapshots.
"""

from __future__ import annotations

from kasen.cql.bound import Now, PartitionRows, SetKind, StreamKind, Unbounded
from kasen.plan import logical
from kasen.plan.logical import Node
from kasen.plan.physical import Plan, Step
from kasen.plan.physical_nodes import LeftJoined, MultiJoin, Numbered, Pad, Selected

_REMEMBERING = (LeftJoined, logical.InnerJoin, logical.SemiJoin, logical.Aggregate, logical.Distinct)
_PASSING = (logical.Filter, logical.Project, Pad, Numbered, Selected)


def why_history(plan: Plan) -> str | None:
    """What needs the input from its beginning on; None if every state follows from recent input."""
    for input_ in plan.app.inputs:
        if input_.is_relation and not input_.is_static:
            return f"the relation {input_.name} holds all rows that were not deleted"
    for stage in plan.stages():
        if len(stage) > 1 or stage[0] in plan.steps[stage[0]].inputs:
            names = ", ".join(name for name, step in plan.outputs if step in stage)
            return f"the loop of {names} feeds on its own past"
    for step in plan.steps:
        if isinstance(step.node, logical.WindowNode) and isinstance(step.node.window, PartitionRows):
            return "a partition of a PARTITION BY window may have been silent for ever"
        if isinstance(step.node, MultiJoin) and any(isinstance(w, Unbounded) for w in step.node.windows):
            return "a join over [UNBOUNDED] remembers every row"
        for source in _bags_read(step):
            if _unbounded(plan, source):
                return f"{type(step.node).__name__.lower()} over [UNBOUNDED] remembers every row"
    return None


def is_without_history(plan: Plan) -> bool:
    """Whether nothing but the input of the present instant matters."""
    return why_history(plan) is None and all(_forgets(step.node) for step in plan.steps)


def _forgets(node: Node) -> bool:
    if isinstance(node, logical.WindowNode):
        return isinstance(node.window, Unbounded | Now)
    if isinstance(node, logical.Streamify):
        return node.kind is not StreamKind.RSTREAM
    return isinstance(node, (*_PASSING, logical.Scan)) or _is_union(node)


def _is_union(node: Node) -> bool:
    return isinstance(node, logical.SetOp) and node.kind is SetKind.UNION and node.all


def _bags_read(step: Step) -> tuple[int, ...]:
    """The inputs whose whole bag a step's state follows from."""
    node = step.node
    if isinstance(node, MultiJoin):
        kept = zip(step.inputs, node.windows, strict=True)
        return tuple(source for source, window in kept if window is None)
    if isinstance(node, logical.Streamify):
        return step.inputs[:1] if node.kind is StreamKind.RSTREAM else ()
    if isinstance(node, _REMEMBERING):
        return step.inputs
    if isinstance(node, logical.SetOp) and not _is_union(node):
        return step.inputs
    return ()


def _unbounded(plan: Plan, step: int) -> bool:
    """Whether a step's bag grows for ever."""
    node = plan.steps[step].node
    if isinstance(node, logical.WindowNode):
        return isinstance(node.window, Unbounded)
    if isinstance(node, _PASSING) or _is_union(node):
        return any(_unbounded(plan, source) for source in plan.steps[step].inputs)
    return False
