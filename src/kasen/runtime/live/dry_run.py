"""Tries a change of queries on shards without any tuple, so that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kasen.engine.batch import Frontier
from kasen.plan.physical import App, Plan
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import Generation
from kasen.runtime.shard.clock import Orders, SplicePoint
from kasen.runtime.shard.shard import Shard


def dry_run(app: App, coming: Sequence[Generation], known: Mapping[int, Generation]) -> None:
    """Lets generations come on shards that know only what these need. QueryError if they cannot come."""
    if not any(generation.replaces is not None or generation.reads for generation in coming):
        return
    needed = _needed(coming, known)
    nothing = FragmentPlan(Plan(app, (), ()), (), ())
    first = needed.pop(0).cut if 0 in needed else nothing
    generations = [*needed.values(), *coming]
    splices = [SplicePoint(place + 1, (number,), (), True) for place, number in enumerate(needed)]
    splices.append(SplicePoint(len(splices) + 1, tuple(each.number for each in coming), (), True))
    levels = max(each.levels for each in (Generation(0, first), *generations))
    for level in range(1, levels + 1):
        for shard in range(2):
            orders = Orders(Frontier(len(splices) + 1, 0), Frontier(0, 0), splices=splices)
            Shard(first, level, shard, 2, generations).run(orders, {})


def _needed(coming: Sequence[Generation], known: Mapping[int, Generation]) -> dict[int, Generation]:
    """The known generations that the coming ones read or replace; those that others read are first."""
    found: dict[int, Generation] = {}
    numbers = {generation.number for generation in coming}

    def need(number: int) -> None:
        if number not in found and number not in numbers:
            for read, _ in known[number].reads.values():
                need(read)
            found[number] = replace(known[number], replaces=None)

    for generation in coming:
        if generation.replaces is not None:
            need(generation.replaces.number)
        for number, _ in generation.reads.values():
            need(number)
    return found
