"""What the scan's tasks on the executors do: send rows to their shards, and their keys to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kasen.connect.encode import encode
from kasen.engine.batch import I64, zeros
from kasen.engine.text.dictionary import Dictionary
from kasen.runtime.durable.arrays import pack_arrays
from kasen.runtime.shard.tuples import Scatter
from kasen.spark.executors.fragment import KEYS, FragmentJob, shipped
from kasen.spark.scan.arrivals import CrossingInput, chunk_of_source, refused
from kasen.spark.scan.names import BAD, FILE, NO_TIME, PLACE, RAW
from kasen.spark.scan.scan import FAILS, Slots, of_streams

#: So many rows go on together: fewer, larger pieces travel faster, and a task holds no more than this.
_TOGETHER = 1 << 18


@dataclass(frozen=True, slots=True)
class ScanLayout:
    """How the scan's rows lie: the names of its columns, the slots, and each stream's columns in them.

    Names that users choose are no names of columns for mapInArrow, so columns travel by number.
    """

    names: tuple[str, ...]
    slots: Slots
    sources: tuple[CrossingInput, ...]


def scatter(
    job: FragmentJob, laid: ScanLayout, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sends rows to their shards, and their keys (time and place) to the driver."""
    dictionary = Dictionary()
    ways = Scatter(job.needed(), job.shards, dictionary)
    keys = _Keys()
    for table in _together(batches, laid.names):
        for index, mine in of_streams(table, laid.slots, PLACE):
            source = laid.sources[index]
            is_bad = refused(mine, source.time)
            good = mine if is_bad is None else mine.filter(pc.invert(is_bad))
            data = encode(chunk_of_source(source, good), dictionary)
            timestamp = source.input_.timestamp
            ts = zeros(len(good)) if timestamp is None else data[timestamp]
            keys.add(source.input_.name, mine, None if is_bad is None else is_bad.to_numpy(), ts)
            place = good.column(PLACE).to_numpy()
            sent = ways.send(source.input_.name, place, data)
            for edge, shard, packed in sent:
                yield shipped([(shard, edge.level, edge.name, packed)])
            if dictionary.is_due:  # whatever was sent has its texts with it
                del data, sent
                dictionary.forget(tuple)
    yield shipped([(0, KEYS, "", keys.packed())])
    # A shard without rows must hear of the epoch, too: its windows may move.
    yield shipped([(shard, 1, "", b"") for shard in range(job.shards)])


def _together(batches: Iterator[pa.RecordBatch], names: tuple[str, ...]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _TOGETHER:
            yield pa.Table.from_batches(held).rename_columns(list(names))
            held = []
    if held:
        yield pa.Table.from_batches(held).rename_columns(list(names))


class _Keys:
    """Of all rows of a task: which file's they are, their places and times; of bad ones, why.

    Of rows in which Spark counted operations that failed, how many.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[str, int, int, int]] = []
        self._ts: list[I64] = []
        self._bad: list[tuple[int, str, str | None]] = []
        self._failed: list[tuple[int, int]] = []

    def add(self, name: str, table: pa.Table, is_bad: npt.NDArray[np.bool_] | None, ts: I64) -> None:
        if not len(table):
            return
        place = table.column(PLACE).to_numpy()
        blocks = table.column(FILE).to_numpy()
        changes = np.flatnonzero((np.diff(place) != 1) | (blocks[1:] != blocks[:-1])) + 1
        starts = [0, *changes.tolist()]
        for start, end in zip(starts, [*starts[1:], len(place)], strict=True):
            run = (name, int(blocks[start]), int(place[start]), end - start)
            self._runs.append(run)
        if is_bad is None:
            self._ts.append(ts)
        else:
            times = zeros(len(place)).copy()
            times[~is_bad] = ts
            self._ts.append(times)
            self._note_bad(table, place, np.flatnonzero(is_bad).tolist())
        if FAILS in table.column_names:
            failed = table.column(FAILS).to_numpy()
            rows = np.flatnonzero(failed)
            self._failed += zip(place[rows].tolist(), failed[rows].tolist(), strict=True)

    def _note_bad(self, table: pa.Table, place: I64, rows: list[int]) -> None:
        if BAD in table.column_names:
            why, raw = table.column(BAD), table.column(RAW)
            self._bad += [(int(place[row]), why[row].as_py(), raw[row].as_py()) for row in rows]
        else:
            self._bad += [(int(place[row]), NO_TIME, None) for row in rows]

    def packed(self) -> bytes:
        notes = {"runs": self._runs, "bad": self._bad, "failed": self._failed}
        texts = np.frombuffer(json.dumps(notes).encode(), np.uint8)
        ts = np.concatenate([np.empty(0, np.int64), *self._ts])
        return pack_arrays({"keys": {"ts": ts, "texts": texts}}, compress=False)
