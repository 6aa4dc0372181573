"""EXPLAIN of a sharded pipeline: what shards do at each level, and what comes to it by which exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kasen.cql.expr import Column, Expr
from kasen.plan.explain.show import show
from kasen.plan.explain.step import Names, column_names
from kasen.plan.explain.tree import Forest
from kasen.plan.exprs import rebuild
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.shard.exchange import Destination, Exchange, is_loop
from kasen.plan.shard.fragments import Fragment, FragmentPlan
from kasen.plan.shard.loops import loop_sharding
from kasen.plan.shard.split import Split


def explain_fragments(cut: FragmentPlan) -> str:
    """A block of text, level by level."""
    return "\n".join(fragment_lines(cut, {})) + "\n"


def fragment_lines(cut: FragmentPlan, scans: Names) -> Iterator[str]:
    """The same as lines; `scans` has the names of inputs' columns where they are not those of schemas."""
    sent = dict.fromkeys(edge.name for fragment in cut.fragments for edge in fragment.outputs)
    numbers = {name: number for number, name in enumerate(sent, 1)}
    for fragment in cut.fragments:
        yield f"level {fragment.level}:"
        yield from _Level(cut, fragment, numbers, scans).lines()
    for stage in cut.plan.stages():
        if is_loop(cut.plan, stage):
            names = ", ".join(name for name, step in cut.plan.outputs if step in stage)
            yield f"loop of {names}: {loop_sharding(cut.plan, stage)}"


def exchanges(cut: FragmentPlan, scans: Names) -> str:
    """How rows move between shards, in a few words: the name of the job that moves them."""
    edges = [edge for fragment in cut.fragments for edge in fragment.inputs if not edge.instants]
    ways = [_way(cut, edge, scans) for edge in edges]
    return "exchange " + "; ".join(dict.fromkeys(ways)) if ways else "no exchange"


class _Level:
    """The trees of one level's fragment, as its first shard runs it: the others lack what has one shard."""

    def __init__(
        self, cut: FragmentPlan, fragment: Fragment, numbers: Mapping[str, int], scans: Names
    ) -> None:
        """`numbers` are those of exchanges between levels, by name."""
        self._cut = cut
        self._fragment = fragment
        self._numbers = numbers
        self._scans = scans
        self._edges = {edge.name: edge for edge in fragment.inputs}
        plan = fragment.first
        sent = {edge.name for edge in fragment.outputs}
        outputs = dict(plan.outputs)
        self._sent = [edge for edge in fragment.outputs if edge.name in outputs]
        self._forest = Forest(
            [step.node for step in plan.steps],
            [step.inputs for step in plan.steps],
            {name: step for name, step in outputs.items() if name not in sent},
            plan.app.time,
            leaf=self._leaf,
            notes=self._shard,
            sent=[outputs[edge.name] for edge in self._sent],
        )

    def lines(self) -> Iterator[str]:
        plan = self._fragment.first
        schemas = {query.name: query.schema for query in plan.app.queries}
        for name in self._forest.queries:
            yield from self._forest.query(name, schemas[name], "  ")
        outputs = dict(plan.outputs)
        for edge in self._sent:
            yield f"  exchange {self._numbers[edge.name]} to level {edge.level}: {self._show(edge)}"
            yield from self._forest.tree(outputs[edge.name], "    ")

    def _leaf(self, node: Node) -> str:
        assert isinstance(node, Scan | Ref)
        edge = self._edges[node.name]
        number = self._numbers.get(edge.name)
        return f"Exchange{'' if number is None else f' {number}'}: {self._show(edge)}"

    def _show(self, edge: Exchange) -> str:
        """What travels along an exchange, and where it goes."""
        node = self._cut.plan.steps[edge.source].node
        queries = {step: name for name, step in reversed(self._cut.plan.outputs)}
        what = node.name if isinstance(node, Scan | Ref) else queries.get(edge.source, "")
        if edge.instants:
            what = f"instants of {what}" if what else "instants"
        if edge.ordinals:
            what = f"{what} with ordinals"
        return f"{what} {_way(self._cut, edge, self._scans)}".lstrip()

    def _shard(self, step: int) -> list[str]:
        """How a step's rows lie on shards."""
        origins = self._fragment.steps[0]
        split = self._cut.splits[origins[step]] if step < len(origins) else None
        if split is None:
            return []
        whole = self._cut.plan.steps[origins[step]]
        below = (self._cut.splits[source] for source in whole.inputs)
        # The reason stands at the first step that has one shard, and with loops.
        is_told = any(each is not None and each.why for each in below)
        return [f"shard: {_show_split(split, _names(self._cut, whole.id, self._scans), is_told=is_told)}"]


def _show_split(split: Split, names: tuple[str, ...], *, is_told: bool) -> str:
    if split.everywhere:
        return "every"
    if split.why:
        # That of a loop stands with the loop.
        return "one" if is_told else f"one ({split.why.partition(': ')[0]})"
    return "any" if split.keys is None else _show_keys(split.keys, names)


def _show_keys(keys: tuple[Expr, ...], names: tuple[str, ...]) -> str:
    def called(part: Expr) -> Expr:
        return replace(part, name=names[part.index]) if isinstance(part, Column) else part

    columns = {key.index for key in keys if isinstance(key, Column)}
    if len(columns) == len(keys) == len(names) > 1:
        return "by whole rows"
    return f"by {', '.join(show(rebuild(key, called)) for key in keys)}"


def _way(cut: FragmentPlan, edge: Exchange, scans: Names) -> str:
    if edge.to is not Destination.KEY:
        return str(edge.to.value)
    return _show_keys(edge.keys, _names(cut, edge.source, scans))


def _names(cut: FragmentPlan, step: int, scans: Names) -> tuple[str, ...]:
    """What people call a step's columns; those of a query's answers are in its schema."""
    query = next((cut.plan.app.query(name) for name, root in cut.plan.outputs if root == step), None)
    return column_names(cut.plan.steps[step].node, scans) if query is None else query.schema.names
