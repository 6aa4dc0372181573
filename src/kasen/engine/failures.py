"""Counts expressions that fail: division by zero, overflow, a cast that does not fit. They give NULL.

What counts is a matter of the row alone, never of the batch it comes in. An operation fails once for each
row that enters (a row that leaves failed when it entered), if SQL needs its result:
- of CASE, the conditions up to the first TRUE one, and the value chosen;
- of AND, the arguments up to the first FALSE one; of OR, up to the first TRUE one;
- of COALESCE, the arguments up to the first that is not NULL;
- of a condition's top-level AND (WHERE a AND b is two filters), the arguments up to the first not TRUE.
So `b <> 0 AND a / b > 1` never fails, as its author meant.
"""

from __future__ import annotations

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.expr.vector import Mask, Nulls, either

_ALL_ENTER = np.ones(1, np.int64)
_MOST_NOTES = 10
_MOST_SHOWN = 1000


class Failures:
    """A query's failures so far.

    While an expression runs, `diff` is its batch's, and `guard` (if any) is set for the rows whose result
    is needed.
    """

    __slots__ = ("count", "diff", "guard", "notes")

    def __init__(self) -> None:
        self.count = 0
        self.diff: I64 = _ALL_ENTER
        self.guard: Nulls = None
        #: What user-defined aggregates said when they failed, the first few different messages.
        self.notes: dict[str, None] = {}

    def note(self, message: str) -> None:
        """Counts a failure of user code: one for each answer that it makes NULL."""
        self.count += 1
        if len(self.notes) < _MOST_NOTES:
            self.notes[message if len(message) <= _MOST_SHOWN else message[:_MOST_SHOWN] + "..."] = None

    def null(self, failed: Mask, nulls: Nulls) -> Nulls:
        """Counts the rows that failed, and makes them NULL beside those that already are."""
        new = failed if nulls is None else failed & ~nulls
        needed = new if self.guard is None else new & self.guard
        self.count += int(np.where(needed, np.maximum(self.diff, 0), 0).sum())
        return either(failed, nulls)

    def begin(self, diff: I64) -> None:
        self.diff = diff

    def end(self) -> None:
        """Lets go of the batch."""
        self.diff = _ALL_ENTER

    def need(self, rows: Mask) -> Nulls:
        """From here on only these rows' results are needed, of those that were; returns the guard before."""
        before = self.guard
        self.guard = rows if before is None else before & rows
        return before
