"""The meaning of cells: what a text (see text_values) or a Python value is as a value of a CQL type.

These functions are the rule. Kernels and Arrow read whole columns where they are sure to come to the same,
and leave every other row to these. Values are encoded as in a batch (DECIMAL scaled, DOUBLE as its bits,
TIMESTAMP in µs), but VARCHAR is still a str.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from kasen.connect.layout import Layout
from kasen.text_values import parse_text
from kasen.types import BIGINT, Kind, Type, byte_length

Value = int | str | None

BAD_ROW = "bad row"
BAD_VALUE = "bad value"
BAD_TIMESTAMP = "bad timestamp"
BAD_DIFF = "bad diff"

LOWEST, GREATEST = -(2**63), 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAN = 0x7FF8000000000000
#: More than any DECIMAL needs. Quantizing rounds only the result, never the operand.
_DIGITS = Context(prec=64)
_SHOWN = 100


class RefusedRow(Exception):
    """A row that goes to the dead letter; the text is the reason."""


def read_row(layout: Layout, cells: Mapping[str, object]) -> tuple[list[Value], int]:
    """The row's values and its diff. `cells` is by column name in lower case; an absent cell is NULL."""
    values: list[Value] = []
    for index, (name, type_) in enumerate(layout.schema):
        cell = cells.get(name.lower())
        try:
            value = _value(cell, type_)
            if isinstance(value, str) and byte_length(value) > layout.max_text_bytes:
                most = f"is longer than {layout.max_text_bytes} bytes"
                raise RefusedRow(f"{BAD_VALUE}: column {name} {most}: {_shown(cell)}")
            values.append(value)
        except ValueError:
            phrase = BAD_TIMESTAMP if index == layout.timestamp else BAD_VALUE
            raise RefusedRow(f"{phrase}: column {name} is not {_article(type_)}: {_shown(cell)}") from None
    diff = _diff(layout, cells)
    if layout.timestamp is not None and values[layout.timestamp] is None:
        raise RefusedRow(f"{BAD_TIMESTAMP}: column {layout.schema[layout.timestamp].name} is NULL")
    return values, diff


def _diff(layout: Layout, cells: Mapping[str, object]) -> int:
    if layout.diff is None or layout.diff.lower() not in cells:
        return 1
    cell = cells[layout.diff.lower()]
    try:
        diff = _value(cell, BIGINT)
    except ValueError:
        diff = None
    if diff == 1 or diff == -1:
        return int(diff)
    raise RefusedRow(f"{BAD_DIFF}: column {layout.diff} is neither 1 nor -1: {_shown(cell)}")


def _value(cell: object, type_: Type) -> Value:
    """As from_cell; whatever a program's own class raises when it is asked for its value is a ValueError."""
    try:
        return from_cell(cell, type_)
    except Exception as error:
        raise ValueError(f"{type(cell).__name__} has no value") from error


def _article(type_: Type) -> str:
    return f"{'an' if type_.kind is Kind.INTEGER else 'a'} {type_}"


def _shown(cell: object) -> str:
    text = {None: "NULL", True: "true", False: "false"}.get(cell) if isinstance(cell, bool | None) else None
    text = cell_text(cell) if text is None else text
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def cell_text(cell: object) -> str:
    """A cell as people read it, or its type if it has no text.

    Numbers of thousands of digits and deeply nested lists have none, nor have objects that refuse to say it.
    """
    try:
        return str(cell)
    except Exception:
        return f"<{type(cell).__name__}>"


# ---------------------------------------------------------------- Python values


def from_cell(cell: object, type_: Type) -> Value:
    """A text, or a value of JSON or Python, as a value of the type; ValueError if it is none."""
    if cell is None:
        return None
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, str):
        return from_text(str.__str__(cell), type_)  # of a subclass, its characters
    if isinstance(cell, bool):
        _need(type_.kind is Kind.BOOLEAN)
        return int(cell)
    if isinstance(cell, int | float | Decimal):
        return _from_number(cell, type_)
    if isinstance(cell, date):
        _need(type_.kind is Kind.TIMESTAMP)
        return _from_date(cell)
    raise ValueError("a nested value")


def _from_number(cell: int | float | Decimal, type_: Type) -> int:
    if type_.kind is Kind.DOUBLE:
        return double_bits(_nearest(cell))
    exact = Decimal(cell)
    # What has a greater exponent fits no type, and would only take long to write out.
    _need(exact.is_finite() and exact.adjusted() < 20)
    if type_.kind is Kind.DECIMAL:
        return _scaled(exact, type_)
    _need(type_.is_integer or type_.kind is Kind.TIMESTAMP)
    _need(exact == exact.to_integral_value())
    limit = 2**31 if type_.kind is Kind.INTEGER else 2**63
    _need(-limit <= exact < limit)
    return int(exact)


def _nearest(cell: int | float | Decimal) -> float:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _scaled(exact: Decimal, type_: Type) -> int:
    """DECIMAL(p, s): rounded half away from zero to s digits; at most p digits in all."""
    rounded = exact.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, _DIGITS)
    scaled = int(rounded.scaleb(type_.scale, _DIGITS))
    _need(abs(scaled) < 10**type_.precision)
    return scaled


def _from_date(cell: date) -> int:
    """Times with a zone are taken in UTC; those without one as they are."""
    moment = cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day, tzinfo=UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


# ---------------------------------------------------------------- texts


def from_text(text: str, type_: Type) -> int | str:
    """The value that a text stands for, as in CAST; ValueError if it stands for none."""
    if type_.kind is Kind.VARCHAR:
        text.encode("utf-8")  # half of a surrogate pair is no character, and could never be written
        return text
    value = parse_text(text, type_)
    if value is None:
        raise ValueError("the text does not stand for a value of the type")
    return double_bits(value) if isinstance(value, float) else value


def _need(condition: bool) -> None:
    if not condition:
        raise ValueError("not a value of the type")


def double_bits(value: float) -> int:
    """As kasen.engine.batch.double_bits: one NaN, one zero."""
    if math.isnan(value):
        return _NAN
    bits: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return bits
