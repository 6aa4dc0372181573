"""The join of two windows of which only what enters counts: document A's, in blocks of arrivals.

Calls are taken in pieces that fit a core's cache. On two cores one piece's pairs become changes while the
next piece is matched. What a piece finds never depends on how far the other core has got, so the order of
arrivals alone decides, as on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from kasen.kernels import pair_few as few
from kasen.kernels import pair_join as kernel
from kasen.kernels import pair_output as output
from kasen.operators import two_cores
from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound, empty, ones
from kasen.operators.mjoin import Seen
from kasen.operators.pair_output import I32, PairOutput
from kasen.operators.pair_rows import PairRows, Span
from kasen.operators.probe_order import KeyClass, find_keys
from kasen.operators.rings import Side

#: Arrivals of a side that are received at once.
_PIECE = 1 << 15
# Room for pairs at first; a rare large answer's is given back.
_PAIRS = 1 << 12
_MANY_PAIRS = 1 << 20
# So few arrivals are joined by one kernel.
_FEW = 16

NO_MARKS: I64 = np.empty((0, 4), np.int64)

#: What is taken of each side at once.
Pieces = tuple[Span, Span]


class PairJoin:
    """Pairs of rows, equal in each of `classes`, as they enter, net.

    `columns` are the output's, as (input, column): all of the inputs' columns, or equal ones.
    """

    def __init__(
        self,
        inputs: Sequence[Seen],
        classes: Sequence[KeyClass],
        columns: Sequence[tuple[int, int]],
    ) -> None:
        keys = find_keys(2, classes)
        self._rows = PairRows(
            [Side(each.columns, each.kind, each.length, keys.columns(i)) for i, each in enumerate(inputs)]
        )
        self._columns: I64 = np.array([(i, 1 + c) for i, c in columns], np.int64).reshape(-1, 2)
        self._nothing = empty(len(columns))
        self._cursor: I64 = np.zeros(kernel.CURSOR, np.int64)
        self._cursor[[kernel.SIZE, kernel.SPAN]] = kernel.BLOCK
        self._work: I32 = np.empty((kernel.WORK, kernel.BLOCK), np.int32)
        self._words: I64 = np.empty(kernel.BLOCK, np.int64)
        self._found: I32 = np.empty((2, kernel.FOUND), np.int32)
        # Two, because pairs may be written from one while the other is filled.
        self._pairs, self._other = np.empty((3, _PAIRS), np.int32), np.empty((3, _PAIRS), np.int32)
        self._few: I64 = np.empty((few.OUT_DATA + len(columns) + 1, _PAIRS), np.int64)
        #: Of COUNTED windows, what each arrival of a call needs to know of the tuples on other shards.
        self._marks = NO_MARKS, NO_MARKS
        #: How many pairs an arrival brought lately.
        self._yield = 1.0

    # ------------------------------------------------------------ running

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        del upto
        left, right = inputs
        arrivals = len(left) + len(right)
        if not arrivals:
            return self._nothing
        if arrivals <= _FEW and type(left) is Batch and type(right) is Batch:
            return self._run_few(left, right)
        pieces = cuts(left.ts, right.ts)
        answer = self._run_all(inputs, pieces) if len(pieces) > 1 else self._run_one(inputs, pieces[0])
        if answer is None:
            self._yield /= 2
            return self._nothing
        self._yield = len(answer) / arrivals
        return answer

    def _run_few(self, left: Batch, right: Batch) -> Batch:
        """One kernel for all: calls are what a few arrivals cost."""
        rows, cursor = self._rows, self._cursor
        cursor[kernel.USED] = rows.used
        count = few.join_few(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads,
            left.ts, left.sub, left.data, right.ts, right.sub, right.data, *self._marks, cursor,
            self._work, self._words, self._found, self._pairs, self._columns, self._few,
        )  # fmt: skip
        if count >= 0:
            rows.used = cursor.item(kernel.USED)
            if not count:
                return self._nothing
            out = self._few[:, :count].copy()
            return Batch(out[few.OUT_TS], out[few.OUT_SUB], ones(count), out[few.OUT_DATA :])
        if count == few.NO_ROOM:
            rows.receive((left, right), ((0, len(left)), (0, len(right))))
            count = self._match(left.sub, right.sub, *self._marks)
        else:
            count = self._go_on(left.sub, right.sub, *self._marks)
        return self._written(count, left.sub, right.sub) or self._nothing

    def _run_one(self, inputs: Sequence[Batch], spans: Pieces) -> Batch | None:
        self._rows.receive(inputs, spans)
        subs = inputs[0].sub, inputs[1].sub
        return self._written(self._match(*subs, *self._marks), *subs)

    def _written(self, count: int, l_sub: I64, r_sub: I64) -> Batch | None:
        """The pairs just found."""
        if not count:
            return None
        answer = PairOutput(self._columns, 0 if self._cursor[kernel.CANCELS] else count)
        self._writing(answer, count, l_sub, r_sub)()
        return answer.take()

    def _run_all(self, inputs: Sequence[Batch], pieces: Sequence[Pieces]) -> Batch | None:
        arrivals = len(inputs[0]) + len(inputs[1])
        answer = PairOutput(self._columns, int(arrivals * self._yield * 1.1) + _PAIRS)
        if two_cores.worth(arrivals):
            self._on_two_cores(answer, inputs, pieces)
        else:
            for spans in pieces:
                self._rows.receive(inputs, spans)
                subs = _subs(inputs, spans)
                self._writing(answer, self._match(*subs, *self._marks_of(spans)), *subs)()
        return answer.take()

    def _on_two_cores(self, answer: PairOutput, inputs: Sequence[Batch], pieces: Sequence[Pieces]) -> None:
        """While a piece is matched here, the pairs of the last are written there, and the next is placed."""
        rows = self._rows
        write: Callable[[], None] = _nothing_to_do
        placed: list[bool] | None = None
        for spans, after in zip(pieces, [*pieces[1:], None], strict=True):
            if placed is not None:
                rows.begin(spans, placed)
            else:
                if rows.must_move(spans):
                    write()  # it reads rows where they lie now
                    write = _nothing_to_do
                rows.receive(inputs, spans)
            subs = _subs(inputs, spans)
            ahead = None if after is None or rows.must_move(spans, after) else after

            def there() -> list[bool] | None:
                write()  # noqa: B023, it is called before the loop goes on
                return None if ahead is None else rows.place(inputs, ahead, spans)  # noqa: B023

            placed, count = two_cores.both(there, partial(self._match, *subs, *self._marks_of(spans)))
            write = self._writing(answer, count, *subs)
        write()

    def _marks_of(self, spans: Pieces) -> list[I64]:
        return [marks[begin:end] for marks, (begin, end) in zip(self._marks, spans, strict=True)]

    def _match(self, l_sub: I64, r_sub: I64, l_marks: I64, r_marks: I64) -> int:
        """Finds the pairs of the arrivals received; returns how many."""
        cursor = self._cursor
        cursor[: kernel.PHASE] = 0
        cursor[kernel.CANCELS], cursor[kernel.USED] = 0, self._rows.used
        return self._go_on(l_sub, r_sub, l_marks, r_marks)

    def _go_on(self, l_sub: I64, r_sub: I64, l_marks: I64, r_marks: I64) -> int:
        """Finds the pairs that have not been found."""
        rows, cursor = self._rows, self._cursor
        while status := kernel.match(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads, l_sub, r_sub, l_marks,
            r_marks, cursor, self._work, self._words, self._found, self._pairs,
        ):  # fmt: skip
            if status == kernel.PAIRS_FULL:
                self._pairs = _wider(self._pairs)
            else:
                rows.make_slots(int(cursor[kernel.WANTED]))
                cursor[kernel.USED] = rows.used
        rows.used = int(cursor[kernel.USED])
        count = int(cursor[kernel.WRITTEN])
        if rows.keys.shape[1] > 1:
            count = int(output.verify(rows.store, rows.cfg, rows.keys, self._pairs, count))
        return count

    def _writing(self, answer: PairOutput, count: int, l_sub: I64, r_sub: I64) -> Callable[[], None]:
        """What writes the pairs just found into the answer, now or while others are looked for."""
        rows = self._rows
        pairs = self._pairs
        self._pairs, self._other = _given_back(self._other, count), pairs
        if self._cursor[kernel.CANCELS]:
            answer.write_netted(rows.store, rows.cfg, pairs, count, l_sub, r_sub)
            return _nothing_to_do
        at = answer.make_room(count)
        return partial(answer.write, at, rows.store, rows.cfg.copy(), pairs, count, l_sub, r_sub)

    # ------------------------------------------------------------ time and state

    def next_instant(self) -> Bound | None:
        return None

    def snapshot(self) -> State:
        return self._rows.snapshot()

    def restore(self, state: State) -> None:
        self._rows.restore(state)

    def needs_input_since(self) -> Bound | None:
        return min((since for side in (0, 1) if (since := self.oldest(side)) is not None), default=None)

    def oldest(self, i: int) -> Bound | None:
        """The oldest tuple of input i in its window; None if there is none."""
        return self._rows.since(i)


def cuts(left: I64, right: I64) -> list[Pieces]:
    """Two lists of ascending times in pieces, those of one time always in the same."""
    if len(left) <= _PIECE and len(right) <= _PIECE:
        return [((0, len(left)), (0, len(right)))]
    return list(_cuts(left, right))


def _cuts(left: I64, right: I64) -> Iterator[Pieces]:
    i = j = 0
    most = _PIECE
    while i < len(left) or j < len(right):
        to, other = min(i + most, len(left)), min(j + most, len(right))
        ends = [int(ts[end]) for ts, end in ((left, to), (right, other)) if end < len(ts)]
        if ends:
            to = i + int(left[i:to].searchsorted(min(ends)))
            other = j + int(right[j:other].searchsorted(min(ends)))
        if to == i and other == j:
            most *= 2  # more of one time than a piece
            continue
        yield (i, to), (j, other)
        i, j, most = to, other, _PIECE


def _wider(pairs: I32) -> I32:
    wider = np.empty((3, 2 * pairs.shape[1]), np.int32)
    wider[:, : pairs.shape[1]] = pairs
    return wider


def _given_back(pairs: I32, count: int) -> I32:
    room = pairs.shape[1]
    return np.empty((3, _PAIRS), np.int32) if room > _MANY_PAIRS and count < room // 8 else pairs


def _subs(inputs: Sequence[Batch], spans: Pieces) -> list[I64]:
    return [batch.sub[begin:end] for batch, (begin, end) in zip(inputs, spans, strict=True)]


def _nothing_to_do() -> None:
    pass
