"""What a text means as a value of a CQL type, and how a value is written as a text.

This is the one place that says so for CAST, quoted constants and cells of files. Kernels
(engine/text/kernels/cell_values) read the plain spellings in bulk, and leave every text that they are not
sure of to this module.

A value is what the engine holds: a DECIMAL scaled to an integer, a TIMESTAMP as µs since 1970, a DOUBLE as a
float. Blanks (U+0020) around a text do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from kasen.types import Kind, Type

# Possessive (++, *+): trying every way to cut a row of digits in two takes the square of its length.
INTEGER = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]*+)")
DECIMAL = re.compile(r"([+-]?)(?:(?=[0-9])0*+([0-9]*+)(?:\.([0-9]*+))?|\.([0-9]++))")
_DOUBLE = re.compile(r"[+-]?(([0-9]++\.?[0-9]*+|\.[0-9]++)(e[+-]?[0-9]++)?|nan|inf(inity)?)", re.IGNORECASE)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_BOOLEANS = {"true": 1, "t": 1, "1": 1, "false": 0, "f": 0, "0": 0}
_LIMITS = {Kind.INTEGER: 2**31, Kind.BIGINT: 2**63}
#: No number that fits has more digits before its point; and Python refuses to read very long ones.
_MOST_DIGITS = 19
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def parse_text(text: str, type_: Type) -> int | float | None:
    """The value that the text stands for; None if it stands for none. Not for VARCHAR."""
    return _PARSERS[type_.kind](text.strip(" "), type_)


def _integer(text: str, type_: Type) -> int | None:
    found = INTEGER.fullmatch(text)
    if found is None or len(found[2]) > _MOST_DIGITS:
        return None
    value, limit = int(found[1] + (found[2] or "0")), _LIMITS[type_.kind]
    return value if -limit <= value < limit else None


def _decimal(text: str, type_: Type) -> int | None:
    """Digits with an optional point; rounded half away from zero."""
    found = DECIMAL.fullmatch(text)
    if found is None or len(found[2] or "") > _MOST_DIGITS:
        return None
    whole, fraction = found[2] or "", found[3] or found[4] or ""
    # The first digit that is cut off decides, whatever follows it.
    value = int(whole + fraction[: type_.scale].ljust(type_.scale, "0") or "0")
    value += fraction[type_.scale : type_.scale + 1] >= "5"
    if value >= 10**type_.precision:
        return None
    return -value if found[1] == "-" else value


def _double(text: str, _: Type) -> float | None:
    return float(text) if _DOUBLE.fullmatch(text) else None


def _boolean(text: str, _: Type) -> int | None:
    return _BOOLEANS.get(text.lower())


def _timestamp(text: str, _: Type) -> int | None:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    micros = int((found[7] or "").ljust(6, "0"))
    try:
        return (datetime(year, month, day, hour, minute, second, micros) - _EPOCH) // _MICROSECOND
    except ValueError:
        return None


_PARSERS: dict[Kind, Callable[[str, Type], int | float | None]] = {
    Kind.INTEGER: _integer,
    Kind.BIGINT: _integer,
    Kind.DECIMAL: _decimal,
    Kind.DOUBLE: _double,
    Kind.BOOLEAN: _boolean,
    Kind.TIMESTAMP: _timestamp,
}


def printer(type_: Type) -> Callable[[int], str | None]:
    """Writes values of the type as texts; None if there is no such text."""
    if type_.kind is Kind.TIMESTAMP:
        return timestamp_text
    if type_.kind is Kind.DECIMAL and type_.scale:
        return lambda value: _decimal_text(value, type_.scale)
    return str


def _decimal_text(value: int, scale: int) -> str:
    """Plain, with all digits of its scale."""
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def timestamp_text(micros: int) -> str | None:
    """'YYYY-MM-DD HH:MM:SS', and '.ffffff' if that is not zero; None beyond the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(" ")
    except OverflowError:
        return None
