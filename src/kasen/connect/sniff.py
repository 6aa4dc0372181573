"""Tells the time domain of an undeclared timestamp column from the source's first value."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kasen.types import BIGINT, TIMESTAMP, Connector, Type

Sniff = Callable[[Connector, str], Type | None]


def sniffer(base: Path) -> Sniff:
    """A function that looks into the files of an app in folder `base`; None where there is nothing to see."""

    def sniff(connector: Connector, column: str) -> Type | None:
        files = data_files(base, connector)
        read = _READERS.get(connector.format)
        return read(files[0], column) if files and read is not None else None

    return sniff


def data_files(base: Path, connector: Connector) -> list[Path]:
    """The files of a file connector: the path itself, or a folder's files of that format, in name order."""
    path = base / connector.option("path")
    if path.is_dir():
        return sorted(path.glob(f"*.{connector.format}"))
    return [path] if path.is_file() else []


def _csv(file: Path, column: str) -> Type | None:
    with file.open(newline="", encoding="utf-8", errors="replace") as lines:
        reader = csv.reader(lines)
        names = [name.strip().lower() for name in next(reader, [])]
        row = next(reader, [])
    index = names.index(column.lower()) if column.lower() in names else len(row)
    return _of_value(row[index].strip()) if index < len(row) else None


def _json(file: Path, column: str) -> Type | None:
    with file.open(encoding="utf-8", errors="replace") as lines:
        try:
            row = json.loads(next(lines, ""))
        except ValueError:
            return None
    values = {str(key).lower(): value for key, value in row.items()} if isinstance(row, dict) else {}
    value = values.get(column.lower())
    return None if value is None else _of_value(str(value))


def _parquet(file: Path, column: str) -> Type | None:
    for field in pq.read_schema(file):
        if field.name.lower() == column.lower():
            return BIGINT if pa.types.is_integer(field.type) else TIMESTAMP
    return None


def _of_value(value: str) -> Type:
    return BIGINT if value.lstrip("+-").isdigit() else TIMESTAMP


_READERS: dict[str, Callable[[Path, str], Type | None]] = {"csv": _csv, "json": _json, "parquet": _parquet}
