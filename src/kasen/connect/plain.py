"""Changes as Python values: the form for programs that read one answer at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from kasen.engine.batch import I64, TICK_BITS, Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Schema, Type

_EPOCH = datetime(1970, 1, 1)
_TICKS = (1 << TICK_BITS) - 1


class Change(NamedTuple):
    """A row that enters (+1) or leaves (-1) an answer at an instant."""

    ts: object
    seq: int
    tick: int
    diff: int
    values: tuple[object, ...]


class ChangeReader:
    """Reads the changes of one query. Times are datetimes, those that Python's calendar lacks are in µs."""

    def __init__(self, schema: Schema, time: Type, dictionary: Dictionary) -> None:
        self._time = _converter(time, dictionary)
        self._columns = [_converter(field.type, dictionary) for field in schema]

    def changes(self, batch: Batch) -> list[Change]:
        times, subs, diffs = self._time(batch.ts), batch.seq_tick.tolist(), batch.diff.tolist()
        columns = [convert(batch.data[index]) for index, convert in enumerate(self._columns)]
        words = batch.nulls.tolist()
        found = []
        for row, nulls in enumerate(words):
            values = tuple([column[row] for column in columns])
            if nulls:
                values = tuple([None if nulls >> at & 1 else value for at, value in enumerate(values)])
            seq_tick = subs[row]
            found.append(Change(times[row], seq_tick >> TICK_BITS, seq_tick & _TICKS, diffs[row], values))
        return found


def _converter(type_: Type, dictionary: Dictionary) -> Callable[[I64], list[object]]:
    """From a column of a batch to Python's values; what it makes of a NULL's 0 does not matter."""
    match type_.kind:
        case Kind.DOUBLE:
            return lambda column: column.view(np.float64).tolist()
        case Kind.BOOLEAN:
            return lambda column: (column != 0).tolist()
        case Kind.DECIMAL:
            return lambda column: [Decimal(each).scaleb(-type_.scale) for each in column.tolist()]
        case Kind.TIMESTAMP:
            return lambda column: [_moment(each) for each in column.tolist()]
        case Kind.VARCHAR:
            return lambda column: [
                dictionary.texts[code] if len(dictionary) else None for code in column.tolist()
            ]
    return lambda column: column.tolist()


def _moment(micros: int) -> datetime | int:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros
