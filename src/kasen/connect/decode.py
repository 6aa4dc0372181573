"""Changes as an Arrow table: the form in which answers leave."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.engine.batch import I64, Batch, are_ones, are_zeros, unpack_seq_tick
from kasen.engine.deferred_batch import DeferredBatch
from kasen.engine.text.dictionary import Dictionary
from kasen.types import BIGINT, Kind, Schema, Type, to_arrow

Flags = npt.NDArray[np.bool_]

#: Up to so many texts are decoded one by one.
_FEW = 32

#: The columns before a query's own.
INSTANT_AND_DIFF = ("ts", "seq", "tick", "diff")


@lru_cache(maxsize=1024)
def output_schema(schema: Schema, time: Type) -> pa.Schema:
    """ts, seq, tick, diff, and the query's columns. Its names may repeat, and may be any of those four."""
    types = [time, BIGINT, BIGINT, BIGINT, *schema.types]
    names = [*INSTANT_AND_DIFF, *schema.names]
    return pa.schema([pa.field(name, to_arrow(type_)) for name, type_ in zip(names, types, strict=True)])


def decode(batch: Batch, schema: Schema, dictionary: Dictionary, time: Type) -> pa.Table:
    """The batch's changes, in its order, with output_schema's columns. The table shares nothing with it."""
    return Decoder(schema, dictionary, time).table(batch)


class Decoder:
    """Makes tables of a query's changes."""

    def __init__(self, schema: Schema, dictionary: Dictionary, time: Type) -> None:
        self._dictionary = dictionary
        self._schema = output_schema(schema, time)
        self._time = (time.kind, to_arrow(time))
        self._types = [(field.type.kind, to_arrow(field.type)) for field in schema]

    def table(self, batch: Batch) -> pa.Table:
        """The batch's changes, in its order. The table shares no memory with it that others may keep."""
        # What was chosen from elsewhere is put into memory of its own when it is first asked for.
        own = isinstance(batch, DeferredBatch) and (batch.is_chosen or batch.is_fresh)
        if isinstance(batch, DeferredBatch) and batch.is_chosen:
            batch = DeferredBatch(batch.parts)  # that memory goes with the table, not with the batch
        if are_zeros(batch.seq_tick):
            seq = tick = _same(_ZEROS, batch.seq_tick)
        else:
            seq, tick = (_whole(numbers) for numbers in unpack_seq_tick(batch.seq_tick))
        diff = _same(_ONES, batch.diff) if are_ones(batch.diff) else _whole(batch.diff.copy())
        columns = [self._column(batch.ts, None, *self._time, own=own), seq, tick, diff]
        words = batch.column(-1) if batch.has_nulls() else None
        for index, (kind, arrow) in enumerate(self._types):
            nulls = None if words is None else (words >> index & 1).astype(np.bool_)
            columns.append(self._column(batch.column(index), nulls, kind, arrow, own=own))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _column(
        self, values: I64, nulls: Flags | None, kind: Kind, arrow: pa.DataType, *, own: bool
    ) -> pa.Array:
        """Arrow's arrays are made from their buffers: for a batch of one change, all else would cost more."""
        if kind is Kind.VARCHAR:
            return _texts(values, nulls, self._dictionary)
        content: npt.NDArray[np.generic]
        if kind is Kind.INTEGER:
            content = values.astype(np.int32)
        elif kind is Kind.BOOLEAN:
            content = np.packbits(values.astype(np.bool_), bitorder="little")
        elif kind is Kind.DECIMAL:
            # 128 bits: the number, and a word of its sign.
            content = np.stack([values, values >> 63], axis=1)
        else:
            content = values if own else values.copy()
        valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        return pa.Array.from_buffers(arrow, len(values), [valid, pa.py_buffer(content)])


def _whole(numbers: I64) -> pa.Array:
    return pa.Array.from_buffers(_INT64, len(numbers), [None, pa.py_buffer(numbers)])


#: Mostly all rows are of tick 0 and enter once: tables share memory that says so.
_SHARED = 1 << 16
_INT64 = pa.int64()
_ZEROS, _ONES = _whole(np.zeros(_SHARED, np.int64)), _whole(np.ones(_SHARED, np.int64))


def _same(shared: pa.Array, numbers: I64) -> pa.Array:
    """Numbers that are those of `shared`, all the same, in memory that is never written to."""
    return shared.slice(0, len(numbers)) if len(numbers) <= _SHARED else _whole(numbers)


def _texts(values: I64, nulls: Flags | None, dictionary: Dictionary) -> pa.StringArray:
    if len(values) <= _FEW:
        texts: list[str | None] = list(dictionary.decode(values)) if len(dictionary) else [None] * len(values)
        if nulls is not None:
            texts = [None if is_null else text for text, is_null in zip(texts, nulls, strict=True)]
        return pa.array(texts, pa.string())
    # Each distinct text is made an Arrow string once.
    distinct, positions = np.unique(values, return_inverse=True)
    if nulls is not None and nulls.all():
        return pa.nulls(len(values), pa.string())
    return pa.array(dictionary.decode(distinct), pa.string()).take(pa.array(positions, mask=nulls))
