"""One streaming frame for all streams, and its rows as the pipeline takes them.

Columns of one type share a slot: a row of one stream and a row of another lie in the same columns, so that
several streams cross as cheaply as one. Arrow keeps the order of partitions and of rows in each, and a block
of a file lies in one partition: so reading order is a matter of sorting blocks, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kasen.plan.native.lower import NativeScan, is_foreign
from kasen.plan.native.sql_text import spark_name
from kasen.plan.physical import Input
from kasen.spark.scan.frames import spark_type
from kasen.spark.scan.names import BAD, DIFF, FILE, RAW
from kasen.types import Type

STREAM, FAILS = "_stream", "_fails"


@dataclass(frozen=True, slots=True)
class Slots:
    """Where each stream's columns lie: by stream, the slot of each column that crosses (None: does not)."""

    streams: tuple[str, ...]
    places: tuple[tuple[str | None, ...], ...]
    types: dict[str, Type]
    noted: bool
    signed: bool
    counting: bool

    @property
    def several(self) -> bool:
        """Whether rows must tell which stream they are of."""
        return len(self.streams) > 1

    @property
    def fixed(self) -> list[str]:
        """The columns beside the slots."""
        stream = [STREAM] if self.several else []
        notes = [BAD, RAW] if self.noted else []
        signs = [DIFF] if self.signed else []
        return [*stream, FILE, *notes, *signs, *([FAILS] if self.counting else [])]


def slots_of(
    inputs: list[Input],
    scans: dict[str, NativeScan],
    types: dict[str, tuple[Type, ...]],
    cast: frozenset[str] = frozenset(),
) -> Slots:
    """Slots for what crosses of each input; `types` are those of its scan's columns.

    The cells of inputs in `cast` are of other types than declared in their Parquet files.
    """
    places: list[tuple[str | None, ...]] = []
    slots: dict[str, Type] = {}
    for input_ in inputs:
        taken: dict[Type, int] = {}
        mine: list[str | None] = []
        for text, type_ in zip(scans[input_.name].columns, types[input_.name], strict=True):
            if text is None:
                mine.append(None)
                continue
            number = taken.get(type_, 0)
            taken[type_] = number + 1
            slot = f"{spark_name(type_).lower()}_{number}"
            slots[slot] = type_
            mine.append(slot)
        places.append(tuple(mine))
    noted = not all(_is_typed(input_) and input_.name not in cast for input_ in inputs)
    signed = any(input_.is_relation for input_ in inputs)
    counting = any(scans[input_.name].failures is not None for input_ in inputs)
    return Slots(tuple(input_.name for input_ in inputs), tuple(places), slots, noted, signed, counting)


def _is_typed(input_: Input) -> bool:
    """Whether all that can be wrong with a row is that its time is missing, which its time tells."""
    return input_.connector.format == "parquet" and not input_.is_relation


def union(
    opened: dict[str, DataFrame], inputs: list[Input], scans: dict[str, NativeScan], slots: Slots
) -> DataFrame:
    """The streams' frames one after the other, each with its columns in their slots."""
    parts = [_part(opened[one.name], index, one, scans[one.name], slots) for index, one in enumerate(inputs)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionAll(part)
    return whole


def _part(frame: DataFrame, index: int, input_: Input, scan: NativeScan, slots: Slots) -> DataFrame:
    pairs = zip(slots.places[index], scan.columns, strict=True)
    sql = {slot: text for slot, text in pairs if slot is not None and text is not None}
    columns: list[Column] = [F.lit(index).cast("tinyint").alias(STREAM)] if slots.several else []
    if FILE in frame.columns:  # else whole_files.py knows
        columns.append(F.col(FILE))
    if slots.noted:
        columns += [F.col(BAD), _raw(input_).alias(RAW)]
    if slots.signed:
        columns.append(F.col(DIFF))
    if slots.counting:
        columns.append(F.expr(scan.failures or "0").cast("bigint").alias(FAILS))
    for slot, type_ in slots.types.items():
        own = F.expr(sql[slot]) if slot in sql else F.lit(None)
        columns.append(own.cast(spark_type(type_)).alias(slot))
    return frame.select(*columns)


def _raw(input_: Input) -> Column:
    """The text of rows that are refused or may be; of others it is read again when it is asked for."""
    if is_foreign(input_):
        return F.col(RAW)  # nowhere to read it again
    if input_.is_relation:
        return F.when(F.col(BAD).isNotNull() | (F.col(DIFF) < 0), F.col(RAW))
    if input_.connector.format == "parquet":
        # Its text has all columns: they would have to be read for it.
        return F.lit(None).cast("string")
    return F.when(F.col(BAD).isNotNull(), F.col(RAW))


def of_streams(table: pa.Table, slots: Slots, *more: str) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each stream in an epoch's table, by the stream's index; with `more` columns that it has."""
    if not slots.several:
        if len(table):
            yield 0, table
        return
    streams = table.column(STREAM).to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(streams)) + 1, [len(streams)]])
    found: dict[int, list[pa.Table]] = {}
    for begin, end in pairwise(starts.tolist()):
        if end > begin:
            found.setdefault(int(streams[begin]), []).append(table.slice(begin, end - begin))
    for index in sorted(found):
        kept = [*more, *slots.fixed, *(slot for slot in slots.places[index] if slot is not None)]
        yield index, pa.concat_tables(found[index]).select(kept)


def of_files(table: pa.Table, find: Callable[[int], tuple[str, int]]) -> Iterator[tuple[str, pa.Table]]:
    """A stream's rows file by file, in the order of names, and in each in the order of its rows."""
    if not len(table):
        return
    blocks = table.column(FILE).to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(blocks[1:] != blocks[:-1]) + 1, [len(blocks)]]).tolist()
    runs = sorted((find(int(blocks[begin])), begin, end) for begin, end in pairwise(starts))
    by_name: dict[str, list[pa.Table]] = {}
    for (name, _), begin, end in runs:
        by_name.setdefault(name, []).append(table.slice(begin, end - begin))
    for name, parts in by_name.items():
        yield name, pa.concat_tables(parts)
