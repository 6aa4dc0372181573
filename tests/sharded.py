"""A pipeline on several shards inside one process: what executors do, without Spark.

Clock, fragments and shipments are those that run on Spark; only the way between them is a dictionary here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from kasen.engine.batch import I64, Frontier
from kasen.plan.changes import CatalogChange
from kasen.plan.physical import Plan
from kasen.plan.shard.fragments import cut
from kasen.runtime.input.feed import InputRows
from kasen.runtime.live.remote_queries import RemoteQueries
from kasen.runtime.output.answers import AnswerCollector
from kasen.runtime.pipeline import Answer, RunningPipeline
from kasen.runtime.shard.clock import Clock, Orders
from kasen.runtime.shard.shard import Shard
from kasen.runtime.shard.tuples import Scatter


class ShardedPipeline(RunningPipeline):
    """Takes rows like a pipeline, and answers like one."""

    def __init__(self, plan: Plan, shards: int, *, restart: bool = False, joins: str = "") -> None:
        super().__init__(plan)
        self._fragments = cut(plan.app, joins)
        self._count = shards
        self._restart = restart
        # Relations' rows pass through the clock, which has the reader's codes here.
        self.clock = Clock(plan, self.dictionary)
        self.clock.keeps_tables = True
        self.remote = RemoteQueries(self._fragments, self.clock)
        self._shards: dict[tuple[int, int], Shard] = {}
        self._shards = self._fresh()
        self._scatter = Scatter(self.remote.generations, shards, self.dictionary)
        self._relation_inputs = {one.name for one in plan.app.inputs if one.is_relation}
        self._received: dict[tuple[int, int], dict[str, list[bytes]]] = {}
        self._epoch = 0

    def _fresh(self) -> dict[tuple[int, int], Shard]:
        later = [generation for generation, *_ in self.remote.generations if generation.number]
        return {
            (level, shard): Shard(self._fragments, level, shard, self._count, later)
            for level in range(1, self.remote.levels + 1)
            for shard in range(self._count)
        }

    def execute(self, text: str) -> tuple[CatalogChange, ...]:
        done = self.remote.execute(text)
        self._announce()
        return done

    def _held_words(self) -> Iterator[I64]:
        yield from super()._held_words()
        yield from self.clock._held_words()

    def _announce(self) -> None:
        """The queries that are to come are known from now on, wherever tuples go."""
        later = [generation for generation, *_ in self.remote.generations if generation.number]
        self._scatter = Scatter(self.remote.generations, self._count, self.dictionary)
        for level in range(1, self.remote.levels + 1):
            for shard in range(self._count):
                if (level, shard) not in self._shards:
                    self._shards[level, shard] = Shard(self._fragments, level, shard, self._count)
                self._shards[level, shard].announce(later)

    def add(self, name: str, rows: InputRows) -> InputRows:
        if name in self._relation_inputs:
            return self.clock.add(name, rows)
        for edge, shard, packed in self._scatter.send(name, rows.position, rows.data):
            self._post(edge.level, shard, edge.name, packed)
        late = self.clock.add_keys(name, rows.ts, rows.position)
        return rows.take(np.isin(rows.position, late.position))

    def _post(self, level: int, shard: int, name: str, packed: bytes) -> None:
        self._received.setdefault((level, shard), {}).setdefault(name, []).append(packed)

    def end(self, name: str) -> None:
        self.clock.end(name)

    @property
    def frontier(self) -> int:
        return self.clock.frontier

    @property
    def begun(self) -> bool:
        return self.clock.begun

    @property
    def ended(self) -> bool:
        return self.clock.ended

    @property
    def slowest(self) -> str | None:
        feeds = self.clock._feeds
        open_ = [(feed.frontier, name) for name, feed in feeds.items() if not feed.ended]
        return min(open_)[1] if open_ else None

    def ready(self) -> int:
        return sum(feed.waiting_below(self.frontier) for feed in self.clock._feeds.values())

    def answers(self) -> Iterator[Answer]:
        orders = self.clock.run(self.remote.splices())
        found = self._run(orders) if orders is not None else [Answer()]
        found[0].deletions, found[0].refused = self.clock.deletions, self.clock.refused
        yield from found

    def flush(self) -> Iterator[Answer]:
        while (last := self._last()) is not None:
            orders = self.clock.flush(Frontier(last.ts + 1, 0))
            if orders is None:
                return
            yield from self._run(orders)

    def _last(self) -> Frontier | None:
        found = [each.last_instant() for each in self._shards.values()]
        return max((each for each in found if each is not None), default=None)

    def _run(self, orders: Orders) -> list[Answer]:
        known = {each.answer(one.name): one for each, *_ in self.remote.generations for one in each.queries}
        gathered = AnswerCollector(known, self.dictionary)
        splices = orders.splices
        orders = Orders.of(orders.arrays())
        for level in range(1, self.remote.levels + 1):
            # Shards know nothing of one another, so their order must not matter.
            for shard in reversed(range(self._count)):
                received = self._received.pop((level, shard), {})
                sent = self._shards[level, shard].run(orders, received)
                for edge, to, packed in sent.exchanged:
                    assert edge.level > level
                    self._post(edge.level, to, edge.name, packed)
                for name, packed in sent.answers:
                    gathered.add(name, packed)
        self._epoch += 1
        answers = self.remote.answers(gathered.take(), splices, self._epoch)
        if self._restart:
            saved = json.loads(json.dumps(self.remote.save()))
            self.remote = RemoteQueries(self._fragments, self.clock)
            self.remote.restore(saved)
            fresh = self._fresh()
            for key, each_fresh in fresh.items():
                each_fresh.restore(self._shards[key].snapshot())
            self._shards = fresh
        if splices:
            self.remote.forget(self._epoch)
            self._announce()
        return answers
