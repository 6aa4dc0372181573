"""EXPLAIN of a sharded pipeline: what each level receives, by which key, and what stays on one shard."""

from __future__ import annotations

from kasen.plan.explain.explain import describe, show_window
from kasen.plan.exprs import show
from kasen.plan.logical import Filter, Node, Project, Scan
from kasen.plan.lower.joins import InputNumbering, LeftDrivenJoin, MultiJoin, TreeSelection
from kasen.plan.lower.lower import CountedJoin, OrdinalRows, Pad, SlidingAggregate
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragments import Fragment, FragmentPlan
from kasen.plan.shard.split import Split
from kasen.types import Type


def explain_fragments(cut: FragmentPlan) -> str:
    """A block of text, level by level; as on executors, so in the driver, where all shards are one."""
    lines = ["on executors:"]
    for fragment in cut.fragments:
        lines.append(f"  level {fragment.level}")
        lines += [f"    exchange {_exchange(cut, edge)}" for edge in fragment.inputs]
        for node, split in _steps(cut, fragment):
            lines.append(f"    {_describe(node, cut.plan.app.time)}   -- {split}")
    return "\n".join(lines) + "\n"


def exchanges(cut: FragmentPlan) -> str:
    """How rows move between shards, in a few words: the name of the job that moves them."""
    ways = [_way(edge) for fragment in cut.fragments for edge in fragment.inputs if not edge.instants]
    return "exchange " + "; ".join(dict.fromkeys(ways)) if ways else "no exchange"


def _way(edge: Exchange) -> str:
    if edge.to is not Destination.KEY:
        return str(edge.to.value)
    return f"by {', '.join(show(key) for key in edge.keys)}"


def _exchange(cut: FragmentPlan, edge: Exchange) -> str:
    source = cut.plan.steps[edge.source].node
    what = source.name if isinstance(source, Scan) else _describe(source, cut.plan.app.time)
    if edge.instants:
        what = f"instants of {what}"
    if edge.ordinals:
        what = f"{what} with ordinals"
    return f"{what}: {_way(edge)}"


def _steps(cut: FragmentPlan, fragment: Fragment) -> list[tuple[Node, Split | None]]:
    """The steps of a level that remember something, and their splits; the others go along with them."""
    here = {step.node for step in fragment.first.steps}
    joins: dict[Node, Node] = {each.join: each for each in here if isinstance(each, CountedJoin)}
    return [
        (joins.get(step.node, step.node), cut.splits[step.id])
        for step in cut.plan.steps
        if not isinstance(step.node, Scan | Project | Filter | Pad | InputNumbering)
        and (step.node in here or step.node in joins or _is_counted(step.node, here))
    ]


def _is_counted(node: Node, here: set[Node]) -> bool:
    window = getattr(node, "window", None)
    return any(
        isinstance(each, OrdinalRows) and each.window == window and each.schema == node.schema
        for each in here
    )


def _describe(node: Node, time: Type) -> str:
    match node:
        case SlidingAggregate(window=window, keys=keys):
            return f"SlidingAggregate {window} by {keys} columns"
        case Pad():
            return "Pad with NULLs"
        case MultiJoin():
            name = "ParallelMJoin" if node.parallel else "PairJoin" if node.is_pair else "MJoin"
            return _multi_join(name, node, time)
        case CountedJoin(join=join):
            return _multi_join("PairJoin", join, time, node.counted)
        case LeftDrivenJoin(keys=keys, inputs=(left, right)):
            pairs = [f"{left.schema[a].name} = {right.schema[b].name}" for a, b in keys]
            return f"Root of a tree {' AND '.join(pairs)}"
        case TreeSelection(trees=trees):
            return f"Selector of {len(trees)} trees"
    return describe(node, time)


def _multi_join(name: str, node: MultiJoin, time: Type, counted: tuple[int, ...] = ()) -> str:
    """The operator, its keys, and the windows that it holds; the rows of others come in and go."""
    keys = [" = ".join(node.inputs[at].schema[c].name for at, c in each) for each in node.classes]
    parts = [*keys, *(show(residual) for residual in node.residuals)]
    windows = ["its rows" if window is None else show_window(window, time) for window in node.windows]
    for at in counted:
        windows[at] = f"{describe(node.inputs[at], time).removeprefix('Window ')} by ordinals"
    return f"{name} {' AND '.join(parts)} over {', '.join(windows)}"
