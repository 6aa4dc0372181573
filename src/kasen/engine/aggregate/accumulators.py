"""Which accumulators a list of aggregate calls needs, and where they lie in a group's record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from kasen.engine.aggregate.kernels import accumulate as parts
from kasen.engine.aggregate.kernels import candidates, render
from kasen.engine.batch import I64, ORDER_DOUBLE
from kasen.engine.kernels.groups import KEY, NULLS, ROWS

#: The span of sums of doubles to begin with: values from 2^-20 to 2^40 in full precision.
FIRST_SPAN = (-3, 4)

_VARIANCES = {  # degrees of freedom lost, whether to take the root
    "var_samp": (1, 0),
    "var_pop": (0, 0),
    "stddev_samp": (1, 1),
    "stddev_pop": (0, 1),
}
_STEPS = {parts.SUM_DOUBLE: 1, parts.SQUARE_DOUBLE: 2}  # words that a step of the span takes
_LEAST = ("min",)
_GREATEST = ("max", "window_start", "window_end")

#: Without an argument these are read from the first fixed words, two for each: whether it is known, and it.
WINDOW_BOUNDS = ("window_start", "window_end")


class DepartureOrder(Enum):
    """How the rows of a group leave it. Only if in any order do extremes need a tree of all values."""

    NEVER = "never"
    IN_ORDER = "in the order in which they came"
    ANY = "in any order"


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One call. `arg` is its input column, -1 for COUNT(*); `order` and `scale` are the argument's.

    `result` is 'bigint', 'double', 'decimal' or 'same' (as the argument); `parameter` a percentile's share.
    """

    function: str
    arg: int
    distinct: bool
    order: int
    scale: int
    result: str
    parameter: float | None


@dataclass(frozen=True, slots=True)
class WordSpan:
    """The words, `high` not included, that sums of doubles have."""

    low: int
    high: int

    def __or__(self, other: WordSpan) -> WordSpan:
        return WordSpan(min(self.low, other.low), max(self.high, other.high))

    @property
    def width(self) -> int:
        return self.high - self.low


def longer(pool: I64, more: int = 64) -> I64:
    """The pool with room for half as many rows again, and `more`: they are many and live long."""
    wide = np.zeros((len(pool) + len(pool) // 2 + more, pool.shape[1]), np.int64)
    wide[: len(pool)] = pool
    return wide


class RecordLayout:
    """A record: the group's fields and key, the values put out last, then the parts that calls share.

    The parts' words lie from `begin` to `width`. `fixed` words are left free in front of them.
    """

    def __init__(
        self,
        keys: int,
        calls: tuple[AggregateSpec, ...],
        leaving: DepartureOrder,
        span: WordSpan,
        fixed: int = 0,
    ) -> None:
        self.span = span
        self._leaving = leaving
        self._places: dict[tuple[int, int, int], int] = {}
        self._rows: list[list[int]] = []
        self.fixed = KEY + keys + len(calls)
        self.begin = self.width = self.fixed + fixed
        outs = [self._out(call) for call in calls]
        self.parts: I64 = np.array(self._rows, np.int64).reshape(-1, parts.PART)
        self.outs: I64 = np.array(outs, np.int64).reshape(-1, render.OUT)

    def count(self, *ops: int) -> int:
        """How many parts are of these kinds."""
        return int(np.isin(self.parts[:, parts.OP], ops).sum())

    def moved(self, records: I64, to: RecordLayout) -> I64:
        """The records in the layout of the same calls over a wider span."""
        old = records.reshape(-1, self.width)
        new = np.zeros((len(old), to.width), np.int64)
        new[:, : self.begin] = old[:, : self.begin]
        self.move_parts(old[:, self.begin :], to, new[:, to.begin :])
        return new.reshape(-1)

    def move_parts(self, old: I64, to: RecordLayout, new: I64) -> None:
        """Copies the parts' words, a row a group, to where the other layout has them."""
        for one, other in zip(self.parts.tolist(), to.parts.tolist(), strict=True):
            op = one[parts.OP]
            at, start = one[parts.AT] - self.begin, other[parts.AT] - to.begin
            size = self._size(op)
            counts = 3 if op == parts.SUM_DOUBLE else 0
            new[:, start : start + counts] = old[:, at : at + counts]
            start += counts + _STEPS.get(op, 0) * (self.span.low - to.span.low)
            new[:, start : start + size - counts] = old[:, at + counts : at + size]

    def regrouped(self, records: I64, keys: int, to: RecordLayout, places: tuple[int, ...]) -> I64:
        """The records, one after the other, in the layout of other calls, up to where its parts begin.

        `places` has of each call of `to` its place among the calls here; -1 is COUNT(*).
        """
        new = np.zeros((len(records), to.begin), np.int64)
        first = KEY + keys
        new[:, :first] = records[:, :first]
        new[:, NULLS] = 0
        for place, at in enumerate(places):
            new[:, first + place] = records[:, first + at] if at >= 0 else records[:, ROWS]
            if at >= 0:
                new[:, NULLS] |= (records[:, NULLS] >> at & 1) << place
        new[:, to.fixed :] = records[:, self.fixed : self.begin]
        return new

    def part_of(self, op: int, column: int) -> tuple[int, int]:
        """Where an ungated part begins, and how many words it has."""
        return self._rows[self._places[op, column, -1]][parts.AT], self._size(op)

    def _size(self, op: int) -> int:
        sizes = {
            parts.COUNT: 1,
            parts.SUM_INTEGER: 2,
            parts.SUM_DOUBLE: 3 + self.span.width,
            parts.SQUARE_INTEGER: 8,
            parts.SQUARE_DOUBLE: 2 * self.span.width,
            parts.LEAST: 2,
            parts.GREATEST: 2,
            parts.TREE: 2,
            parts.DISTINCT: 0,
            parts.FIRST_LEAST: candidates.WORDS,
            parts.FIRST_GREATEST: candidates.WORDS,
        }
        return sizes[op]

    def _part(self, op: int, column: int, gate: int = -1, order: int = 0) -> int:
        """The index of a part, made if there is none like it."""
        found = self._places.get((op, column, gate))
        if found is None:
            found = self._places[op, column, gate] = len(self._rows)
            self._rows.append([op, column, self.width, gate, self.span.low, self.span.width, order])
            self.width += self._size(op)
        return found

    def _at(self, op: int, column: int, gate: int = -1, order: int = 0) -> int:
        return self._rows[self._part(op, column, gate, order)][parts.AT]

    def _out(self, call: AggregateSpec) -> list[int]:
        """A row of `outs`, after making sure of the parts that it reads."""
        out = [0] * render.OUT
        out[render.OUT_LOW], out[render.OUT_WIDTH] = self.span.low, self.span.width
        out[render.SCALE] = call.scale
        out[render.DIGITS] = int(call.result == "decimal")
        if call.arg < 0 and call.function in WINDOW_BOUNDS:
            at = self.fixed + 2 * WINDOW_BOUNDS.index(call.function)
            out[render.HOW], out[render.OF_COUNT], out[render.OF_VALUE] = render.READ_EXTREME, at, at
            return out
        if call.arg < 0:
            assert call.function == "count", call
            out[render.HOW], out[render.OF_COUNT] = render.READ_COUNT, ROWS
            return out
        if call.function in _LEAST or call.function in _GREATEST:
            self._extreme(call, out)
            return out
        gate = self._part(parts.DISTINCT, call.arg) if call.distinct else -1
        out[render.OF_COUNT] = self._at(parts.COUNT, call.arg, gate)
        if call.function == "count":
            out[render.HOW] = render.READ_COUNT
        elif call.function in ("percentile_cont", "percentile_disc"):
            assert call.parameter is not None, call
            out[render.HOW] = render.READ_CONT if call.function == "percentile_cont" else render.READ_DISC
            out[render.OF_VALUE] = self._at(parts.TREE, call.arg, gate, call.order)
            out[render.SHARE] = int(np.float64(call.parameter).view(np.int64))
        else:
            self._sum(call, out, gate)
        return out

    def _extreme(self, call: AggregateSpec, out: list[int]) -> None:
        least = call.function in _LEAST
        if self._leaving is not DepartureOrder.ANY:
            if self._leaving is DepartureOrder.NEVER:
                op = parts.LEAST if least else parts.GREATEST
            else:
                op = parts.FIRST_LEAST if least else parts.FIRST_GREATEST
            at = self._at(op, call.arg, -1, call.order)
            out[render.HOW], out[render.OF_COUNT], out[render.OF_VALUE] = render.READ_EXTREME, at, at
            return
        out[render.HOW] = render.READ_LEAST if least else render.READ_GREATEST
        out[render.OF_COUNT] = self._at(parts.COUNT, call.arg)
        out[render.OF_VALUE] = self._at(parts.TREE, call.arg, -1, call.order)

    def _sum(self, call: AggregateSpec, out: list[int], gate: int) -> None:
        double = call.order == ORDER_DOUBLE
        out[render.OF_VALUE] = self._at(parts.SUM_DOUBLE if double else parts.SUM_INTEGER, call.arg, gate)
        if call.function == "sum":
            out[render.HOW] = render.READ_SUM_DOUBLE if double else render.READ_SUM_INTEGER
        elif call.function == "avg":
            out[render.HOW] = render.READ_MEAN_DOUBLE if double else render.READ_MEAN_INTEGER
        else:
            out[render.LOST], out[render.ROOT] = _VARIANCES[call.function]
            out[render.HOW] = render.READ_VARIANCE_DOUBLE if double else render.READ_VARIANCE_INTEGER
            squares = parts.SQUARE_DOUBLE if double else parts.SQUARE_INTEGER
            out[render.OF_SQUARES] = self._at(squares, call.arg, gate)
