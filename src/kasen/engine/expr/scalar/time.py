"""EXTRACT and DATE_TRUNC."""

from __future__ import annotations

from kasen.engine.expr.kernels import calendar
from kasen.engine.expr.scalar.lift import checked_unary, unary_kernel
from kasen.engine.expr.vector import INT, Operation
from kasen.engine.failures import Failures

_PARTS = {
    "year": calendar.YEAR,
    "month": calendar.MONTH,
    "day": calendar.DAY,
    "hour": calendar.HOUR,
    "minute": calendar.MINUTE,
    "second": calendar.SECOND,
    "microsecond": calendar.MICROSECOND,
    "dow": calendar.DOW,
    "epoch": calendar.EPOCH,
}


def extract(field: str) -> Operation:
    """One part of a timestamp; DOW counts from Sunday, 0; EPOCH is whole seconds since 1970."""
    return unary_kernel(calendar.extract, INT, _PARTS[field])


def date_trunc(unit: str, failures: Failures) -> Operation:
    """The beginning of the timestamp's year, month, day, hour, minute or second."""
    return checked_unary(calendar.truncate, INT, failures, _PARTS[unit])
