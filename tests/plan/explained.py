"""What EXPLAIN prints, compared with the operators that run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kasen.engine.aggregate.group.aggregate import Aggregate
from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.aggregate.user.aggregate import UserAggregate
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.join.multiway import mjoin, parallel_trees
from kasen.engine.join.multiway.parallel_mjoin import ParallelMJoin
from kasen.engine.join.pair.counted_join import CountedPairJoin
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.engine.join.semi.semi_join import SemiJoin
from kasen.engine.loop.steps import CalledStep
from kasen.engine.operator import Operator
from kasen.engine.select.filter import Filter
from kasen.engine.select.network import NetworkFilter
from kasen.engine.select.pad import Pad
from kasen.engine.select.project import Project
from kasen.engine.sets.bag import _MODES, Bag
from kasen.engine.sets.union import Union
from kasen.engine.stream.delay import Delay
from kasen.engine.stream.streamify import IStreamDStream, PeriodicRStream, RStream
from kasen.engine.window import activity as touches
from kasen.engine.window import window
from kasen.engine.window.ordinal_rows import OrdinalRowsWindow
from kasen.engine.window.partition import PartitionWindow
from kasen.plan.shard.fragments import FragmentPlan
from kasen.runtime.graph.graph import Graph
from kasen.runtime.shard.shard import Shard

_WINDOWS = (
    window.UnboundedWindow,
    window.NowWindow,
    window.RangeWindow,
    window.SlideWindow,
    window.RowsWindow,
    PartitionWindow,
)
_NAMES: dict[type, str] = {
    Filter: "Filter",
    NetworkFilter: "Filter",
    Project: "Project",
    HashJoin: "HashJoin",
    PairJoin: "PairJoin",
    CountedPairJoin: "CountedPairJoin",
    mjoin.MJoin: "MJoin",
    ParallelMJoin: "ParallelMJoin",
    parallel_trees.InputNumbering: "TreeInput",
    parallel_trees.TreeSelection: "TreeSelector",
    Pad: "PadNulls",
    OrdinalRowsWindow: "OrdinalWindow",
    Aggregate: "HashAggregate",
    SlidingAggregate: "SlidingAggregate",
    SharableSlidingAggregate: "SlidingAggregate",
    touches.WindowActivity: "WindowActivity",
    Union: "UnionAll",
    RStream: "RStream",
    PeriodicRStream: "PeriodicRStream",
    Delay: "Delay",
} | dict.fromkeys(_WINDOWS, "Window")


def name_of(operator: Operator) -> str:
    """What EXPLAIN calls an operator."""
    match operator:
        case UserAggregate():
            return name_of(operator._inner)
        case SemiJoin():
            return "AntiJoin" if operator._anti else "SemiJoin"
        case IStreamDStream():
            return "IStream" if operator._sign > 0 else "DStream"
        case touches.WindowReports():
            return "WindowBounds" if operator._with_bounds else "WindowActivity"
        case Bag():
            mode = {number: name for name, number in _MODES.items()}[int(operator._control[0])]
            return "".join(word.capitalize() for word in mode.split())
    return _NAMES[type(operator)]


def steps_in(lines: Iterable[str]) -> Iterator[str]:
    """The steps of some lines: those further in that neither name a query, an input nor another step."""
    for line in lines:
        text = line.strip()
        is_other = re.match(r"(see|query|exchange|level|Scan|Exchange|Read|Spark)\b", text)
        if line.startswith("  ") and not is_other:
            yield text


def check_steps(lines: Iterable[str], graph: Graph) -> None:
    """Whether the lines tell of all operators of a graph, each once, and how they are run."""
    steps = list(steps_in(lines))
    operators = [each for each in graph.operators if each is not None]
    assert Counter(re.split(r"[:(]", step)[0].strip() for step in steps) == Counter(map(name_of, operators))
    networks = [step for step in steps if "in the selection network of" in step]
    assert len(networks) == sum(isinstance(each, NetworkFilter) for each in operators)
    sharing = [
        each for each in operators if isinstance(each, SharableSlidingAggregate) and is_shared(each, graph)
    ]
    assert sum("may share panes with" in step for step in steps) == len(sharing)
    parts = [part for loop in graph._loops.values() for part in loop._parts[-len(loop.stage) :]]
    called = sum(isinstance(part, CalledStep) for part in parts)
    assert sum("called by the loop machine" in step for step in steps) == called
    assert sum("in the loop machine" in step for step in steps) == len(parts) - called


def is_shared(member: SharableSlidingAggregate, graph: Graph) -> bool:
    looped = {graph.operators[step] for step in graph._looped}
    assert member.windows is not None
    return member not in looped and sum(each not in looped for each in member.windows._everybody) > 1


def check_levels(text: str, cut: FragmentPlan) -> None:
    """Whether a text tells of what shards run at each level."""
    levels = re.split(r"^level \d+:$", text, flags=re.MULTILINE)[1:]
    assert len(levels) == len(cut.fragments)
    for number, lines in enumerate(levels, 1):
        check_steps(lines.splitlines(), Shard(cut, number, 0, 2)._graph)
