"""Values as the definitions see them: how text becomes a value, and how values compare.

A row is a tuple of Python values. TIMESTAMPs are int (µs since 1970), DECIMALs are Decimal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal

from kasen.cql.expr import Value
from kasen.types import MAX_DECIMAL_DIGITS, Kind, Type

Row = tuple[Value, ...]
Key = tuple[tuple[object, ...], ...]

# Enough digits that nothing here is ever rounded by accident (a double has at most 1075).
EXACT = Context(prec=2000)
#: The longest text, unless SET max_text_bytes says otherwise.
DEFAULT_MAX_TEXT_BYTES = 1 << 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_BITS = {Kind.INTEGER: 32, Kind.BIGINT: 64}


# ---------------------------------------------------------------- text -> value


def parse(text: str, type_: Type) -> Value:
    """The value that `text` stands for; ValueError if it stands for none. Blanks around it do not count."""
    if type_.kind is Kind.VARCHAR:
        return text
    text = text.strip(" ")
    match type_.kind:
        case Kind.INTEGER | Kind.BIGINT:
            _need(_INTEGER.fullmatch(text))
            return integer(int(text), type_)
        case Kind.DECIMAL:
            _need(_DECIMAL.fullmatch(text))
            return decimal(Decimal(text), type_)
        case Kind.DOUBLE:
            _need(_DOUBLE.fullmatch(text))
            return canonical(float(text))
        case Kind.BOOLEAN:
            _need(text.lower() in _BOOLEANS)
            return _BOOLEANS[text.lower()]
        case Kind.TIMESTAMP:
            return timestamp(text)
    raise ValueError(f"no column has the type {type_}")


def _need(condition: object) -> None:
    if not condition:
        raise ValueError("the text does not stand for a value of the type")


def integer(value: int, type_: Type) -> int:
    """Integers are range-checked."""
    limit = 1 << (_BITS[type_.kind] - 1)
    _need(-limit <= value < limit)
    return value


def decimal(value: Decimal, type_: Type) -> Decimal:
    """DECIMAL(p, s): rounded half away from zero to s digits; at most p digits in all."""
    _need(value.is_finite() and value.adjusted() < MAX_DECIMAL_DIGITS)
    rounded = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, EXACT)
    _need(abs(rounded).scaleb(type_.scale, EXACT) < 10**type_.precision)
    return abs(rounded) if rounded == 0 else rounded


def timestamp(text: str) -> int:
    """'YYYY-MM-DD[ T]HH:MM:SS[.ffffff]', or the date alone, as µs since 1970."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("not a timestamp")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    micros = int((found[7] or "").ljust(6, "0"))
    moment = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


# ---------------------------------------------------------------- value -> text


def timestamp_text(micros: int) -> str:
    """'YYYY-MM-DD HH:MM:SS', and '.ffffff' only if it is not zero."""
    moment = EPOCH + timedelta(microseconds=micros)
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    date = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{date} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}{fraction}"


def text(value: Value, type_: Type) -> str:
    """A value as a csv cell: NULL is empty, the empty string is '""'."""
    value = canonical(value)
    if value is None:
        return ""
    if type_.kind is Kind.TIMESTAMP and isinstance(value, int):
        return timestamp_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str) and (value == "" or re.search(r'[,"\r\n]|^ | $', value)):
        return '"' + value.replace('"', '""') + '"'
    return str(value)


# ---------------------------------------------------------------- rounding


def half_away(value: float) -> int:
    """The nearest integer, halves away from zero."""
    return int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP, EXACT))


def toward_zero(value: Decimal) -> int:
    return int(value.quantize(Decimal(1), ROUND_DOWN, EXACT))


# ---------------------------------------------------------------- comparing


def canonical(value: Value) -> Value:
    """One NaN and one zero: which of the equal ones a row carries must never show."""
    if isinstance(value, float):
        if math.isnan(value):
            return math.nan
        return value + 0.0  # -0.0 + 0.0 is 0.0
    return value


def canonical_row(row: Iterable[Value]) -> Row:
    return tuple(canonical(value) for value in row)


def order_key(row: Iterable[Value]) -> Key:
    """Value order: schema order, NULL first, binary string order, NaN greatest, -0.0 = 0.0, false < true.

    Equal rows, in the sense of DISTINCT, are those with equal keys.
    """
    return tuple(_value_key(value) for value in row)


def _value_key(value: Value) -> tuple[object, ...]:
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (1, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, float):
        return (1, 1, 0.0) if math.isnan(value) else (1, 0, value)
    return (1, value)


def in_value_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=order_key)


def bag_difference(left: Iterable[Row], right: Iterable[Row]) -> list[Row]:
    """`left` minus `right` as bags (EXCEPT ALL), in value order."""
    spare = Counter(order_key(row) for row in right)
    rest = []
    for row in in_value_order(left):
        key = order_key(row)
        if spare[key]:
            spare[key] -= 1
        else:
            rest.append(row)
    return rest
