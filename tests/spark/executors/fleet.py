"""Many apps at once on a real Spark: their epochs are unions of their own programs, so that a job serves all.

Every app has its own placement, clock, store and state, as if it ran alone. Only the starting of jobs is
shared, which is what takes the time with small inputs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kasen.cql.bound import App
from kasen.plan.native.lower import lower
from kasen.plan.physical import Input, Plan, plan_app
from kasen.plan.shard.fragments import plan_shards
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import RunningPipeline
from kasen.spark.driver import InDriver
from kasen.spark.executors.fragment import KEYS
from kasen.spark.executors.placement import InExecutors, RemotePipeline
from kasen.spark.placement import RunInputs
from kasen.spark.scan import frames
from kasen.spark.scan.file_names import FileNames
from kasen.spark.state.epochs import Store
from kasen.spark.state.state_files import Files
from tests.engines import Collected
from tests.oracle import DeadLetter, Result

#: In how many micro-batches the inputs come.
PARTS = 2


class Member:
    """One app of a fleet. Its inputs are cut into parts, which are its micro-batches."""

    def __init__(
        self, app: App, folder: Path, spark: SparkSession, shards: int | None, parts: int, joins: str = ""
    ) -> None:
        self.app = app
        self.folder = folder
        self.parts = parts
        self._spark = spark
        self._plan: Plan = plan_app(app, joins)
        self.collected = Collected(self._plan)
        self._streams = [one for one in app.inputs if not one.is_static]
        self.store = Store(Files(str(folder / "state")), self._plan.fingerprint, "a test")
        assert self.store.load() is None
        native = lower(self._plan) if shards is None else lower(plan_shards(app, joins), partials=False)
        self.pipeline = RunningPipeline(native.plan) if shards is None else RemotePipeline(native.plan)
        self.outputs = self._outputs()
        self._part = 0
        # Parts are files of the same names.
        inputs = RunInputs(native, self._texts, FileNames(app.inputs, folder))
        self.placement: InDriver | InExecutors
        if isinstance(self.pipeline, RunningPipeline):
            self.placement = InDriver(inputs, self.pipeline, self.outputs, self.store, None)
        else:
            assert shards is not None
            self.placement = InExecutors(inputs, spark, shards, self.pipeline, self.outputs, self.store, None)
        self.collected.run = SimpleNamespace(pipeline=self.pipeline)  # type: ignore[assignment]
        for part in range(parts):
            self._cut(part)
        for one in app.inputs:
            if one.is_static:
                frame = frames.open_frame(self._spark, one, folder, None)
                self.placement.table(one, frame)

    def _texts(self, input_: Input, file: str, times: tuple[int, int] | None) -> list[str]:
        declared = self.app.input(input_.name)
        assert declared is not None
        folder = self.folder / f"part{self._part}"
        return frames.texts(self._spark, declared, folder, file, times, self.app.time)

    def _outputs(self) -> Outputs:
        return Outputs(self._plan, self.pipeline, self.folder, None, {}, lambda _: None, self.collected.add)

    def _cut(self, part: int) -> None:
        """The lines of every input file that belong to a part, in a folder of its own."""
        folder = self.folder / f"part{part}"
        folder.mkdir()
        for one in self._streams:
            source = self.folder / one.connector.option("path")
            target = folder / one.connector.option("path")
            lines = source.read_text().splitlines(keepends=True)
            heads = 1 if one.connector.format == "csv" else 0
            head, rows = lines[:heads], lines[heads:]
            share = -(-len(rows) // self.parts)
            target.write_text("".join(head + rows[part * share : (part + 1) * share]))

    def batch(self, part: int) -> DataFrame | None:
        """A micro-batch, read as the streaming query would."""
        if part >= self.parts or not self._streams:
            return None
        once: Any = SimpleNamespace(read=self._spark.read, readStream=self._spark.read)
        folder = self.folder / f"part{part}"
        self._part = part
        opened = {one.name: frames.open_frame(once, one, folder, None) for one in self._streams}
        return self.placement.frame(opened)

    def commit(self, epoch: int) -> None:
        record = self.placement.save(epoch)
        self.store.commit({**record, "epoch": epoch, "notes": self.outputs.committed()})

    @property
    def flushes(self) -> bool:
        return self.app.setting("flush") == "true"

    def result(self) -> Result:
        letters = [DeadLetter(*letter) for letter in self.outputs.dead_letters]
        return Result(self.collected.rows, letters, [])

    def close(self) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)


def run_together(members: Sequence[Member]) -> list[Result]:
    """Runs all members to the end of their inputs."""
    for part in range(PARTS):
        batches = [(member, member.batch(part)) for member in members]
        present = [(member, batch) for member, batch in batches if batch is not None]
        if isinstance(members[0].placement, InDriver):
            _driver_epoch(present)
        else:
            _executors_epoch(present, part)
        for member, _ in present:
            member.commit(part)
    _end(members)
    return [member.result() for member in members]


def _driver_epoch(present: list[tuple[Member, DataFrame]]) -> None:
    # Columns differ from app to app, and rows must come typed: so a job each, but nothing else.
    for member, batch in present:
        member.placement.epoch(batch, 0)


def _executors_epoch(present: list[tuple[Member, DataFrame]], part: int) -> None:
    scans = [_of(member).scan(batch, part).persist() for member, batch in present]
    keys = _collect([scan.filter(F.col("level") == KEYS) for scan in scans])
    programs = [
        (member, _of(member).program(key, scan, part))
        for (member, _), key, scan in zip(present, keys, scans, strict=True)
    ]
    _gather(programs)
    for scan in scans:
        scan.unpersist()


def _end(members: Sequence[Member]) -> None:
    if isinstance(members[0].placement, InDriver):
        for member in members:
            member.placement.end(flush=member.flushes)
        return
    _gather([(member, _of(member).ending(keep=member.flushes)) for member in members])
    flushing = [member for member in members if member.flushes]
    while flushing:
        steps = [(member, _of(member).expiring()) for member in flushing]
        _gather(steps)
        flushing = [member for member, step in steps if step is not None]


def _gather(programs: list[tuple[Member, DataFrame | None]]) -> None:
    present = [(member, program) for member, program in programs if program is not None]
    tables = _collect([program for _, program in present])
    for (member, _), table in zip(present, tables, strict=True):
        _of(member).gather(table)


def _of(member: Member) -> InExecutors:
    assert isinstance(member.placement, InExecutors)
    return member.placement


def _collect(frames_: list[DataFrame]) -> list[pa.Table]:
    """All frames' rows with one job."""
    if not frames_:
        return []
    tagged = [frame.withColumn("#member", F.lit(index)) for index, frame in enumerate(frames_)]
    table = reduce(DataFrame.unionAll, tagged).toArrow()
    return [table.filter(pc.equal(table["#member"], index)) for index in range(len(frames_))]


Opener = Callable[[App, Path], Member]
