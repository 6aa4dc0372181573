"""The times that rows may have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64
from kasen.engine.kernels.instants import all_within
from kasen.runtime.input.feed import InputRows

#: Times lie strictly between -MOST_TIME and MOST_TIME, as lengths do, so that their sums never overflow.
MOST_TIME = 2**62
#: Why a row whose time is outside is refused.
BEYOND = "bad timestamp: beyond what windows and delays can be added to"


def is_beyond(ts: I64) -> npt.NDArray[np.bool_]:
    """Which times are out of range."""
    return (ts >= MOST_TIME) | (ts <= -MOST_TIME)


def are_within(rows: InputRows) -> bool:
    """Whether all times are in range."""
    ts = rows.ts
    if len(ts) and rows.ascends:
        return ts.item(0) > -MOST_TIME and ts.item(-1) < MOST_TIME
    return bool(all_within(ts, MOST_TIME))


def within(rows: InputRows) -> InputRows:
    """The rows whose times are in range."""
    return rows if are_within(rows) else rows.take(~is_beyond(rows.ts))
