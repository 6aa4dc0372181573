"""A large epoch's Parquet files, scanned so that a row need not tell which file it is of.

A number in each row takes up to a third of the time in which rows cross, and what `foreachBatch` hands over
has copied each row once more. So the files of a large micro-batch are scanned by a frame of their own. Arrow
keeps the order of partitions and of the rows in each; Spark tells which files it puts into a partition, in
which order; a Parquet file tells how many rows it has. Where one of these cannot be told, the micro-batch is
taken as it came, with a number in each row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from kasen.spark.scan.input_files import PATTERNS

#: Smaller epochs take longer to be planned once more than to cross.
_LEAST_BYTES = 4 << 20
#: Spark lists more files than these by a job (spark.sql.sources.parallelPartitionDiscovery.threshold).
_MOST_FILES = 32
#: The frame in which files are scanned, of the micro-batch and their paths.
Opens = Callable[[DataFrame, tuple[str, ...]], DataFrame]


class Block(NamedTuple):
    """What a partition reads of a file."""

    path: str
    start: int
    length: int
    size: int

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.length == self.size


def read_whole_files(batch: DataFrame, opens: Opens) -> list[tuple[str, pa.Table]] | None:
    """The rows of each file of a micro-batch, in the order of names; None if it must be taken as it came."""
    found = _blocks(batch._jdf.queryExecution().logical().rdd())
    if not _is_worth(found):
        return None
    frame = opens(batch, tuple(block.path for block in found))
    planned = _blocks(frame._jdf.queryExecution().toRdd())
    counts = row_counts([block.path for block in planned])
    if sorted(planned) != sorted(found) or counts is None:
        return None
    table = frame.toArrow()
    if len(table) != sum(counts):
        return None  # Spark was told to pass over what it cannot read
    parts: dict[str, pa.Table] = {}
    first = 0
    for block, count in zip(planned, counts, strict=True):
        parts[block.name] = table.slice(first, count)
        first += count
    return sorted(parts.items())


def row_counts(paths: list[str]) -> list[int] | None:
    """The rows of each file; None if one is not to be read, of which Spark shall say what it thinks."""
    try:
        return [pq.read_metadata(path).num_rows for path in paths]
    except (pa.ArrowException, OSError, ValueError):
        return None


def _is_worth(blocks: list[Block]) -> bool:
    """Whether these are whole files, each with a name of its own that is no pattern, and large enough."""
    return (
        0 < len(blocks) <= _MOST_FILES
        and sum(block.size for block in blocks) >= _LEAST_BYTES
        and len({block.name for block in blocks}) == len(blocks)
        and all(block.is_whole and PATTERNS.isdisjoint(block.path) for block in blocks)
    )


def _blocks(rdd: Any) -> list[Block]:
    """The blocks of local files that an RDD scans, in the order of its rows; none if it is not one scan."""
    while rdd.getClass().getSimpleName() != "FileScanRDD":
        parents = rdd.dependencies()
        if parents.size() != 1:
            return []
        rdd = parents.head().rdd()
    partitions = rdd.filePartitions()
    files = [partitions.apply(index).files() for index in range(partitions.size())]
    if sum(map(len, files)) > _MOST_FILES:
        return []
    found: list[Block] = []
    for file in (each for part in files for each in part):
        place = file.filePath().toPath().toUri()
        if place.getScheme() != "file":
            return []
        found.append(Block(place.getPath(), file.start(), file.length(), file.fileSize()))
    return found
