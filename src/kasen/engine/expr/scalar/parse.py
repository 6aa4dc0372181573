"""Texts to values and back: what CAST from and to VARCHAR means.

Blanks (U+0020) around a text do not count. A value comes as the engine holds it: a DECIMAL scaled to an
integer, a TIMESTAMP as µs since 1970. None: the text does not stand for a value of the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from kasen.types import Kind, Type

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
# Possessive (++, *+): trying every way to cut a row of digits in two takes the square of its length.
_DOUBLE = re.compile(r"[+-]?(([0-9]++\.?[0-9]*+|\.[0-9]++)(e[+-]?[0-9]++)?|nan|inf|infinity)", re.IGNORECASE)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_BOOLEANS = {"true": 1, "t": 1, "1": 1, "false": 0, "f": 0, "0": 0}
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def parser(type_: Type) -> Callable[[str], int | float | None]:
    """Reads texts as values of the type."""
    match type_.kind:
        case Kind.INTEGER:
            return lambda text: _integer(text.strip(" "), 31)
        case Kind.BIGINT:
            return lambda text: _integer(text.strip(" "), 63)
        case Kind.DECIMAL:
            return lambda text: _decimal(text.strip(" "), type_)
        case Kind.DOUBLE:
            return lambda text: _double(text.strip(" "))
        case Kind.BOOLEAN:
            return lambda text: _BOOLEANS.get(text.strip(" ").lower())
        case Kind.TIMESTAMP:
            return lambda text: _timestamp(text.strip(" "))
    raise AssertionError(f"no text stands for a {type_}")


def _integer(text: str, bits: int) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-0")
    if len(digits) > 19:  # Python refuses to read very long numbers
        return None
    value = -int(digits or "0") if text[0] == "-" else int(digits or "0")
    return value if -(1 << bits) <= value < 1 << bits else None


def _decimal(text: str, type_: Type) -> int | None:
    """Digits with an optional point; rounded half away from zero."""
    found = _DECIMAL.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        return None
    fraction = (found[3] or "").ljust(type_.scale + 1, "0")
    digits = (found[2] + fraction[: type_.scale]).lstrip("0")
    if len(digits) > type_.precision:
        return None
    value = int(digits or "0") + (fraction[type_.scale] >= "5")
    if value >= 10**type_.precision:
        return None
    return -value if found[1] == "-" else value


def _double(text: str) -> float | None:
    return float(text) if _DOUBLE.fullmatch(text) else None


def _timestamp(text: str) -> int | None:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    return (moment - _EPOCH) // _MICROSECOND + int((found[7] or "").ljust(6, "0"))


def printer(type_: Type) -> Callable[[int], str | None]:
    """Writes values of the type as texts; None if there is no such text."""
    if type_.kind is Kind.TIMESTAMP:
        return timestamp_text
    if type_.kind is Kind.DECIMAL and type_.scale:
        return lambda value: decimal_text(value, type_.scale)
    return str


def decimal_text(value: int, scale: int) -> str:
    """Plain, with all digits of its scale."""
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def timestamp_text(micros: int) -> str | None:
    """'YYYY-MM-DD HH:MM:SS', and '.ffffff' if that is not zero; None beyond the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(" ")
    except OverflowError:
        return None
