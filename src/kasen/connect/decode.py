"""Changes as an Arrow table: the form in which answers leave."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kasen.operators.batch import I64, Batch, unpack_sub
from kasen.operators.dictionary import Dictionary
from kasen.types import BIGINT, Kind, Schema, Type, to_arrow

#: The columns before a query's own.
INSTANT_AND_DIFF = ("ts", "seq", "tick", "diff")


def output_schema(schema: Schema, time: Type) -> pa.Schema:
    """ts, seq, tick, diff, and the query's columns. Its names may repeat, and may be any of those four."""
    types = [time, BIGINT, BIGINT, BIGINT, *schema.types]
    names = [*INSTANT_AND_DIFF, *schema.names]
    return pa.schema([pa.field(name, to_arrow(type_)) for name, type_ in zip(names, types, strict=True)])


def decode(batch: Batch, schema: Schema, dictionary: Dictionary, time: Type) -> pa.Table:
    """The batch's changes, in its order, with output_schema's columns."""
    seq, tick = unpack_sub(batch.sub)
    columns = [_column(batch.ts, None, time, dictionary)]
    columns += [pa.array(numbers, pa.int64()) for numbers in (seq, tick, batch.diff)]
    for index, field in enumerate(schema):
        nulls = (batch.nulls >> index & 1).astype(np.bool_)
        columns.append(_column(batch.data[index], nulls if nulls.any() else None, field.type, dictionary))
    return pa.Table.from_arrays(columns, schema=output_schema(schema, time))


def _column(
    values: I64, nulls: npt.NDArray[np.bool_] | None, type_: Type, dictionary: Dictionary
) -> pa.Array:
    match type_.kind:
        case Kind.VARCHAR:
            return _texts(values, nulls, dictionary)
        case Kind.DECIMAL:
            return _decimals(values, nulls, type_)
        case Kind.DOUBLE:
            # from_pandas would take NaN for NULL.
            return pa.array(values.view(np.float64), pa.float64(), mask=nulls, from_pandas=False)
        case Kind.BOOLEAN:
            return pa.array(values.astype(np.bool_), pa.bool_(), mask=nulls)
        case Kind.INTEGER:
            return pa.array(values.astype(np.int32), pa.int32(), mask=nulls)
        case Kind.TIMESTAMP:
            return pa.array(values, pa.int64(), mask=nulls).cast(pa.timestamp("us"))
    return pa.array(values, pa.int64(), mask=nulls)


def _texts(values: I64, nulls: npt.NDArray[np.bool_] | None, dictionary: Dictionary) -> pa.StringArray:
    """Each distinct text is made an Arrow string once."""
    codes = values if nulls is None else values[~nulls]
    distinct, positions = np.unique(codes, return_inverse=True)
    texts = pa.array(dictionary.decode(distinct), pa.string())
    indices = positions.astype(np.int64)
    if nulls is None:
        return texts.take(pa.array(indices))
    spread = np.zeros(len(values), np.int64)
    spread[~nulls] = indices
    return texts.take(pa.array(spread, mask=nulls))


def _decimals(values: I64, nulls: npt.NDArray[np.bool_] | None, type_: Type) -> pa.Decimal128Array:
    """Arrow's decimals are 128 bits: the number, and a word of its sign."""
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = values
    words[:, 1] = values >> 63
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(to_arrow(type_), len(values), [valid, pa.py_buffer(words)])
