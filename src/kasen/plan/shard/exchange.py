"""Which rows must move between shards: for each step how its rows lie, for each of its inputs how they come.

Going up from the inputs, a step's rows stay where they are as long as the step's need is met. Chains of
steps that look at rows one by one take the split that the steps above them ask for, because an
input's rows must travel once anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from kasen.cql.bound import PartitionRows, Rows
from kasen.cql.expr import Column, Expr
from kasen.plan import logical
from kasen.plan.exprs import rebuild
from kasen.plan.logical import Node, Scan
from kasen.plan.physical import Plan
from kasen.plan.physical_nodes import LeftJoined, MultiJoin, Numbered, Pad, Selected, SlidingAggregate
from kasen.plan.shard.loops import LoopSharding, loop_sharding
from kasen.plan.shard.split import (
    ANY,
    EVERYWHERE,
    SPREAD,
    Need,
    Split,
    above,
    all_columns,
    below,
    joined,
    need,
    part_of,
    shifted,
)


class Destination(Enum):
    """Where the rows of an exchange go."""

    KEY = "by key"
    ONE = "to one shard"
    ALL = "to every shard"
    SAME = "to the same shard"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows on their way from a step (or an input's scan) to the steps of a later level.

    `keys` are over the source's columns. With `ordinals`, tuples of an input carry their number in the
    stream as a last column; with `instants`, only instants travel, and no column. `alias` is the name of an
    exchange of queries that came later (see generations.py).
    """

    source: int
    to: Destination
    keys: tuple[Expr, ...] = ()
    level: int = 1
    ordinals: bool = False
    instants: bool = False
    alias: str = ""

    @property
    def name(self) -> str:
        """What the scan that stands for it is called: the same in every process."""
        return self.alias or f"#{self.source}{self.way}"

    @property
    def way(self) -> str:
        """How its rows go, whatever their source."""
        marks = ("o" if self.ordinals else "") + ("i" if self.instants else "")
        keys = ",".join(repr(rebuild(key, nameless)) for key in self.keys)
        return f"{marks} {self.to.name} {keys} @{self.level}"


@dataclass(slots=True)
class Exchanges:
    """`edges` has for each step and input the exchange by which it comes, None if the shard has it already.

    Both begin with what is settled: steps that are on shards already, of older plans.
    `chains` has, for windows that look at the order of tuples, the steps between them and `bases`: these run
    above the exchange, because an exchange keeps the order of whole tuples only. `wants` has what readers ask
    of chains over inputs.
    """

    plan: Plan
    splits: dict[int, Split] = field(default_factory=dict)
    edges: dict[tuple[int, int], Exchange | None] = field(default_factory=dict)
    chains: dict[int, tuple[int, ...]] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    wants: dict[int, Need] = field(default_factory=dict)
    #: For each step of a loop, how the loop is sharded.
    _loops: dict[int, LoopSharding] = field(default_factory=dict)

    def find(self) -> Exchanges:
        stages = self.plan.stages()
        for stage in stages:
            if is_loop(self.plan, stage):
                self._loops |= dict.fromkeys(stage, loop_sharding(self.plan, stage))
        for stage in reversed(stages):
            for step in reversed(stage):
                self._ask(step)
        for stage in stages:
            if stage[0] in self._loops:
                self._place_loop(stage)
            elif not self._is_scan(stage[0]) and stage[0] not in self.splits:
                self._place(stage[0])
            elif stage[0] in self.splits and _looks_at_order(self._node(stage[0])):
                *chain, self.bases[stage[0]] = self._chain(stage[0])
                self.chains[stage[0]] = tuple(chain)
        return self

    def _node(self, step: int) -> Node:
        return self.plan.steps[step].node

    def inputs(self, step: int) -> tuple[int, ...]:
        """What a step reads: a window with a chain of its own reads what is below that."""
        if step in self.bases:
            return (self.bases[step], self.bases[step])
        return self.plan.steps[step].inputs

    def _is_scan(self, step: int) -> bool:
        return isinstance(self._node(step), Scan)

    # ------------------------------------------------------------ what steps ask of the chains below them

    def _flexible(self, step: int) -> bool:
        """Whether a step looks at rows one by one all the way down to an input: any split will do."""
        match self._node(step):
            case logical.WindowNode(window=PartitionRows()):
                return False
            case logical.WindowNode(window=Rows()):
                return self._is_counted(step)
            case logical.Project() | logical.Filter() | logical.WindowNode() | Pad() | Numbered():
                (child,) = self.plan.steps[step].inputs
                return self._is_scan(child) or self._flexible(child)
        return False

    def _is_counted(self, step: int) -> bool:
        """Whether the epoch's clock knows a row window's ordinals: it stands on an input's own tuples."""
        base = self._chain(step)[-1]
        return self._is_scan(base) and self._node(base).is_stream

    def _chain(self, step: int) -> tuple[int, ...]:
        """The projections below a window, and what is below those."""
        (child,) = self.plan.steps[step].inputs
        found = [child]
        while isinstance(self._node(found[-1]), logical.Project):
            found += self.plan.steps[found[-1]].inputs
        return tuple(found)

    def _ask(self, step: int) -> None:
        """Tells the chains below a step how it would like them split; the first to ask is heard."""
        node = self._node(step)
        if not self.plan.steps[step].inputs or (_looks_at_order(node) and step not in self._loops):
            return
        children = self.plan.steps[step].inputs
        if step in self._loops:
            needs = [self._loop_need(step, position) for position in range(len(children))]
        elif self._flexible(step):
            mine = self.wants.get(step, Need())
            needs = [mine if mine.by is None else Need(below(node, mine.by))]
        else:
            needs = need(node)
        for child, each in zip(children, needs, strict=True):
            if (each.by or each.why) and self._flexible(child):
                self.wants.setdefault(child, each)

    # ------------------------------------------------------------ where each step's rows lie

    def _place(self, step: int) -> None:
        node = self._node(step)
        children = self.plan.steps[step].inputs
        match node:
            case logical.WindowActivity() | logical.WindowReports():
                self.edges[step, 0] = self._instants(children[0])
                self.splits[step] = EVERYWHERE
            case logical.WindowNode(window=Rows() | PartitionRows()):
                self._place_ordered(step)
            case logical.InnerJoin(classes=()):
                self._place_product(step)
            case _ if self._flexible(step) and self._is_scan(children[0]):
                self._place_over_scan(step, children[0])
            case _:
                self._meet(step, need(node))

    def _place_over_scan(self, step: int, scan: int) -> None:
        """The first step above an input: the rows come split as the steps above want them."""
        wanted = self.wants.get(step, Need())
        edge = self._scan_edge(
            scan, wanted if wanted.by is None else Need(below(self._node(step), wanted.by))
        )
        self.edges[step, 0] = edge
        self.splits[step] = above(self._node(step), self._arriving(edge, wanted.why))

    def _scan_edge(self, scan: int, wanted: Need) -> Exchange:
        if wanted.why:
            return Exchange(scan, Destination.ONE)
        return Exchange(scan, Destination.KEY, wanted.by or all_columns(self._node(scan).schema))

    def _arriving(self, edge: Exchange, why: str) -> Split:
        match edge.to:
            case Destination.KEY if edge.keys:
                return Split(edge.keys)
            case Destination.ALL:
                return EVERYWHERE
        return Split(why=why or "its input is")

    def _place_ordered(self, step: int) -> None:
        """ROWS and PARTITION BY ROWS: the exchange is below the window's projections."""
        node = self._node(step)
        assert isinstance(node, logical.WindowNode)
        *chain, base = self._chain(step)
        self.chains[step], self.bases[step] = tuple(chain), base
        if isinstance(node.window, PartitionRows):
            keys = need(node)[0].by
            wanted = Need(keys)
        elif self._is_counted(step):
            wanted = self.wants.get(step, Need())
            if wanted.by is None and not wanted.why:
                wanted = Need(all_columns(node.schema))
        else:
            wanted = need(node)[0]
        split = Split(wanted.by) if wanted.by else Split(why=wanted.why)
        keys = wanted.by
        for project in chain:
            keys = None if keys is None else below(self._node(project), keys)
        if keys is not None and not self._is_scan(base) and self.splits[base].why:
            keys, split = None, Split(why="its input is")
        if not keys:
            self.edges[step, 0] = self._to_one(base)
        elif isinstance(node.window, Rows):
            self.edges[step, 0] = Exchange(base, Destination.KEY, keys, ordinals=True)
            self.edges[step, 1] = Exchange(base, Destination.ALL, instants=True)
        else:
            same = not self._is_scan(base) and keys in self.splits[base].ways
            self.edges[step, 0] = None if same else Exchange(base, Destination.KEY, keys)
        self.splits[step] = split

    def _instants(self, child: int) -> Exchange:
        """An input's instants on every shard; those of a source's tuples are the clock's."""
        below_ = child
        while isinstance(self._node(below_), logical.Project):
            (below_,) = self.plan.steps[below_].inputs
        return Exchange(below_ if self._is_scan(below_) else child, Destination.ALL, instants=True)

    def _place_product(self, step: int) -> None:
        """A join without a key: a side of one row goes to every shard, or else all to one."""
        left, right = self.plan.steps[step].inputs
        for position, (one, other) in enumerate(((left, right), (right, left))):
            small = self._split(one)
            if not small.everywhere and (not self._is_single(one) or self._split(other).why):
                continue
            self.edges[step, position] = None if small.everywhere else Exchange(one, Destination.ALL)
            self.edges[step, 1 - position] = self._as_it_is(other)
            split = self._split_after(step, 1 - position)
            self.splits[step] = split if position else shifted(split, len(self._node(left).schema))
            return
        self._meet(step, [Need(why="no key is common to all inputs of the join")] * 2)

    def _is_single(self, step: int) -> bool:
        """Whether a step has one row at most."""
        match self._node(step):
            case logical.Aggregate(keys=()) | SlidingAggregate(keys=0):
                return True
            case logical.Project() | logical.Filter():
                return self._is_single(self.plan.steps[step].inputs[0])
        return False

    def _meet(self, step: int, needs: list[Need]) -> None:
        """Inputs that are split by a part of the keys stay as they are; others are exchanged to fit them."""
        node = self._node(step)
        children = self.plan.steps[step].inputs
        why = next((each.why for each in needs if each.why), "")
        keyed = [at for at, each in enumerate(needs) if each.by]
        if keyed and all(self._split(children[at]).why for at in keyed):
            why = "its input is"
        if why:
            for position, child in enumerate(children):
                self.edges[step, position] = self._to_one(child)
            self.splits[step] = Split(why=why)
            return
        parts = (part_of(self._split(children[at]), needs[at].by or ()) for at in keyed)
        chosen = next((part for part in parts if part is not None), None)
        for position, (child, each) in enumerate(zip(children, needs, strict=True)):
            if each.everywhere:
                self.edges[step, position] = (
                    None if self._split(child).everywhere else Exchange(child, Destination.ALL)
                )
            elif not each.by:
                self.edges[step, position] = self._as_it_is(child)
            else:
                keys = each.by if chosen is None else tuple(each.by[at] for at in chosen)
                same = not self._is_scan(child) and keys in self._split(child).ways
                self.edges[step, position] = None if same else Exchange(child, Destination.KEY, keys)
        self.splits[step] = self._result(step, node, needs)

    def _result(self, step: int, node: Node, needs: list[Need]) -> Split:
        """How the rows of a step are split whose inputs have come as it needs them."""
        first = self._split_after(step, 0)
        if isinstance(node, MultiJoin):
            return joined(node, [self._split_after(step, at) for at in range(len(needs))])
        if isinstance(node, logical.InnerJoin | LeftJoined):
            # Joined rows have equal keys on both sides.
            second = shifted(
                self._split_after(step, 1), len(self._node(self.plan.steps[step].inputs[0]).schema)
            )
            return Split.by((*first.ways, *second.ways)) if second.keys is not None else first
        if isinstance(node, logical.SetOp | Selected) and not needs[0].by:
            others = [self._split_after(step, at) for at in range(1, len(needs))]
            if first.why and all(other.why for other in others):
                return first
            return Split.by(way for way in first.ways if all(way in other.ways for other in others))
        return above(node, first)

    def _loop_need(self, step: int, position: int) -> Need:
        """What a step of a loop needs of an input from outside: a split by the loop's key, if it has one."""
        loop = self._loops[step]
        if loop.why:
            return Need(why=f"it is part of a loop: {loop.why}")
        if (step, position) not in loop.inputs:
            return ANY
        columns = all_columns(self._node(self.plan.steps[step].inputs[position]).schema)
        return Need(tuple(columns[at] for at in loop.inputs[step, position]))

    def _place_loop(self, stage: tuple[int, ...]) -> None:
        """A loop goes instant by instant, so it stays together, or the tuples of each key do."""
        loop = self._loops[stage[0]]
        for step in stage:
            if loop.why:
                self.splits[step] = Split(why=self._loop_need(step, 0).why)
            else:
                columns = all_columns(self._node(step).schema)
                self.splits[step] = Split.by((columns[at],) for at in sorted(loop.holders[step]))
        for step in stage:
            for position, child in enumerate(self.plan.steps[step].inputs):
                if loop.why:
                    self.edges[step, position] = self._to_one(child)
                elif child in self._loops and self._loops[child] is loop:
                    self.edges[step, position] = None
                else:
                    self.edges[step, position] = self._by_key_of_loop(step, position, child)

    def _by_key_of_loop(self, step: int, position: int, child: int) -> Exchange | None:
        loop = self._loops[step]
        columns = all_columns(self._node(child).schema)
        keys = tuple(columns[at] for at in loop.inputs[step, position])
        same = not self._is_scan(child) and keys in self._split(child).ways
        return None if same else Exchange(child, Destination.KEY, keys)

    def _to_one(self, child: int) -> Exchange | None:
        """The first shard has what is everywhere, too."""
        split = self._split(child)
        return None if split.why or split.everywhere else Exchange(child, Destination.ONE)

    def _as_it_is(self, child: int) -> Exchange | None:
        if self._is_scan(child):
            return Exchange(child, Destination.KEY, all_columns(self._node(child).schema))
        # What every shard has would count as often as there are shards.
        return Exchange(child, Destination.ONE) if self._split(child).everywhere else None

    def _split(self, step: int) -> Split:
        return self.splits.get(step, SPREAD)

    def _split_after(self, step: int, position: int) -> Split:
        """How an input is split when it gets to a step."""
        edge = self.edges[step, position]
        if edge is None:
            return self._split(self.plan.steps[step].inputs[position])
        return self._arriving(edge, "its input is")


def nameless(part: Expr) -> Expr:
    """Columns are the same whatever they are called."""
    return replace(part, name="") if isinstance(part, Column) else part


def is_loop(plan: Plan, stage: tuple[int, ...]) -> bool:
    return len(stage) > 1 or stage[0] in plan.steps[stage[0]].inputs


def _looks_at_order(node: Node) -> bool:
    return isinstance(node, logical.WindowNode) and isinstance(node.window, Rows | PartitionRows)
