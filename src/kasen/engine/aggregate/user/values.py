"""Values of batches as Python has them, and back: what user code sees."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

Reader = Callable[[int], object]
Writer = Callable[[object], int]

_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_NAN = 0x7FF8 << 48
_EXACT = Context(prec=60)


def reader(type_: Type, dictionary: Dictionary) -> Reader:
    """Makes of a word of a batch the value that it stands for."""
    match type_.kind:
        case Kind.BOOLEAN:
            return bool
        case Kind.DOUBLE:
            return lambda word: struct.unpack("<d", struct.pack("<q", word))[0]
        case Kind.DECIMAL:
            return lambda word: Decimal(word).scaleb(-type_.scale, _EXACT)
        case Kind.VARCHAR:
            return lambda word: dictionary.text(word)
        case Kind.TIMESTAMP:
            return lambda word: _EPOCH + word * _MICRO
    return int


def writer(type_: Type, dictionary: Dictionary) -> Writer:
    """Makes of a value the word that stands for it; a TypeError or ValueError if it is not of the type."""

    def integer(value: object) -> int:
        most = 2 ** (31 if type_.kind is Kind.INTEGER else 63)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(value, type_)
        if not -most <= value < most:
            raise ValueError(f"{value} does not fit into {type_}")
        return value

    def boolean(value: object) -> int:
        if not isinstance(value, bool):
            raise _wrong(value, type_)
        return int(value)

    def double(value: object) -> int:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong(value, type_)
        number = float(value)
        return _NAN if math.isnan(number) else int(struct.unpack("<q", struct.pack("<d", number + 0.0))[0])

    def decimal(value: object) -> int:
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise _wrong(value, type_)
        try:
            scaled = int(
                Decimal(value).scaleb(type_.scale, _EXACT).quantize(Decimal(1), ROUND_HALF_UP, _EXACT)
            )
        except (InvalidOperation, OverflowError):
            raise ValueError(f"{value} does not fit into {type_}") from None
        if abs(scaled) >= 10**type_.precision:
            raise ValueError(f"{value} does not fit into {type_}")
        return scaled

    def text(value: object) -> int:
        if not isinstance(value, str):
            raise _wrong(value, type_)
        size = len(value.encode())  # a lone surrogate is no text
        if size > dictionary.max_text_bytes:
            raise ValueError(f"{size} bytes; a text has at most {dictionary.max_text_bytes}")
        return dictionary.code(value)

    def timestamp(value: object) -> int:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise _wrong(value, type_)
        return (value - _EPOCH) // _MICRO

    writers = {
        Kind.BOOLEAN: boolean,
        Kind.DOUBLE: double,
        Kind.DECIMAL: decimal,
        Kind.VARCHAR: text,
        Kind.TIMESTAMP: timestamp,
    }
    return writers.get(type_.kind, integer)


def _wrong(value: object, type_: Type) -> TypeError:
    return TypeError(f"{value!r} ({type(value).__name__}) is no {type_}")


def order(value: object) -> object:
    """A key that sorts values of one type as CQL does."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value
