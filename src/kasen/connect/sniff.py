"""Tells the time domain of an undeclared timestamp column from the source's first value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kasen.connect.chunk import Chunk, Source
from kasen.connect.registry import SOURCES, open_source
from kasen.connect.values import BAD_VALUE
from kasen.errors import DataError
from kasen.types import BIGINT, TIMESTAMP, Connector, Field, Schema, Type

Sniff = Callable[[Connector, str], Type | None]

_FEW_ROWS = 64


def sniffer(base: Path) -> Sniff:
    """A function that looks into the files of an app in folder `base`; None where there is nothing to see."""

    def sniff(connector: Connector, column: str) -> Type | None:
        if connector.format not in SOURCES or not connector.option("path"):
            return None
        plain = Connector(connector.format, (("path", connector.option("path")),))
        source = _open(plain, base, column, BIGINT)
        if source is None:
            # Only Parquet knows its types beforehand; elsewhere the column is simply not there.
            return TIMESTAMP if _open(plain, base, column, TIMESTAMP) is not None else None
        return next((type_ for chunk in source.chunks() if (type_ := _first(chunk)) is not None), None)

    return sniff


def _open(connector: Connector, base: Path, column: str, type_: Type) -> Source | None:
    try:
        return open_source(connector, base, "", Schema((Field(column, type_),)), chunk_rows=_FEW_ROWS)
    except DataError:
        return None


def _first(chunk: Chunk) -> Type | None:
    """The column was read as BIGINT: is the first cell that is not NULL one?"""
    values = np.asarray(chunk.lines)[chunk.data[-1] == 0]
    others = [letter.line for letter in chunk.dead if letter.reason.startswith(BAD_VALUE)]
    if len(values) and (not others or values[0] < others[0]):
        return BIGINT
    return TIMESTAMP if others else None
