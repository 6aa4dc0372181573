"""Operators on the executors: each epoch is one DataFrame program of fragments and exchanges.

    scan ─► scatter ─┬─► keys ─► driver: clock ─► orders
                     └─► rows ─► exchange ─► level 1 ─► exchange ─► level 2 ... ─► answers ─► driver

The scan's job sends rows to their shards and only times and places to the driver, whose clock decides what is
late, what runs, and with which ordinals. With these orders the second job runs the fragments.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kasen.connect.chunk import Chunk
from kasen.errors import ResourceError
from kasen.operators.base import State
from kasen.operators.batch import Bound
from kasen.operators.dictionary import Dictionary
from kasen.operators.failures import Failures
from kasen.plan.fragments import cut
from kasen.plan.physical import Input, Plan
from kasen.runtime.answers import Gathered
from kasen.runtime.arrays import pack_arrays, unpack_arrays
from kasen.runtime.clock import Clock, Orders
from kasen.runtime.feed import Rows
from kasen.runtime.outputs import Outputs, is_beyond, within
from kasen.runtime.pipeline import Answer
from kasen.runtime.shipment import Shipper
from kasen.spark import fragment, frames
from kasen.spark.epochs import Store
from kasen.spark.fragment import BY_FILE, DONE, KEYS, REPORT, SHIPPED, Job
from kasen.spark.frames import BAD, DIFF, PLACE, RAW
from kasen.spark.intake import Intake
from kasen.spark.keys import Reading, read_keys
from kasen.spark.ledger import CLOCK, Ledger

#: Deletions and insertions of relations in the clock's log.
_ROW = ("ts", "diff", "position")


class Remote:
    """What the rest of the run sees of a pipeline whose operators are elsewhere."""

    def __init__(self, plan: Plan) -> None:
        self.clock = Clock(plan)
        #: The texts of the answers at hand; a new one for each epoch.
        self.dictionary = Dictionary()
        #: Failures of expressions, as the shards have counted them.
        self.failures = Failures()
        #: On executors a loop that never ends is an error at once.
        self.stopped: list[ResourceError] = []

    def add(self, name: str, rows: Rows) -> Rows:
        return self.clock.add(name, rows)

    @property
    def frontier(self) -> int:
        return self.clock.frontier

    @property
    def waiting(self) -> int:
        return self.clock.waiting

    @property
    def waiting_by_input(self) -> dict[str, int]:
        return self.clock.waiting_by_input

    @property
    def lag(self) -> int:
        return self.clock.lag

    @property
    def begun(self) -> bool:
        return self.clock.begun


class InExecutors:
    """The placement on executors."""

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        shards: int,
        remote: Remote,
        outputs: Outputs,
        store: Store,
        record: dict[str, Any] | None,
        folders: frozenset[str] = frozenset(),
    ) -> None:
        """`record` is the commit record to go on from; `folders` are the inputs that are several files."""
        self._plan = plan
        self._folders = folders
        #: Answers of more bytes than this come by files: Spark limits what jobs give to the driver.
        self.large = 4 << 20
        self._spark = spark
        self._shards = shards
        self._remote = remote
        self._clock = remote.clock
        self._outputs = outputs
        self._store = store
        self._cut = cut(plan)
        self._streams = [one for one in plan.app.inputs if not one.is_static]
        self._relations = [one for one in self._streams if one.is_relation]
        self._parts = [f"{each.level}.{shard}" for each in self._cut.fragments for shard in range(shards)]
        # By value: an app's own aggregates may be defined where workers cannot import them.
        self._packed_cut: bytes = cloudpickle.dumps(self._cut)  # type: ignore[no-untyped-call]
        parts = [f"{each.level}.{shard}" for each in self._cut.fragments for shard in range(shards)]
        self._ledger = Ledger(store.files, parts)
        self._ledger.load(record or {})
        self._intake = Intake(self._streams, self._clock.dictionary, (record or {}).get("counts", {}))
        self._segment: dict[str, State] = {}
        # Static tables are part of the first epoch's segment: a replay must begin with them.
        self._tables: dict[str, State] = {}
        self._numbered: DataFrame | None = None
        self._last: Bound | None = None
        #: What each shard said of the last epoch: how it got its state, how long it took.
        self.reports: list[dict[str, Any]] = []
        self._restore()

    def _restore(self) -> None:
        journal = self._ledger.journals[CLOCK]
        if journal.snapshot is not None:
            self._clock.restore(unpack_arrays(self._store.files.read(journal.snapshot[1])))
        for _, file, _ in journal.log:
            self._replay(unpack_arrays(self._store.files.read(file)))

    def _replay(self, segment: dict[str, Any]) -> None:
        for key, state in segment.items():
            kind, _, name = key.partition(".")
            if kind == "keys":
                self._clock.add_keys(name, state["ts"], state["position"])
            elif kind == "rows":
                one = next(each for each in self._plan.app.inputs if each.name == name)
                shipper = Shipper(one.schema, self._clock.dictionary, _ROW)
                for packed in state.values():
                    (ts, diff, position), data = shipper.unpack([packed.tobytes()])
                    self._clock.add(name, within(Rows(ts, diff, data, position)))
        self._clock.run()

    # ------------------------------------------------------------ the placement's interface

    def table(self, one: Input, frame: DataFrame) -> None:
        for chunk, rows in self._intake.of_input(one, frames.numbered(frame).toArrow()):
            self._take_rows(self._tables, one, chunk, rows)

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        return frames.union(opened)

    def epoch(self, batch: DataFrame, number: int) -> None:
        shipped = self.scan(batch, number).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            program = self.program(shipped.filter(F.col("level") == KEYS).toArrow(), shipped, number)
            if program is not None:
                self.gather(program.toArrow())
        finally:
            shipped.unpersist()

    def scan(self, batch: DataFrame, number: int) -> DataFrame:
        """The first half of an epoch: rows for the shards, and keys for the driver."""
        self._ledger.begin()
        self._segment, self._tables = self._tables, {}
        self._numbered = rows = frames.numbered(batch)
        if self._relations:
            names = [one.name for one in self._relations]
            self._take_relations(rows.filter(F.col("stream").isin(names)).toArrow())
            rows = rows.filter(~F.col("stream").isin(names))
        return self._scattered(rows, number)

    def program(self, keys: pa.Table, shipped: DataFrame, number: int) -> DataFrame | None:
        """The second half: what the clock orders the shards to do; None if there is nothing to do."""
        runs = self._take_keys(keys)
        orders = self._clock.run()
        if orders is None and runs:
            # Time stands still, but the shards must take in what came for them.
            orders = Orders(self._clock.upto)
        if orders is None:
            return None
        orders.runs = runs
        # Without tuples there may be no task that scatters, and nobody would tell the shards of the epoch.
        return self._fragments(orders, number, shipped.filter(F.col("level") != KEYS) if runs else None)

    def end(self, *, flush: bool) -> None:
        """The end is not an epoch: a run that goes on from the last epoch comes to it again."""
        program = self.ending(keep=flush)
        while program is not None:
            self.gather(program.toArrow())
            program = self.expiring() if flush else None
        shutil.rmtree(fragment.host_folder(self._ledger.pipeline), ignore_errors=True)

    def ending(self, *, keep: bool) -> DataFrame | None:
        """What is left to do when all inputs have ended; `keep` if windows are to expire afterwards."""
        for one in self._streams:
            self._clock.end(one.name)
        self._ledger.begin()
        orders = self._clock.run()
        return None if orders is None else self._fragments(orders, self._ledger.next, keep=keep)

    def expiring(self) -> DataFrame | None:
        """The next step of windows that expire after the end."""
        orders = self._clock.flush(Bound(self._last.ts + 1, 0)) if self._last is not None else None
        if orders is None:
            return None
        # The shards must find the state of the step before, so steps are kept like epochs, uncommitted.
        self._ledger.close(self._ledger.next)
        self._ledger.begin()
        return self._fragments(orders, self._ledger.next)

    def save(self, epoch: int) -> dict[str, Any]:
        if self._segment:
            self._ledger.write_clock(epoch, self._segment, self._clock)
        self._ledger.close(epoch)
        return {**self._ledger.record(), "counts": self._intake.counts}

    # ------------------------------------------------------------ rows

    def _scattered(self, rows: DataFrame, number: int) -> DataFrame:
        """Names that users choose are no names of columns for mapInArrow, so columns travel by number."""
        names: list[str] = []
        columns: list[Column] = []
        for name in rows.columns:
            column = F.col(f"`{name}`")
            if name.endswith(f".{DIFF}"):
                continue
            if name.endswith(f".{RAW}"):
                # Only a bad row's text is asked for.
                column = F.when(F.col(f"`{name.removesuffix(RAW)}{BAD}`").isNotNull(), column)
            names.append(name)
            columns.append(column.alias(f"c{len(columns)}"))
        task = partial(fragment.scatter, self._job(number), names)
        return rows.select(*columns).mapInArrow(task, SHIPPED)

    def _take_relations(self, table: pa.Table) -> None:
        for one, chunk, rows in self._intake.of_union(table):
            self._take_rows(self._segment, one, chunk, rows)

    def _take_rows(self, segment: dict[str, State], one: Input, chunk: Chunk, rows: Rows) -> None:
        """A relation's rows pass through the clock whole, and so are in its log."""
        shipper = Shipper(one.schema, self._clock.dictionary, _ROW)
        packed = shipper.pack((rows.ts, rows.diff, rows.position), rows.data)
        pieces = segment.setdefault(f"rows.{one.name}", {})
        pieces[str(len(pieces))] = np.frombuffer(packed, np.uint8)
        offset = int(rows.position[0]) if len(rows) else 0
        self._outputs.take(one.name, rows, chunk.dead, chunk, offset)

    def _take_keys(self, table: pa.Table) -> dict[str, Any]:
        """Tells the clock of the tuples that came; returns by stream what their positions are."""
        runs: dict[str, Any] = {}
        for name, reading in self._read_keys(table).items():
            self._outputs.progress.rows += len(reading.ts)
            self._outputs.bury(reading.dead)
            refused = self._refuse(name, reading)
            self._segment[f"keys.{name}"] = {"ts": reading.ts, "position": reading.position}
            late = self._clock.add_keys(name, reading.ts, reading.position)
            reasons = [f"late: {ts} is below what SLACK allows" for ts in late.ts.tolist()]
            wrong = [*refused, *zip(late.position.tolist(), reasons, strict=True)]
            if wrong:
                self._bury(name, reading, wrong)
            runs[name] = reading.runs
        return runs

    def _read_keys(self, table: pa.Table) -> dict[str, Reading]:
        headed = frozenset(one.name for one in self._streams if one.connector.format == "csv")
        return read_keys(table.column("packed").to_pylist(), self._intake.counts, self._folders, headed)

    def _refuse(self, name: str, reading: Reading) -> list[tuple[int, str]]:
        """Times that windows cannot be added to."""
        beyond = is_beyond(reading.ts)
        if not beyond.any():
            return []
        reason = "bad timestamp: beyond what windows and delays can be added to"
        refused = [(position, reason) for position in reading.position[beyond].tolist()]
        self._clock.refuse(name, reading.position[beyond])
        reading.ts, reading.position = reading.ts[~beyond], reading.position[~beyond]
        return refused

    def _bury(self, name: str, reading: Reading, wrong: list[tuple[int, str]]) -> None:
        """Refused rows' texts are fetched from the scan only now; if all is well, there are none."""
        places = {reading.place(position): position for position, _ in wrong}
        index = next(at for at, one in enumerate(self._streams) if one.name == name)
        assert self._numbered is not None
        wanted = self._numbered.filter(F.col(PLACE).isin(list(places)))
        found = wanted.select(PLACE, F.col(f"`{index}.{RAW}`").alias(RAW)).toArrow().to_pydict()
        raws = {places[place]: raw for place, raw in zip(found[PLACE], found[RAW], strict=True)}
        letters = [reading.refuse(name, position, reason, raws[position]) for position, reason in wrong]
        self._outputs.bury(letters)

    # ------------------------------------------------------------ fragments

    def _job(self, epoch: int, orders: bytes = b"", *, keep: bool = True) -> Job:
        ledger = self._ledger
        return Job(
            ledger.pipeline,
            epoch,
            ledger.attempt,
            ledger.base,
            self._shards,
            self._packed_cut,
            self._store.files.root,
            orders,
            tuple((part, ledger.journals[part]) for part in ledger.parts),
            tuple(ledger.past),
            keep,
            self.large,
        )

    def _fragments(
        self, orders: Orders, epoch: int, shipped: DataFrame | None = None, *, keep: bool = True
    ) -> DataFrame:
        """The program that runs every fragment with these orders. Without rows, shards only hear of them."""
        packed = pack_arrays(orders.arrays())
        if keep:
            self._ledger.write_orders(epoch, packed)
        job = self._job(epoch, packed, keep=keep)
        if shipped is None:
            shards = self._spark.range(self._shards).select(F.col("id").cast("int").alias("shard"))
            shipped = shards.selectExpr("shard", "1 AS level", "'' AS name", "CAST('' AS BINARY) AS packed")
        for each in self._cut.fragments:
            task = partial(fragment.run_level, job, each.level)
            shipped = shipped.repartitionById(self._shards, F.col("shard")).mapInArrow(task, SHIPPED)
        return shipped.filter(F.col("level") == DONE).select("name", "packed")

    def gather(self, table: pa.Table) -> None:
        """Delivers what the program gave."""
        self._remote.dictionary = Dictionary()
        gathered = Gathered(self._plan, self._remote.dictionary)
        self.reports = []
        for name, content in zip(table["name"].to_pylist(), table["packed"].to_pylist(), strict=True):
            if name == REPORT:
                self.reports.append(json.loads(content))
            elif name.startswith(BY_FILE):
                file = content.decode()
                gathered.add(name.removeprefix(BY_FILE), self._store.files.read(file))
                self._store.files.remove(file)
            else:
                gathered.add(name, content)
        self._ledger.take(self.reports)
        for report in self.reports:
            if report["stopped"]:
                raise ResourceError(report["stopped"])
        for report in self.reports:
            self._remote.failures.notes |= dict.fromkeys(report["notes"])
        self._remote.failures.count = sum(report["failures"] for report in self.reports)
        last = [Bound(*report["last"]) for report in self.reports if report["last"] is not None]
        self._last = max(last, default=None)
        self._outputs.deliver(self._answer(gathered))

    def _answer(self, gathered: Gathered) -> Answer:
        clock = self._clock
        queries = gathered.queries
        return Answer(gathered.take(), queries=queries, deletions=clock.deletions, refused=clock.refused)

    @property
    def state_bytes(self) -> int:
        """How large the shards' state was when they last looked."""
        return sum(int(report["state"]) for report in self.reports)
