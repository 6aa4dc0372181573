"""A change of queries on shards is tried out first, without any tuple: so a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kasen.engine.batch import Frontier
from kasen.plan.physical import App, Plan
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import Generation
from kasen.runtime.shard.clock import Orders, SplicePoint
from kasen.runtime.shard.shard import Shard


def dry_run(app: App, made: Sequence[Generation], there: Mapping[int, Generation]) -> None:
    """Lets generations come on shards without any tuple, to see whether they can. QueryError if not."""
    if not any(each.replaces is not None or each.reads for each in made):
        return
    needed: dict[int, Generation] = {}  # in an order in which those come first that others read
    coming = {each.number for each in made}

    def need(number: int) -> None:
        if number not in needed and number not in coming:
            for read, _ in there[number].reads.values():
                need(read)
            needed[number] = replace(there[number], replaces=None)

    for each in made:
        if each.replaces is not None:
            need(each.replaces.number)
        for number, _ in each.reads.values():
            need(number)
    nothing = FragmentPlan(Plan(app, (), ()), (), ())
    first = needed.pop(0).cut if 0 in needed else nothing
    generations = [*needed.values(), *made]
    splices = [SplicePoint(place + 1, (number,), (), True) for place, number in enumerate(needed)]
    splices.append(SplicePoint(len(splices) + 1, tuple(each.number for each in made), (), True))
    levels = max(each.levels for each in (Generation(0, first), *generations))
    for level in range(1, levels + 1):
        for shard in range(2):
            orders = Orders(Frontier(len(splices) + 1, 0), Frontier(0, 0), splices=splices)
            Shard(first, level, shard, 2, generations).run(orders, {})
