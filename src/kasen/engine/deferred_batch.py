"""A batch that is put together only as far as somebody looks at it.

Tuples come in parts, whose columns lie where they were read: often in Arrow's own memory. A condition looks
at one or two columns of them, a projection wants a few of the rows that are left. So nothing is moved until
a column is asked for, and columns that nobody asks for never are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kasen.engine import parallel
from kasen.engine.batch import I64, Batch, Columns, are_ones, are_zeros, ones, places, zeros
from kasen.engine.kernels.columns import gather, gather_ascending

#: Writes a column's values at some positions.
_Gathers = Callable[[I64, I64, I64], None]


class RowSelection(NamedTuple):
    """Changes in instant order; `rows` are those that are meant, None if all are."""

    ts: I64
    seq_tick: I64
    diff: I64
    columns: Columns
    rows: I64 | None = None

    @property
    def size(self) -> int:
        return len(self.ts) if self.rows is None else len(self.rows)

    def halves(self) -> tuple[RowSelection, RowSelection]:
        """The first half of the changes, and the others."""
        cut = self.size // 2
        return self.between(0, cut), self.between(cut, self.size)

    def between(self, begin: int, end: int) -> RowSelection:
        """The changes from `begin` to before `end`."""
        if self.rows is not None:
            return self._replace(rows=self.rows[begin:end])
        ts, seq_tick, diff, columns, _ = self
        return RowSelection(
            ts[begin:end], seq_tick[begin:end], diff[begin:end], [each[begin:end] for each in columns]
        )

    def where(self, keep: npt.NDArray[np.bool_]) -> RowSelection:
        chosen = places(keep)
        return self._replace(rows=chosen if self.rows is None else self.rows[chosen])


#: Writes columns of some parts, on one of the two cores.
Write = Callable[[Sequence[RowSelection], I64, int], None]


def selection_of(batch: Batch) -> RowSelection:
    """All changes of a batch."""
    return RowSelection(batch.ts, batch.seq_tick, batch.diff, batch.data)


def selections_of(batch: Batch) -> Sequence[RowSelection]:
    """All changes of a batch, as they lie."""
    return batch.parts if isinstance(batch, DeferredBatch) else [selection_of(batch)]


class DeferredBatch(Batch):
    """The changes of the parts, one part after the other. Used like any batch."""

    __slots__ = ("_columns", "_parts", "_size", "is_fresh")

    def __init__(self, parts: Sequence[RowSelection], *, is_fresh: bool = False) -> None:
        #: Whether the parts' memory was made for them: whoever gets the columns may keep them.
        self.is_fresh = is_fresh
        # The arrays of a batch are not set: `__getattr__` makes each when it is first looked at.
        self._parts = parts
        self._size = parts[0].size if len(parts) == 1 else sum(part.size for part in parts)
        self._columns: dict[int, I64] = {}

    def __len__(self) -> int:
        return self._size

    def __getattr__(self, name: str) -> I64 | bool:
        if name == "ts":
            self.ts = self._joined(_times, gather_ascending)
        elif name == "seq_tick":
            uniform = all(are_zeros(part.seq_tick) for part in self._parts)
            self.seq_tick = zeros(self._size) if uniform else self._joined(lambda part: part.seq_tick)
        elif name == "diff":
            uniform = all(are_ones(part.diff) for part in self._parts)
            self.diff = ones(self._size) if uniform else self._joined(lambda part: part.diff)
        elif name == "whole":
            self.whole = not self.has_nulls()
        elif name == "data":
            self.data = self._matrix()
        else:
            raise AttributeError(name)
        made: I64 | bool = getattr(self, name)
        return made

    @property
    def columns(self) -> int:
        return len(self._parts[0].columns) - 1

    @property
    def parts(self) -> Sequence[RowSelection]:
        return self._parts

    @property
    def is_chosen(self) -> bool:
        """Whether these are some rows of other memory; then columns are put into new memory."""
        return all(part.rows is not None for part in self._parts)

    def column(self, index: int) -> I64:
        found = self._columns.get(index)
        if found is None:
            if index == -1 and not self.has_nulls():
                found = zeros(self._size)
            else:
                found = self._joined(lambda part: part.columns[index])
            self._columns[index] = found
        return found

    def fill(self, index: int, out: I64) -> None:
        """Writes a column into other memory."""
        self._fill(lambda part: part.columns[index], out)

    def has_nulls(self) -> bool:
        for part in self._parts:
            words = part.columns[-1]
            if not are_zeros(words) and np.count_nonzero(words):
                return True
        return False

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        parts = []
        first = 0
        for part in self._parts:
            parts.append(part.where(keep[first : first + part.size]))
            first += part.size
        return DeferredBatch(parts)

    def between(self, begin: int, end: int) -> DeferredBatch:
        """The changes from `begin` to before `end`."""
        parts = []
        first = 0
        for part in self._parts:
            cut = part.between(max(begin - first, 0), max(min(end - first, part.size), 0))
            if cut.size:
                parts.append(cut)
            first += part.size
        return DeferredBatch(parts or self._parts[:0])

    def pick(self, sources: I64, write: Write | None = None) -> Batch:
        """`write`, if any, is called for all parts, to write columns that are left to the caller."""
        wanted = sources.tolist()
        if -1 in wanted or self.has_nulls():
            # Columns are to be written; or NULL bits are to be moved.
            return self._narrow(wanted, write)
        parts = []
        for ts, seq_tick, diff, columns, rows in self._parts:
            parts.append(
                RowSelection(ts, seq_tick, diff, [*(columns[each] for each in wanted), zeros(len(ts))], rows)
            )
        return DeferredBatch(parts)

    def _narrow(self, wanted: list[int], write: Write | None) -> Batch:
        data = np.empty((len(wanted) + 1, self._size), np.int64)
        words = self.column(-1) if self.has_nulls() else None
        ts = np.empty(self._size, np.int64)

        def begin(parts: Sequence[RowSelection], among: slice, core: int) -> None:
            data[-1, among] = 0
            _move(parts, _times, gather_ascending, ts[among])
            if write is not None:
                write(parts, data[:, among], core)

        in_parallel(self._parts, begin)
        for to, index in enumerate(wanted):
            if index >= 0:
                self.fill(index, data[to])
                if words is not None:
                    data[-1] |= (words >> index & 1) << to
        return Batch(ts, self.seq_tick, self.diff, data, whole=words is None)

    def _matrix(self) -> I64:
        width = len(self._parts[0].columns)
        data = np.empty((width, self._size), np.int64)
        for index in range(width - 1):
            self.fill(index, data[index])
        data[-1] = self.column(-1)
        return data

    def _joined(self, of: Callable[[RowSelection], I64], gathers: _Gathers = gather) -> I64:
        """One array of the parts' arrays, of the rows that are meant."""
        part = self._parts[0]
        if len(self._parts) == 1 and part.rows is None:
            return of(part)
        out = np.empty(self._size, np.int64)
        if len(self._parts) == 1 and part.rows is not None and not parallel.worth(self._size):
            gathers(of(part), part.rows, out)
        else:
            self._fill(of, out, gathers)
        return out

    def _fill(self, of: Callable[[RowSelection], I64], out: I64, gathers: _Gathers = gather) -> None:
        in_parallel(self._parts, lambda parts, among, _: _move(parts, of, gathers, out[among]))


def _times(part: RowSelection) -> I64:
    return part.ts


def in_parallel(
    parts: Sequence[RowSelection], work: Callable[[Sequence[RowSelection], slice, int], None]
) -> None:
    """Does it to all parts, to some on core 0, to the others on core 1; `work` learns where they are."""
    size = sum(part.size for part in parts)
    if not parallel.worth(size):
        work(parts, slice(size), 0)
        return
    parts = _balanced(parts)
    cut = parallel.middle([part.size for part in parts])
    first = sum(part.size for part in parts[:cut])
    parallel.both(
        partial(work, parts[cut:], slice(first, size), 1), partial(work, parts[:cut], slice(first), 0)
    )


def _balanced(parts: Sequence[RowSelection]) -> list[RowSelection]:
    """The parts; halves of the largest, if it has more than half of many rows."""
    cut = list(parts)
    sizes = [part.size for part in parts]
    largest = sizes.index(max(sizes))
    if parallel.worth(sizes[largest]) and 2 * sizes[largest] > sum(sizes):
        cut[largest : largest + 1] = cut[largest].halves()
    return cut


def _move(
    parts: Sequence[RowSelection], of: Callable[[RowSelection], I64], gathers: _Gathers, out: I64
) -> None:
    first = 0
    for part in parts:
        to = out[first : first + part.size]
        if part.rows is None:
            to[:] = of(part)
        else:
            gathers(of(part), part.rows, to)
        first += part.size
