"""Arrow columns of any type to columns of values: what Parquet files and pushed batches hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from kasen.connect.draft import Draft
from kasen.connect.layout import ColumnPositions, Layout
from kasen.connect.text.columns import TextCells, read_column
from kasen.engine.batch import I64, double_bits
from kasen.engine.text.kernels.marks import NULL, TEXT
from kasen.errors import DataError
from kasen.types import BIGINT, Kind, Type

Flags = npt.NDArray[np.bool_]

#: Whole numbers up to here are exact as doubles.
_EXACT = 2.0**53
_MICROS = {"d": 86_400 * 10**6, "s": 10**6, "ms": 10**3, "us": 1}
#: Of these every value is right, and lies in memory as a column has it.
_AS_THEY_LIE = {Kind.BIGINT: (pa.int64(),), Kind.TIMESTAMP: (pa.timestamp("us"), pa.int64())}
#: Of these every value is right, and only wider as a column has it.
_NARROW = (pa.int8(), pa.int16(), pa.int32())
_DATE_UNITS = {pa.date32(): "d", pa.date64(): "ms"}


def fits(arrow: pa.DataType, type_: Type) -> bool:
    """Whether values of an Arrow type may be values of a CQL type; for some values it may still fail."""
    if pat.is_dictionary(arrow):
        return not pat.is_dictionary(arrow.value_type) and fits(arrow.value_type, type_)
    if pat.is_null(arrow) or is_text(arrow):
        return True
    if pat.is_boolean(arrow):
        return type_.kind is Kind.BOOLEAN
    if pat.is_integer(arrow):
        return type_.is_numeric or type_.kind is Kind.TIMESTAMP
    if pat.is_floating(arrow) or pat.is_decimal(arrow):
        return type_.is_numeric
    return (pat.is_timestamp(arrow) or pat.is_date(arrow)) and type_.kind is Kind.TIMESTAMP


def check_types(layout: Layout, found: ColumnPositions, schema: pa.Schema, file: str) -> None:
    """DataError if a column can never be read as its declared type."""
    wanted = [(index, field.type) for index, field in zip(found.columns, layout.schema, strict=True)]
    if found.diff is not None:
        wanted.append((found.diff, BIGINT))
    for index, type_ in wanted:
        arrow = schema.field(index).type
        if not fits(arrow, type_):
            name = schema.field(index).name
            raise DataError(
                f"{layout.name}: column {name!r} of {file} is {arrow}, which no {type_} is read from"
            )


def read_batch(draft: Draft, batch: pa.RecordBatch, found: ColumnPositions) -> None:
    """Reads all columns of the draft from the batch."""
    for index, column in enumerate(found.columns):
        read_array(draft, index, batch.column(column))
    if found.diff is not None:
        values, nulls = _numbers(draft, batch.column(found.diff), BIGINT)
        draft.diff = values
        draft.diff[nulls] = 0
        draft.check_diff()


def read_array(draft: Draft, index: int, array: pa.Array) -> None:
    """Reads one column; values that are not surely of its type make their rows unsure."""
    type_ = draft.layout.schema[index].type
    if pat.is_dictionary(array.type):
        _check_indices(draft, index, array)
        if type_.kind is Kind.VARCHAR and is_text(array.type.value_type):
            _check_texts(draft, index, array.dictionary)
            draft.set_texts(index, array)
            return
        array = array.dictionary_decode()
    if pat.is_null(array.type):
        array = array.cast(pa.string())
    if is_text(array.type):
        _check_texts(draft, index, array)  # before the cast, which trusts offsets and views
        _read_texts(draft, index, array.cast(pa.string()))
        return
    if array.type in _AS_THEY_LIE.get(type_.kind, ()) and not array.null_count:
        draft.data[index] = _lent(array) if draft.lend else fixed_values(array).copy()
        return
    if type_.is_integer and array.type in _NARROW and not array.null_count:
        draft.data[index] = fixed_values(array).astype(np.int64)
        return
    values, nulls = _numbers(draft, array, type_)
    draft.data[index] = values
    draft.set_nulls(index, nulls)


def cells_of(batch: pa.RecordBatch, names: Sequence[str], row: int) -> Mapping[str, object]:
    """A row as Python values, by name in lower case."""
    return {name.lower(): _plain(column[row]) for name, column in zip(names, batch.columns, strict=True)}


def _plain(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # a time that Python's calendar does not have
        return scalar.cast(pa.string()).as_py()
    except LookupError:  # a time zone that nobody knows: values are in UTC anyway
        return _plain(scalar.cast(pa.timestamp(scalar.type.unit)))


def is_text(arrow: pa.DataType) -> bool:
    return bool(pat.is_string(arrow) or pat.is_large_string(arrow) or pat.is_string_view(arrow))


def _check_indices(draft: Draft, index: int, array: pa.DictionaryArray) -> None:
    """Arrow's own programs trust indices, and read whatever lies there."""
    bounds = pc.min_max(array.indices).as_py()
    least, greatest, count = bounds["min"], bounds["max"], len(array.dictionary)
    if least is not None and (least < 0 or greatest >= count):
        wrong = least if least < 0 else greatest
        name = draft.layout.schema[index].name
        raise DataError(
            f"{draft.layout.name}: column {name!r} has index {wrong} into a dictionary of {count}"
        )


def _check_texts(draft: Draft, index: int, array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowException:
        name = draft.layout.schema[index].name
        raise DataError(f"{draft.layout.name}: column {name!r} has text that is not UTF-8") from None


def _read_texts(draft: Draft, index: int, array: pa.StringArray) -> None:
    if draft.layout.schema[index].type.kind is Kind.VARCHAR:
        draft.set_texts(index, array)
        return
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    marks = np.where(null_flags(array), NULL, TEXT).astype(np.uint8)
    read_column(draft, index, TextCells(text, bounds[:-1].copy(), bounds[1:].copy(), marks))


def null_flags(array: pa.Array) -> Flags:
    """Which values of an array are NULL."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    if pat.is_null(array.type):
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    flags: Flags = bits[array.offset : array.offset + len(array)] == 0
    return flags


def fixed_values(array: pa.Array) -> npt.NDArray[Any]:
    """The values of an array of fixed width as they lie in memory; those of NULLs may be anything.

    Small batches are why this does not ask Arrow for a numpy array, which takes many times as long.
    """
    data = array.buffers()[1]
    span = slice(array.offset, array.offset + len(array))
    if pat.is_boolean(array.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[span]
    if pat.is_decimal128(array.type):
        return np.frombuffer(data, np.int64).reshape(-1, 2)[span]
    if pat.is_temporal(array.type):
        return np.frombuffer(data, f"i{array.type.bit_width // 8}")[span]
    return np.frombuffer(data, array.type.to_pandas_dtype())[span]


class _Lender:
    """Memory of an Arrow array as numpy sees it; whoever holds the numpy array holds the memory.

    Arrow marks its memory as not to be written, and kernels take no such arrays, although they never write to
    a batch. So it is not marked here.
    """

    __slots__ = ("__array_interface__", "_buffer")

    def __init__(self, buffer: pa.Buffer, first: int, count: int) -> None:
        self._buffer = buffer
        place = buffer.address + 8 * first, False
        self.__array_interface__ = {"version": 3, "data": place, "shape": (count,), "typestr": "<i8"}


def _lent(array: pa.Array) -> I64:
    """The array's numbers of 64 bits where they lie."""
    values: I64 = np.asarray(_Lender(array.buffers()[1], array.offset, len(array)))
    return values


def _numbers(draft: Draft, array: pa.Array, type_: Type) -> tuple[I64, Flags]:
    """The values, 0 where they are NULL, and which are NULL."""
    nulls = null_flags(array)
    arrow = array.type
    if pat.is_floating(arrow):
        values, doubt = _from_floats(array, type_)
    elif pat.is_decimal(arrow):
        values, doubt = _from_decimals(array, type_)
    elif pat.is_timestamp(arrow) or pat.is_date(arrow):
        values, doubt = _from_times(array)
    else:
        values, doubt = _from_integers(array, type_)
    values[nulls] = 0
    draft.unsure |= doubt & ~nulls
    return values, nulls


def _from_integers(array: pa.Array, type_: Type) -> tuple[I64, Flags]:
    values = fixed_values(array).astype(np.int64)
    # Only unsigned numbers beyond the signed ones can have changed their sign.
    doubt = values < 0 if pat.is_unsigned_integer(array.type) else np.zeros(len(values), np.bool_)
    if type_.kind is Kind.DOUBLE:
        return double_bits(values.astype(np.float64)), doubt
    if type_.kind is Kind.INTEGER:
        doubt |= (values < -(2**31)) | (values >= 2**31)
    if type_.kind is Kind.DECIMAL:
        limit = 10 ** (type_.precision - type_.scale)
        doubt |= (values <= -limit) | (values >= limit)
        values[doubt] = 0
        values *= 10**type_.scale
    return values, doubt


def _from_floats(array: pa.Array, type_: Type) -> tuple[I64, Flags]:
    floats = fixed_values(array).astype(np.float64)
    if type_.kind is Kind.DOUBLE:
        return double_bits(floats), np.zeros(len(floats), np.bool_)
    limit = float(2**31) if type_.kind is Kind.INTEGER else _EXACT
    whole = (np.abs(floats) < limit) & (np.floor(floats) == floats) & type_.is_integer
    return np.where(whole, floats, 0.0).astype(np.int64), ~whole


def _from_decimals(array: pa.Array, type_: Type) -> tuple[I64, Flags]:
    """Only decimals of the very scale are read in bulk."""
    n = len(array)
    if type_.kind is not Kind.DECIMAL or not pat.is_decimal128(array.type) or array.type.scale != type_.scale:
        return np.zeros(n, np.int64), np.ones(n, np.bool_)
    words = fixed_values(array)
    values, high = words[:, 0].copy(), words[:, 1]
    limit = 10**type_.precision
    doubt = (high != values >> 63) | (values <= -limit) | (values >= limit)
    return values, doubt


def _from_times(array: pa.Array) -> tuple[I64, Flags]:
    """µs; of a finer time the µs that it lies in. A time with a zone is taken in UTC."""
    counts = fixed_values(array).astype(np.int64)
    unit = _DATE_UNITS.get(array.type) or array.type.unit
    if unit == "ns":
        return counts // 1000, np.zeros(len(counts), np.bool_)
    factor = _MICROS[unit]
    limit = (2**63 - 1) // factor
    doubt = (counts > limit) | (counts < -limit)
    counts[doubt] = 0
    return counts * factor, doubt
