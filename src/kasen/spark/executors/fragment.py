"""What Python workers on the executors do with a shard's rows: run a fragment on them.

Between fragments everything travels as packed changes, a few large cells a shard, so that Spark moves bytes
and not rows. A worker keeps its shards' operators warm between epochs. Spark moves shards between workers
freely, so warmth is an optimisation that is checked: state counts only if it is the one after the last
epoch that was committed, by the name of that attempt. A cold worker takes the copy that another worker
of the host has left, or else the durable state, and replays what came since.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from kasen.checksum import DamagedFile, seal_line, unseal
from kasen.engine import parallel
from kasen.plan.shard.generations import Generation
from kasen.runtime.durable.arrays import pack_arrays, unpack_arrays
from kasen.runtime.shard.clock import Orders
from kasen.runtime.shard.shard import Shard
from kasen.spark.state.epochs import StateJournal
from kasen.spark.state.state_files import Files

#: The rows that travel: for which shard, at which level, along which exchange, and the packed changes.
SHIPPED = "shard int, level int, name string, packed binary"
_SHIPPED = pa.schema(
    [("shard", pa.int32()), ("level", pa.int32()), ("name", pa.string()), ("packed", pa.binary())]
)
#: Levels of what is for the driver: the keys of an input's rows; answers, and what a shard did.
KEYS, DONE = -1, 0
REPORT, BY_FILE = "#report", "#file "

# A state up to this size is left for other workers of the host after every epoch.
_SMALL = 4 << 20
_DAY = 86_400.0
# Operators that no epoch has asked for since so many seconds are let go.
_IDLE = 300.0
_MOST_PLANS = 64


@dataclass(frozen=True, slots=True)
class FragmentJob:
    """What the tasks of an epoch are told. `base` is the attempt that their state must come from."""

    pipeline: str
    epoch: int
    attempt: str
    base: str
    shards: int
    cut: bytes
    root: str
    orders: bytes = b""
    #: By level and shard; and for each epoch since the oldest snapshot its orders' file and attempt.
    journals: tuple[tuple[str, StateJournal], ...] = ()
    past: tuple[tuple[int, str, str], ...] = ()
    keep: bool = True
    large: int = 1 << 20
    #: The generations of queries that came later or will, by number; and of all, the queries that are needed.
    later: tuple[tuple[int, bytes], ...] = ()
    live: tuple[tuple[int, frozenset[str], frozenset[str]], ...] = ()
    #: Whether there is a limit of groups.
    counts_groups: bool = False

    def open(self) -> dict[int, Generation]:
        """The plans by generation; each is unpacked once in a worker."""
        while self.pipeline not in _PLANS and len(_PLANS) >= _MOST_PLANS:
            del _PLANS[next(iter(_PLANS))]
        known = _PLANS.get(self.pipeline, {})
        found = {0: known.get(0) or Generation(0, pickle.loads(self.cut))}
        found |= {number: known.get(number) or pickle.loads(packed) for number, packed in self.later}
        _PLANS[self.pipeline] = found
        return found

    def needed(self) -> list[tuple[Generation, frozenset[str], frozenset[str]]]:
        """The generations with their queries that are there or will come, and that were replaced."""
        plans = self.open()
        return [(plans[number], names, moved) for number, names, moved in self.live]


_PLANS: dict[str, dict[int, Generation]] = {}


def shipped(rows: list[tuple[int, int, str, bytes]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[], [], [], []]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, _SHIPPED.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SHIPPED)


def _as_shipped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows on their way through: Spark may have marked columns that are never NULL, our own rows are not."""
    return pa.RecordBatch.from_arrays(
        [column.cast(type_) for column, type_ in zip(batch.columns, _SHIPPED.types, strict=True)],
        schema=_SHIPPED,
    )


# ---------------------------------------------------------------- a shard's side


def run_level(job: FragmentJob, level: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs a fragment on the shard whose rows these are. What is for later levels passes through."""
    parallel.use_one_core()
    received: dict[str, list[bytes]] = {}
    shard = -1
    for batch in batches:
        if not len(batch):
            continue
        shard = batch.column(0)[0].as_py()
        is_mine = pc.equal(batch.column(1), level)
        mine = batch.filter(is_mine)
        for name, packed in zip(mine.column(2).to_pylist(), mine.column(3).to_pylist(), strict=True):
            if name:
                received.setdefault(name, []).append(packed)
        if len(mine) < len(batch):
            yield _as_shipped(batch.filter(pc.invert(is_mine)))
    if shard < 0:
        return
    started = time.perf_counter()
    try:
        running = _WarmShard.find(job, level, shard)
    except DamagedFile as damage:
        # A task that fails would be tried again, in vain, and Spark would print a stack for each.
        yield shipped([(shard, DONE, REPORT, json.dumps({"damaged": str(damage)}).encode())])
        return
    orders = Orders.of(unpack_arrays(job.orders))
    sent = running.shard.run(orders, received)
    rows = [(to, edge.level, edge.name, packed) for edge, to, packed in sent.exchanged]
    rows += [(shard, DONE, *_answer(job, name, packed)) for name, packed in sent.answers]
    rows.append((shard, level + 1, "", b""))
    report = running.finish(job, received)
    report["seconds"] = time.perf_counter() - started
    rows.append((shard, DONE, REPORT, json.dumps(report).encode()))
    for row in rows:
        yield shipped([row])


def _answer(job: FragmentJob, name: str, packed: bytes) -> tuple[str, bytes]:
    """An answer as it goes to the driver; a large one is put into a file, and the file's name goes."""
    if len(packed) <= job.large:
        return name, packed
    # It is read at once, by the driver, or never.
    name_of_file = f"files/answer-{job.epoch:012}-{uuid.uuid4().hex}"
    file, _ = Files(job.root).write(name_of_file, packed, lasting=False)
    return BY_FILE + name, file.encode()


class _WarmShard:
    """A shard that this worker has, and the attempt that its state comes from."""

    def __init__(self, shard: Shard, part: str) -> None:
        self.shard = shard
        self._part = part
        self.token: str | None = None  # none while an epoch runs: a task that fails must not be found again
        self._how = "warm"
        self._known = 0  # the state's size when it was last looked at
        self._used = time.monotonic()
        self._unsaved = 0  # bytes received since the host's copy was made

    @staticmethod
    def find(job: FragmentJob, level: int, shard: int) -> _WarmShard:
        part = f"{level}.{shard}"
        found = _WARM.get((job.pipeline, part))
        first, *later = job.open().values()
        if found is not None and found.token == job.base:
            found._how, found.token = "warm", None
            found._used = time.monotonic()
            found.shard.announce(later)
            return found
        fresh = _WarmShard(Shard(first.cut, level, shard, job.shards, later), part)
        fresh._restore(job)
        for other in [key for key, each in _WARM.items() if each._used < time.monotonic() - _IDLE]:
            del _WARM[other]
        _WARM[job.pipeline, part] = fresh
        return fresh

    def _restore(self, job: FragmentJob) -> None:
        journal = dict(job.journals).get(self._part, StateJournal())
        attempts = {epoch: attempt for epoch, _, attempt in job.past}
        files = Files(job.root)
        since, copy = -1, _host_copy(job.pipeline, self._part)
        self._how = "fresh" if not job.past and journal.snapshot is None else "restored"
        counts = copy is not None and copy[1] in (job.base, attempts.get(copy[0]))
        if copy is not None and counts and copy[0] >= journal.since:
            since = copy[0]
            self.shard.restore(copy[2])
            self._how = "taken over"
        elif journal.snapshot is not None:
            since = journal.snapshot[0]
            self.shard.restore(files.arrays(journal.snapshot[1]))
        segments = {epoch: file for epoch, file, _ in journal.log}
        for epoch, file, _ in job.past:
            if epoch > since:
                received = _unpacked(files.arrays(segments[epoch])) if segments.get(epoch) else {}
                self.shard.run(Orders.of(files.arrays(file)), received)

    def finish(self, job: FragmentJob, received: dict[str, list[bytes]]) -> dict[str, Any]:
        """Makes the epoch durable, and leaves a copy for the host if that is cheap."""
        report: dict[str, Any] = {"part": self._part, "how": self._how, "snapshot": None}
        # A loop that never ends must end its readers at the same instant, and these may be on other shards.
        report["stopped"] = "\n".join(str(error) for error in self.shard.stopped)
        journal = dict(job.journals).get(self._part, StateJournal())
        context = TaskContext.get()
        try_ = context.taskAttemptId() if context is not None else 0
        name = f"files/{self._part}-{job.epoch:012}-{job.attempt}.{try_}"
        if job.keep:
            files = Files(job.root)
            packed = _packed(received) if received else b""
            report["segment"] = files.write(f"{name}.segment", packed)[0] if received else ""
            report["weight"] = weight = len(packed) + len(job.orders)
            state = journal.snapshot_due(weight, lambda: pack_arrays(self.shard.snapshot()))
            if state is not None:
                report["snapshot"] = files.write(f"{name}.snapshot", state)
            report["weighed"] = journal.weighed
        last = self.shard.last_instant()
        report["last"] = None if last is None else [last.ts, last.seq_tick]
        report["failures"] = self.shard.failures.count
        report["notes"] = list(self.shard.failures.notes)
        report["state"] = self._known
        if job.counts_groups:
            report["groups"] = self.shard.groups
        self._unsaved += sum(len(each) for parts in received.values() for each in parts)
        if self._known <= _SMALL or self._unsaved > self._known:
            held = self.shard.snapshot()
            self._known = report["state"] = _size(held)
            self._unsaved = 0
            _leave_copy(job, self._part, held)
        self.token = job.attempt
        return report


_WARM: dict[tuple[str, str], _WarmShard] = {}


def _size(state: dict[str, Any]) -> int:
    return sum(array.nbytes for part in state.values() for array in part.values())


def _packed(received: dict[str, list[bytes]]) -> bytes:
    parts = {
        name: {str(at): np.frombuffer(each, np.uint8) for at, each in enumerate(parts)}
        for name, parts in received.items()
    }
    return pack_arrays(parts)


def _unpacked(segment: dict[str, Any]) -> dict[str, list[bytes]]:
    return {name: [each.tobytes() for each in parts.values()] for name, parts in segment.items()}


# ---------------------------------------------------------------- copies on the host


def host_folder(pipeline: str) -> Path:
    """Where the workers of a host leave states to one another; in memory if the system has such a place."""
    shared = Path("/dev/shm")
    base = shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return base / f"kasen-{os.getuid()}" / pipeline


def _leave_copy(job: FragmentJob, part: str, state: dict[str, Any]) -> None:
    folder = host_folder(job.pipeline)
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(folder.parent)
    token = json.dumps([job.epoch, job.attempt]).encode()
    content = pack_arrays({**state, "#token": {"token": np.frombuffer(token, np.uint8)}}, compress=False)
    draft = folder / f"{part}.{os.getpid()}"
    with draft.open("wb") as file:
        file.write(seal_line(content))
        file.write(content)
    draft.replace(folder / part)


def _host_copy(pipeline: str, part: str) -> tuple[int, str, dict[str, Any]] | None:
    """Epoch, attempt and state of the copy that is there, if any."""
    file = host_folder(pipeline) / part
    try:
        with pa.memory_map(str(file)) as mapped:
            state = unpack_arrays(unseal(memoryview(mapped.read_buffer()), file))
    except (OSError, DamagedFile):
        return None
    epoch, attempt = json.loads(state.pop("#token")["token"].tobytes())
    return epoch, attempt, state


def _sweep(folder: Path) -> None:
    """Removes what pipelines that ended long ago have left on this host."""
    for old in folder.iterdir():
        if old.stat().st_mtime < time.time() - _DAY:
            shutil.rmtree(old, ignore_errors=True)
