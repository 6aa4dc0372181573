"""Shards as workers run them, with their state at rest, in one process and without Spark.

Workers lose their memory, hosts their copies, and attempts are abandoned half-way, as a seed says.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark import cloudpickle

from kasen.plan.physical import Plan
from kasen.runtime.durable.arrays import pack_arrays
from kasen.runtime.live.remote_queries import RemoteQueries
from kasen.runtime.output.answers import AnswerCollector
from kasen.runtime.pipeline import Answer
from kasen.runtime.shard.clock import Orders
from kasen.spark.executors import fragment
from kasen.spark.executors.fragment import BY_FILE, DONE, REPORT, FragmentJob
from kasen.spark.state.ledger import Ledger
from kasen.spark.state.state_files import Files
from tests.sharded import ShardedPipeline


class DurablePipeline(ShardedPipeline):
    """A sharded pipeline whose shards are found, restored and saved as on executors."""

    def __init__(self, plan: Plan, shards: int, folder: Path, seed: int) -> None:
        super().__init__(plan, shards)
        self._random = Random(seed)
        self._packed = cloudpickle.dumps(self._fragments)  # type: ignore[no-untyped-call]
        files = Files(str(folder))
        files.make("files")
        self._ledger = Ledger(files, self._parts())
        self._ledger.load({})
        self.hows: set[str] = set()

    def _parts(self) -> list[str]:
        levels = range(1, self.remote.levels + 1)
        return [f"{level}.{shard}" for level in levels for shard in range(self._count)]

    def _run(self, orders: Orders) -> list[Answer]:
        self._ledger.extend(self._parts())
        packed = pack_arrays(orders.arrays())
        waiting = {key: dict(value) for key, value in self._received.items()}
        epoch = self._ledger.next
        while True:
            self._ledger.begin()
            self._ledger.write_orders(epoch, packed)
            self._received = {key: dict(value) for key, value in waiting.items()}
            known = {one.answer(q.name): q for one, *_ in self.remote.generations for q in one.queries}
            gathered = AnswerCollector(known, self.dictionary)
            if self._attempt(epoch, packed, gathered):
                break
        # What a committed epoch leads to survives in the record alone.
        self._ledger.close(epoch)
        again = Ledger(self._ledger.files, self._ledger.parts)
        again.load(json.loads(json.dumps(self._ledger.record())))
        self._ledger = again
        answers = self.remote.answers(gathered.take(), orders.splices, epoch)
        self.remote.forget(self._ledger.oldest)
        saved = json.loads(json.dumps(self.remote.save()))
        self.remote = RemoteQueries(self._fragments, self.clock)
        self.remote.restore(saved)
        self._announce()
        return answers

    def _attempt(self, epoch: int, orders: bytes, gathered: AnswerCollector) -> bool:
        """Runs all fragments; False if it is abandoned on the way."""
        ledger = self._ledger
        job = FragmentJob(
            ledger.pipeline,
            epoch,
            ledger.attempt,
            ledger.base,
            self._count,
            self._packed,
            ledger.files.root,
            orders,
            tuple((part, ledger.journals[part]) for part in ledger.parts),
            tuple(ledger.past),
            large=200,
            later=tuple(
                (each.number, cloudpickle.dumps(each))  # type: ignore[no-untyped-call]
                for each, *_ in self.remote.generations
                if each.number
            ),
            live=tuple((each.number, live, moved) for each, live, moved in self.remote.generations),
        )
        reports = []
        answers: list[tuple[str, bytes]] = []
        for here in range(1, self.remote.levels + 1):
            for shard in range(self._count):
                self._misfortune()
                for row in self._work(job, here, shard):
                    to, level, name, packed = row
                    if level == DONE and name == REPORT:
                        reports.append(json.loads(packed))
                        self.hows.add(reports[-1]["how"])
                    elif level == DONE:
                        answers.append((name, packed))
                    elif name:
                        self._post(level, to, name, packed)
                if self._random.random() < 0.03:
                    return False
        for name, packed in answers:
            content = ledger.files.read(packed.decode()) if name.startswith(BY_FILE) else packed
            gathered.add(name.removeprefix(BY_FILE), content)
        ledger.take(reports)
        return True

    def _misfortune(self) -> None:
        if self._random.random() < 0.2:
            fragment._WARM.clear()
        if self._random.random() < 0.1:
            shutil.rmtree(fragment.host_folder(self._ledger.pipeline), ignore_errors=True)

    def _work(self, job: FragmentJob, level: int, shard: int) -> list[tuple[int, int, str, bytes]]:
        received = self._received.pop((level, shard), {})
        rows = [(shard, level, name, packed) for name, parts in received.items() for packed in parts]
        batches = [fragment.shipped([(shard, level, "", b""), *rows])]
        found: list[tuple[int, int, str, bytes]] = []
        for batch in fragment.run_level(job, level, iter(batches)):
            assert isinstance(batch, pa.RecordBatch)
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return found

    def close(self) -> None:
        shutil.rmtree(fragment.host_folder(self._ledger.pipeline), ignore_errors=True)
