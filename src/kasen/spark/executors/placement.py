"""Operators on the executors: each epoch is one DataFrame program of fragments and exchanges.

    scan ─► scatter ─┬─► keys ─► driver: clock ─► orders
                     └─► rows ─► exchange ─► level 1 ─► exchange ─► level 2 ... ─► answers ─► driver

The scan's job sends rows to their shards and only times and places to the driver, whose clock decides what is
late, what runs, and with which ordinals. With these orders the second job runs the fragments.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kasen.engine.batch import Frontier
from kasen.engine.failures import Failures
from kasen.engine.operator import State
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError, ResourceError
from kasen.plan.changes import CatalogChange, RegisteredQuery
from kasen.plan.explain.fragments import exchanges
from kasen.plan.native.lower import is_foreign
from kasen.plan.physical import Input, Plan
from kasen.plan.shard.fragments import cut_plan
from kasen.runtime.durable.arrays import pack_arrays
from kasen.runtime.input.feed import InputRows
from kasen.runtime.live.remote import Held, RemoteQueries
from kasen.runtime.output.answers import AnswerCollector
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.shard.clock import Clock, Orders, SplicePoint
from kasen.runtime.time_range import BEYOND, is_beyond
from kasen.spark.executors import fragment
from kasen.spark.executors.fragment import BY_FILE, DONE, KEYS, REPORT, SHIPPED, FragmentJob
from kasen.spark.executors.keys import ReadTuples, read_keys
from kasen.spark.executors.scatter import ScanLayout, scatter
from kasen.spark.placement import Placement, RunInputs
from kasen.spark.scan import frames, scan
from kasen.spark.scan.arrivals import DeferredTexts
from kasen.spark.scan.names import BAD, DIFF, PLACE, RAW
from kasen.spark.state.epochs import Store
from kasen.spark.state.ledger import CLOCK, Ledger

_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


class RemotePipeline:
    """What the rest of the run sees of a pipeline whose operators are elsewhere."""

    def __init__(self, plan: Plan, *, changing: bool = False) -> None:
        """`changing`: queries may come later, which nothing tells of yet."""
        self.clock = Clock(plan)
        self.clock.keeps_tables = changing or bool(plan.app.changes)
        #: The plan as shards run it.
        self.cut = cut_plan(plan)
        self.live = RemoteQueries(self.cut, self.clock)
        #: The texts of the answers at hand; a new one for each epoch.
        self.dictionary = Dictionary()
        #: Failures of expressions, as the shards have counted them.
        self.failures = Failures()
        #: On executors a loop that never ends is an error at once.
        self.stopped: list[ResourceError] = []

    def add(self, name: str, rows: InputRows) -> InputRows:
        return self.clock.add(name, rows)

    def execute(self, text: str) -> tuple[CatalogChange, ...]:
        """Registers and drops queries as a CQL text says."""
        return self.live.execute(text)

    @property
    def queries(self) -> Mapping[str, RegisteredQuery]:
        return self.live.queries

    @property
    def pending(self) -> list[CatalogChange]:
        return self.live.pending

    def check_changes(self, check: Callable[[CatalogChange], None]) -> None:
        self.live.on_check = check

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


class InExecutors(Placement):
    """The placement on executors."""

    def __init__(
        self,
        inputs: RunInputs,
        spark: SparkSession,
        shards: int,
        remote: RemotePipeline,
        outputs: Outputs,
        store: Store,
        record: dict[str, Any] | None,
    ) -> None:
        """The plan of what Spark leaves to the operators is one made for shards."""
        super().__init__(inputs, remote.clock, outputs, store, record)
        record = record or {}
        self._plan = inputs.native.plan
        self._files = inputs.files
        self._folders = inputs.folders
        self._texts = inputs.texts
        #: Answers of more bytes than this come by files: Spark limits what jobs give to the driver.
        self.large = 1 << 20
        self._spark = spark
        self._shards = shards
        self._remote = remote
        self._clock = remote.clock
        self._store = store
        self._live = remote.live
        self._live.held = self._held
        self._cut = remote.cut
        self._exchanges = exchanges(self._cut, inputs.native.names)
        self._relations = [index for index, input_ in enumerate(self._streams) if input_.is_relation]
        self._headed = frozenset(input_.name for input_ in self._streams if input_.connector.format == "csv")
        # By value: an app's own aggregates may be defined where workers cannot import them.
        self._packed_cut: bytes = cloudpickle.dumps(self._cut)  # type: ignore[no-untyped-call]
        self._packed_later: dict[int, bytes] = {}
        self._ledger = Ledger(store.files, self._parts())
        self._ledger.load(record)
        #: The changes of queries that the last orders held.
        self._splices: list[SplicePoint] = []
        self._epoch = -1
        #: Operations that failed in rows that ran, as Spark counted them.
        self._failed = int(record.get("failed", 0))
        self._numbered: DataFrame | None = None
        self._last: Frontier | None = None
        #: What each shard said of the last epoch: how it got its state, how long it took.
        self.reports: list[dict[str, Any]] = []
        self._restore()

    def _parts(self) -> list[str]:
        levels = range(1, self._live.levels + 1)
        return [f"{level}.{shard}" for level in levels for shard in range(self._shards)]

    def _restore(self) -> None:
        journal = self._ledger.journals[CLOCK]
        if journal.snapshot is not None:
            self._clock.restore(self._store.files.arrays(journal.snapshot[1]))
        for _, file, _ in journal.log:
            self._replay(self._store.files.arrays(file))

    def _replay(self, segment: dict[str, Any]) -> None:
        for key, state in segment.items():
            kind, _, name = key.partition(".")
            if kind == "keys":
                self._clock.add_keys(name, state["ts"], state["position"])
            elif kind == "advanced":
                self._clock.advance(name, int(state["ts"][0]))
            elif kind == "rows":
                for packed in state.values():
                    self._clock.add(name, self._row_log.rows(name, packed))
        self._clock.run()

    # ------------------------------------------------------------ the placement's interface

    def epoch(self, batch: DataFrame, number: int) -> None:
        context = self._spark.sparkContext
        named = context.getLocalProperty("spark.job.description") or f"kasen: epoch {number}"
        context.setJobDescription(f"{named}, rows to shards")
        # After each row Spark asks how many bytes its Arrow batch has, which takes longer than the row.
        # Batches of rows end by their number anyhow; those of packed changes, which may be large, do not.
        conf = batch.sparkSession.conf
        conf.set(_BATCH_BYTES, str(2**31 - 1))
        shipped = self.scan(batch, number).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = shipped.filter(F.col("level") == KEYS).toArrow()
            conf.unset(_BATCH_BYTES)
            context.setJobDescription(f"{named}, {self._exchanges}")
            program = self.program(keys, shipped, number)
            if program is not None:
                self.gather(program.toArrow())
        finally:
            shipped.unpersist()

    def scan(self, batch: DataFrame, number: int) -> DataFrame:
        """The first half of an epoch: rows for the shards, and keys for the driver."""
        self._ledger.begin()
        self._clock.forget_texts()
        self._segment, self._tables = self._tables, {}
        self._arrivals.stamp = self._timing.begin(number)
        self._numbered = rows = frames.numbered(batch)
        if self._relations:
            is_one = F.col(scan.STREAM).isin(self._relations)
            is_relation = is_one if self._slots.several else F.lit(True)
            self._take_relations(rows.filter(is_relation).toArrow())
            rows = rows.filter(~is_relation)
        return self._scattered(rows, number)

    def program(self, keys: pa.Table, shipped: DataFrame, number: int) -> DataFrame | None:
        """The second half: what the clock orders the shards to do; None if there is nothing to do."""
        runs = self._take_keys(keys)
        self._advance()
        orders = self._clock.run(self._live.splices())
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
        for input_ in self._streams:
            self._clock.end(input_.name)
        self._ledger.begin()
        orders = self._clock.run(self._live.splices())
        return None if orders is None else self._fragments(orders, self._ledger.next, keep=keep)

    def expiring(self) -> DataFrame | None:
        """The next step of windows that expire after the end."""
        orders = self._clock.flush(Frontier(self._last.ts + 1, 0)) if self._last is not None else None
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
        record = {**self._ledger.record(), "counts": self._arrivals.counts, "failed": self._failed}
        if self._live.is_live:
            self._live.forget(self._ledger.oldest)
            record["live"] = self._live.save()
        return record

    # ------------------------------------------------------------ rows

    def _scattered(self, rows: DataFrame, number: int) -> DataFrame:
        names = [name for name in rows.columns if name != DIFF]
        columns = [F.col(f"`{name}`") for name in names]
        if RAW in names:
            # Only a bad row's text is asked for.
            columns[names.index(RAW)] = F.when(F.col(BAD).isNotNull(), F.col(RAW))
        slots = replace(self._slots, signed=False)
        laid = ScanLayout(tuple(names), slots, self._sources)
        task = partial(scatter, self._job(number), laid)
        numbered = [column.alias(f"c{place}") for place, column in enumerate(columns)]
        return rows.select(*numbered).mapInArrow(task, SHIPPED)

    def _take_relations(self, table: pa.Table) -> None:
        for index, mine in scan.of_streams(table, self._slots):
            source = self._sources[index]
            for chunk, rows, _ in self._arrivals.read(source, mine):
                self._take_rows(self._segment, source.input_, chunk, rows)

    def _log(self, segment: dict[str, State], input_: Input, rows: InputRows) -> None:
        """A relation's rows pass through the clock whole, and so are in its log."""
        self._row_log.add(segment.setdefault(f"rows.{input_.name}", {}), input_.name, rows)

    def _note_advance(self, name: str, ts: int) -> None:
        self._segment[f"advanced.{name}"] = {"ts": np.array([ts], np.int64)}

    def _take_keys(self, table: pa.Table) -> dict[str, Any]:
        """Tells the clock of the tuples that came; returns by stream what their positions are."""
        runs: dict[str, Any] = {}
        packed = table.column("packed").to_pylist()
        found = read_keys(
            packed, self._arrivals.counts, self._folders, self._headed, self._bad_texts, self._files.find
        )
        for name, reading in found.items():
            self._timing.hear(name)
            if name in self._timing.stamped:
                reading.ts = np.full(len(reading.ts), self._arrivals.stamp, np.int64)
            self._outputs.progress.rows += len(reading.ts)
            self._outputs.bury(reading.dead)
            beyond = is_beyond(reading.ts)
            self._clock.refuse(name, reading.position[beyond])
            ts, position = reading.ts[~beyond], reading.position[~beyond]
            self._segment[f"keys.{name}"] = {"ts": ts, "position": position}
            late = self._clock.add_keys(name, ts, position)
            wrong = dict.fromkeys(reading.position[beyond].tolist(), BEYOND)
            for each, moment in zip(late.position.tolist(), late.ts.tolist(), strict=True):
                wrong[each] = f"late: {moment} is below what SLACK allows"
            if wrong:
                raws = self._raws(name, reading, list(wrong))
                letters = [reading.refuse(name, each, why, raws[each]) for each, why in wrong.items()]
                self._outputs.bury(letters)
            # What comes too late is never computed, so it cannot fail either.
            self._failed += sum(count for each, count in reading.failed.items() if each not in wrong)
            runs[name] = reading.runs
        return runs

    def _bad_texts(self, name: str, file: str) -> list[str]:
        return self._texts(self._stream(name), file, None)

    def _stream(self, name: str) -> Input:
        return next(input_ for input_ in self._streams if input_.name == name)

    def _raws(self, name: str, reading: ReadTuples, wrong: list[int]) -> dict[int, str]:
        """Refused rows' texts by position. They are read again only now; if all is well, there are none."""
        input_ = self._stream(name)
        if is_foreign(input_):
            places = {reading.place(position): position for position in wrong}
            assert self._numbered is not None
            wanted = self._numbered.filter(F.col(PLACE).isin(list(places)))
            found = wanted.select(PLACE, RAW).toArrow().to_pydict()
            return {places[place]: raw for place, raw in zip(found[PLACE], found[RAW], strict=True)}
        raws: dict[int, str] = {}
        for file in dict.fromkeys(map(reading.file, wrong)):
            begin, end = np.searchsorted(reading.position, [file.first, file.first + file.count]).tolist()
            own = reading.position[begin:end]
            texts = DeferredTexts(self._texts, input_, file.name, reading.ts[begin:end])
            mine = [position for position in wrong if file.first <= position < file.first + file.count]
            rows = np.searchsorted(own, mine).tolist()
            texts.expect(rows)
            raws |= {position: texts.text(row) for position, row in zip(mine, rows, strict=True)}
        return raws

    # ------------------------------------------------------------ fragments

    def _job(self, epoch: int, orders: bytes = b"", *, keep: bool = True) -> FragmentJob:
        ledger = self._ledger
        generations = self._live.generations
        later = {
            each.number: self._packed_later.get(each.number) or cloudpickle.dumps(each)  # type: ignore[no-untyped-call]
            for each, *_ in generations
            if each.number
        }
        self._packed_later = later
        ledger.extend(self._parts())
        return FragmentJob(
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
            tuple(later.items()),
            tuple((each.number, live, moved) for each, live, moved in generations),
            bool(self._plan.app.setting("max_groups")),
        )

    def _fragments(
        self, orders: Orders, epoch: int, shipped: DataFrame | None = None, *, keep: bool = True
    ) -> DataFrame:
        """The program that runs every fragment with these orders. Without rows, shards only hear of them."""
        self._epoch = epoch
        packed = pack_arrays(orders.arrays())
        if keep:
            self._ledger.write_orders(epoch, packed)
        job = self._job(epoch, packed, keep=keep)
        if shipped is None:
            shards = self._spark.range(self._shards).select(F.col("id").cast("int").alias("shard"))
            shipped = shards.selectExpr("shard", "1 AS level", "'' AS name", "CAST('' AS BINARY) AS packed")
        self._splices = orders.splices
        for level in range(1, self._live.levels + 1):
            task = partial(fragment.run_level, job, level)
            shipped = shipped.repartitionById(self._shards, F.col("shard")).mapInArrow(task, SHIPPED)
        return shipped.filter(F.col("level") == DONE).select("name", "packed")

    def gather(self, table: pa.Table) -> None:
        """Delivers what the program gave."""
        self._remote.dictionary = Dictionary()
        known = {
            each.answer(query.name): query for each, *_ in self._live.generations for query in each.queries
        }
        gathered = AnswerCollector(known, self._remote.dictionary)
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
        for report in self.reports:
            if "damaged" in report:
                raise DataError(report["damaged"])
        self._ledger.take(self.reports)
        for report in self.reports:
            if report["stopped"]:
                raise ResourceError(report["stopped"])
        for report in self.reports:
            self._remote.failures.notes |= dict.fromkeys(report["notes"])
        self._remote.failures.count = self._failed + sum(report["failures"] for report in self.reports)
        last = [Frontier(*report["last"]) for report in self.reports if report["last"] is not None]
        self._last = max(last, default=None)
        answers = self._live.answers(gathered.take(), self._splices, self._epoch)
        answers[0].deletions, answers[0].refused = self._clock.deletions, self._clock.refused
        self._splices = []
        for answer in answers:
            self._outputs.deliver(answer)

    def _held(self) -> Held:
        groups = sum(int(report.get("groups", 0)) for report in self.reports)
        return Held(groups, self.state_bytes)

    @property
    def state_bytes(self) -> int:
        """How large the shards' state was when they last looked."""
        return sum(int(report["state"]) for report in self.reports)
