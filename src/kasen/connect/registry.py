"""From FROM 'format' OPTIONS (...) to a source, and from INTO 'format' OPTIONS (...) to a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from kasen.connect.chunk import Source
from kasen.connect.csv.sink import CsvSink
from kasen.connect.csv.source import csv_source
from kasen.connect.files import is_address
from kasen.connect.json.sink import JsonSink
from kasen.connect.json.source import json_source
from kasen.connect.layout import Layout
from kasen.connect.memory.sink import MemorySink
from kasen.connect.memory.source import MemorySource
from kasen.connect.parquet.sink import ParquetSink
from kasen.connect.parquet.source import parquet_source
from kasen.connect.sink import Sink
from kasen.errors import DataError
from kasen.plan.physical import Input
from kasen.types import MAX_TEXT_BYTES, Connector, Schema

#: For Spark: whether cells may have line breaks. The local engine reads such files in any case.
MULTILINE = "multiline"
#: Enough rows that a call costs nothing beside its work, few enough that they stay in the processor's cache.
CHUNK_ROWS = 1 << 15

Opener = TypeVar("Opener")


@dataclass(frozen=True, slots=True)
class Format(Generic[Opener]):
    """How a format is opened, and its options; the required ones first."""

    open: Opener
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


OpenSource = Callable[[Path, Layout, int], Source]
OpenSink = Callable[[Path, pa.Schema, int | None], Sink]

SOURCES: Mapping[str, Format[OpenSource]] = {
    "csv": Format(csv_source, ("path",), ("diff", MULTILINE)),
    "json": Format(json_source, ("path",), ("diff",)),
    "parquet": Format(parquet_source, ("path",), ("diff",)),
    "memory": Format(lambda _path, layout, _rows: MemorySource(layout), (), ("diff",)),
}
SINKS: Mapping[str, Format[OpenSink]] = {
    "csv": Format(CsvSink, ("path",)),
    "json": Format(JsonSink, ("path",)),
    "parquet": Format(ParquetSink, ("path",)),
    "memory": Format(lambda _path, schema, _resume: MemorySink(schema)),
}
#: These hold columns by name alone, so a name may be there only once.
_BY_NAME = ("json", "parquet")


def open_source(
    connector: Connector,
    base: Path,
    name: str,
    schema: Schema,
    timestamp: int | None = None,
    is_relation: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    max_text_bytes: int = MAX_TEXT_BYTES,
) -> Source:
    """The source of input `name`, with schema and time column as in Layout. Paths are relative to `base`.

    Whatever can be seen to be wrong without reading rows is a DataError here: a format, an option, a missing
    file or column.
    """
    format_ = _format(connector, SOURCES, name, "read")
    layout = layout_of(connector, name, schema, timestamp, is_relation, max_text_bytes)
    if is_address(connector.option("path")):
        raise DataError(
            f"{name}: {connector.option('path')} is not on this machine; only --engine spark reads addresses"
        )
    return format_.open(base / connector.option("path"), layout, chunk_rows)


def layout_of(
    connector: Connector,
    name: str,
    schema: Schema,
    timestamp: int | None,
    is_relation: bool,
    max_text_bytes: int = MAX_TEXT_BYTES,
) -> Layout:
    """Only the rows of a relation with TIMESTAMP BY can leave."""
    given = connector.option("diff")
    if not (is_relation and timestamp is not None):
        if given:
            raise DataError(f"{name}: option 'diff' is for a RELATION with TIMESTAMP BY; its rows can leave")
        return Layout(name, schema, timestamp, max_text_bytes=max_text_bytes)
    return Layout(name, schema, timestamp, given or "diff", bool(given), max_text_bytes)


def layout_of_input(input_: Input) -> Layout:
    """What to read from the source of an input."""
    return layout_of(
        input_.connector,
        input_.name,
        input_.schema,
        input_.timestamp,
        input_.is_relation,
        input_.max_text_bytes,
    )


def open_sink(
    connector: Connector, base: Path, name: str, schema: pa.Schema, resume: int | None = None
) -> Sink:
    """The sink of query `name`, of changes with decode.output_schema's columns.

    With `resume` None it begins anew, and what another run left there is gone; else it goes on from that
    position, and what was written behind it is taken back.
    """
    format_ = _format(connector, SINKS, name, "write")
    if connector.format in _BY_NAME:
        _check_names(connector, name, schema)
    if is_address(connector.option("path")):
        remedy = "give a path of this machine, or let foreach_batch or another format of Spark's write there"
        raise DataError(f"{name}: format {connector.format!r} writes no address; {remedy}")
    return format_.open(base / connector.option("path"), schema, resume)


def _format(
    connector: Connector, formats: Mapping[str, Format[Opener]], name: str, verb: str
) -> Format[Opener]:
    format_ = formats.get(connector.format)
    if format_ is None:
        raise DataError(
            f"{name}: no format {connector.format!r} to {verb}; there are {', '.join(sorted(formats))}"
            " (other formats need Spark)"
        )
    valid = (*format_.required, *format_.optional)
    there = f"; its options are: {', '.join(valid) or 'none'}"
    for option, _ in connector.options:
        if option not in valid:
            raise DataError(f"{name}: format {connector.format!r} has no option {option!r}{there}")
    for option in format_.required:
        if not connector.option(option):
            raise DataError(f"{name}: format {connector.format!r} needs the option {option!r}{there}")
    return format_


def _check_names(connector: Connector, name: str, schema: pa.Schema) -> None:
    lower = [column.lower() for column in schema.names]
    for column in schema.names:
        if lower.count(column.lower()) > 1:
            raise DataError(
                f"{name}: {connector.format} holds columns by name, and {column!r} is there twice"
                " (ts, seq, tick and diff tell the instant); rename it with AS"
            )
