"""The calendar: parts of timestamps (µs since 1970, proleptic Gregorian, any int64)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: What `extract` takes and `truncate` cuts to.
YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, MICROSECOND, DOW, EPOCH = range(9)

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_LARGEST = 2**63 - 1

# Days are counted in eras of 400 years that start on a first of March, so that the leap day comes last.
_DAYS_OF_ERA = 146_097
_MARCH_0_TO_1970 = 719_468


@njit("UniTuple(int64, 3)(int64)", cache=True, nogil=True, error_model="numpy")
def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the day that is `days` after 1970-01-01."""
    shifted = days + _MARCH_0_TO_1970
    era = shifted // _DAYS_OF_ERA
    day_of_era = shifted - era * _DAYS_OF_ERA
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month, day


@njit("int64(int64, int64)", cache=True, nogil=True, error_model="numpy")
def month_start(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of the month."""
    year -= 1 if month <= 2 else 0
    era = year // 400
    year_of_era = year - era * 400
    from_march = month - 3 if month > 2 else month + 9
    day_of_year = (153 * from_march + 2) // 5
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_OF_ERA + day_of_era - _MARCH_0_TO_1970


@njit("void(int64[::1], int64, int64[::1])", cache=True, nogil=True, error_model="numpy")
def extract(ts: I64, part: int, out: I64) -> None:
    """One part of each timestamp. Divisions round down, so parts count forward before 1970 too."""
    for i in range(len(out)):
        t = ts[i]
        if part <= DAY:
            out[i] = civil(t // _DAY)[part]
        elif part == HOUR:
            out[i] = t // _HOUR % 24
        elif part == MINUTE:
            out[i] = t // _MINUTE % 60
        elif part == SECOND:
            out[i] = t // _SECOND % 60
        elif part == MICROSECOND:
            out[i] = t % _SECOND
        elif part == DOW:
            out[i] = (t // _DAY + 4) % 7  # 1970-01-01 was a Thursday
        else:
            out[i] = t // _SECOND


@njit("int64(int64[::1], int64, int64[::1], boolean[::1])", cache=True, nogil=True, error_model="numpy")
def truncate(ts: I64, unit: int, out: I64, failed: Mask) -> int:
    """The beginning of each timestamp's year ... second; fails if that is before the least timestamp."""
    length = _DAY
    if unit >= HOUR:
        length = _HOUR if unit == HOUR else (_MINUTE if unit == MINUTE else _SECOND)
    least = -(_LARGEST // length)
    failures = 0
    for i in range(len(out)):
        begin = ts[i] // length
        if unit == YEAR:
            begin = month_start(civil(begin)[0], 1)
        elif unit == MONTH:
            year, month, _ = civil(begin)
            begin = month_start(year, month)
        failed[i] = begin < least
        out[i] = 0 if failed[i] else begin * length
        failures += failed[i]
    return failures
