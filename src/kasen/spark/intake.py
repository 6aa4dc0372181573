"""The rows of a micro-batch as the pipeline takes them: in reading order, refused ones apart.

Spark hands rows over in any order, each with its file, its block of that file and a number that grows along
the block. Files are read in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.connect.encode import encode
from kasen.connect.layout import Layout
from kasen.connect.memory import chunk_of
from kasen.operators.dictionary import Dictionary
from kasen.plan.physical import Input
from kasen.runtime.feed import Rows
from kasen.spark.frames import BAD, BLOCK, DIFF, FILE, PLACE, RAW


class Intake:
    """Counts rows: `counts` has how many of each input's came before, which a later run goes on from."""

    def __init__(self, streams: list[Input], dictionary: Dictionary, counts: dict[str, int]) -> None:
        self._streams = streams
        self._dictionary = dictionary
        self._lines: dict[tuple[str, str], int] = {}
        self.counts = dict(counts)

    def of_union(self, table: pa.Table) -> Iterator[tuple[Input, Chunk, Rows]]:
        """A micro-batch of all streams, as frames.union lays them side by side."""
        names = table.column("stream")
        for index, one in enumerate(self._streams):
            mine = table.filter(pc.equal(names, one.name))
            prefix = f"{index}."
            own = [name for name in mine.column_names if name.startswith(prefix)]
            flat = mine.select([*own, PLACE]).rename_columns([*(n[len(prefix) :] for n in own), PLACE])
            for chunk, rows in self.of_input(one, flat):
                yield one, chunk, rows

    def of_input(self, one: Input, table: pa.Table) -> Iterator[tuple[Chunk, Rows]]:
        """An input's rows file by file, in the order of names and of rows in each."""
        if not len(table):
            return
        table = table.sort_by([(FILE, "ascending"), (BLOCK, "ascending"), (PLACE, "ascending")])
        for file in sorted(set(table.column(FILE).to_pylist())):
            yield self._chunk(one, table.filter(pc.equal(table.column(FILE), file)), file)

    def _chunk(self, one: Input, table: pa.Table, file: str) -> tuple[Chunk, Rows]:
        first = self._lines.get((one.name, file), 2 if one.connector.format == "csv" else 1)
        self._lines[one.name, file] = first + len(table)
        lines = pa.chunked_array([np.arange(first, first + len(table))])
        is_bad = table.column(BAD).is_valid()
        is_good = pc.invert(is_bad)
        good = table.filter(is_good)
        layout = Layout(one.name, one.schema, one.timestamp)
        chunk = chunk_of(layout, good.select(list(one.schema.names)))
        # Copies: Arrow's memory must not be written to, and kernels ask for arrays that may be.
        chunk.lines = lines.filter(is_good).to_numpy().copy()
        chunk.diff = good.column(DIFF).to_numpy().copy()
        chunk.dead += _dead(one, table.filter(is_bad), lines.filter(is_bad))
        data = encode(chunk, self._dictionary)
        ts = data[one.timestamp].copy() if one.timestamp is not None else data[-1] * 0
        before = self.counts.get(one.name, 0)
        self.counts[one.name] = before + len(chunk)
        return chunk, Rows(ts, chunk.diff, data, np.arange(before, before + len(chunk)))


def _dead(one: Input, bad: pa.Table, lines: pa.ChunkedArray) -> list[DeadLetter]:
    columns = (lines, bad.column(BAD), bad.column(RAW))
    found = zip(*(column.to_pylist() for column in columns), strict=True)
    return [DeadLetter(one.name, line, reason, raw) for line, reason, raw in found]
