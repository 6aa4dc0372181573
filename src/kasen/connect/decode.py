"""Changes as an Arrow table: the form in which answers leave."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.operators.batch import I64, Batch, unpack_sub
from kasen.operators.dictionary import Dictionary
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
    seq, tick = unpack_sub(batch.sub)
    columns = [_column(batch.ts, None, time, dictionary)]
    columns += [_column(numbers, None, BIGINT, dictionary) for numbers in (seq, tick, batch.diff)]
    any_nulls = bool(batch.nulls.any())
    for index, field in enumerate(schema):
        nulls = (batch.nulls >> index & 1).astype(np.bool_) if any_nulls else None
        columns.append(_column(batch.data[index], nulls, field.type, dictionary))
    return pa.Table.from_arrays(columns, schema=output_schema(schema, time))


def _column(values: I64, nulls: Flags | None, type_: Type, dictionary: Dictionary) -> pa.Array:
    """Arrow's arrays are made from their buffers: for a batch of one change, all else would cost more."""
    if type_.kind is Kind.VARCHAR:
        return _texts(values, nulls, dictionary)
    content: npt.NDArray[np.generic]
    match type_.kind:
        case Kind.INTEGER:
            content = values.astype(np.int32)
        case Kind.BOOLEAN:
            content = np.packbits(values.astype(np.bool_), bitorder="little")
        case Kind.DECIMAL:
            # 128 bits: the number, and a word of its sign.
            content = np.stack([values, values >> 63], axis=1)
        case _:
            content = values.copy()
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(to_arrow(type_), len(values), [valid, pa.py_buffer(content)])


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
