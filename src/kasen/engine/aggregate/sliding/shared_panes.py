"""Sliding aggregates over one input, by the same key and with panes of one length, share these panes.

The members' windows differ, but all are made of the same panes: so each boundary takes one sweep over panes
(kernels/shared_panes), not one a member. Sharing never shows. A member that comes sees the panes from its
instant on, where the open one is cut; and any member can go on by itself at any time: what it sees of the
panes is given to an aggregate of its own, which is also what its snapshots hold.

Members go on by themselves when rows come that panes here do not take (a NULL argument, very great sums),
or when sharing costs more than it saves: few groups in each pane, or long windows of few members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kasen.engine.aggregate.sliding.kernels import panes
from kasen.engine.aggregate.sliding.kernels import shared_panes as kernel
from kasen.engine.aggregate.sliding.pane_cells import (
    MOST_SUM,
    PaneCells,
    as_calls,
    as_rows,
    read_cells,
    takes,
)
from kasen.engine.aggregate.sliding.pane_reduction import PaneReduction, PaneRequirements
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.batch import I64, Batch, Frontier, concat, ones, zeros
from kasen.engine.kernels import groups
from kasen.engine.kernels.exact_round import SCRATCH
from kasen.engine.record_table import RecordTable
from kasen.engine.stream.value_order import ValueOrder

if TYPE_CHECKING:
    from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate

#: Windows of more panes than this a member are not shared, nor of more than this in all.
_PANES_A_MEMBER, _MOST_PANES = 64, 1 << 13
#: From so many cells on, at least this share of them must be in use; this is looked at every so many runs.
_MANY_CELLS, _SHARE, _LOOK = 1 << 12, 4, 64
#: After sharing has failed, so many runs go by before it is tried again.
_PAUSE = 64
#: So many words of answers are computed at a time.
_ANSWERS = 1 << 20


class SharedPanes:
    """The panes of one input, and the members whose windows are made of them."""

    def __init__(self, wanted: PaneRequirements, pane: int, columns: int, order: ValueOrder) -> None:
        """`columns` of the input; `order` is that of keys."""
        self.reduction = PaneReduction(wanted, pane)
        self._wanted = wanted
        self._pane = pane
        self._columns = columns
        self._key_order = order
        self._everybody: list[SharableSlidingAggregate] = []
        self._members: list[SharableSlidingAggregate] = []
        self._offers: list[SharableSlidingAggregate] = []
        self._upto: Frontier | None = None
        self._offered_at: Frontier | None = None
        self._pause = 0
        self._runs = 0
        self._scratch = np.zeros(SCRATCH, np.uint64)
        self._outlets: dict[SharableSlidingAggregate, list[Batch]] = {}
        self._clear()

    def _clear(self) -> None:
        wanted = self._wanted
        self._groups = RecordTable(wanted.keys, groups.KEY + wanted.keys)
        self._panes: I64 = np.zeros((16, kernel.PANE), np.int64)
        self._cells: I64 = np.zeros((16 * kernel.WORDS, len(self._groups.touched)), np.int64)
        self._control: I64 = np.zeros(kernel.CONTROL, np.int64)
        fixed = [wanted.keys, wanted.extreme, wanted.sign, wanted.total, self._pane]
        self._control[: len(fixed)] = fixed
        self._control[kernel.OLDEST] = self._control[kernel.NEWEST] = self._control[kernel.GROUPS] = 1
        self._table: I64 = np.zeros((0, kernel.MEMBER), np.int64)
        self._calls: I64 = np.zeros((0, kernel.CALL), np.int64)
        self._last: I64 = np.zeros((0, self._cells.shape[1]), np.int64)
        self._order: I64 = np.zeros(0, np.int64)
        self._members = []

    # ------------------------------------------------------------ who shares

    def add(self, member: SharableSlidingAggregate) -> None:
        """One more that may share."""
        self._everybody.append(member)
        self.reduction.join()
        member.windows = self
        assert member.own is not None
        member.own.reduction = self.reduction

    def leave(self, member: SharableSlidingAggregate, *, for_good: bool = False) -> None:
        """It goes on by itself, or goes altogether."""
        if member.own is None:
            if not for_good:
                member.own = self.export(member)
            at = self._members.index(member)
            first = int(self._table[at, kernel.AT])
            calls = len(member.calls)
            self._last = np.delete(self._last, slice(first + at, first + at + calls + 1), axis=0)
            self._calls = np.delete(self._calls, slice(first, first + calls), axis=0)
            self._table = np.delete(self._table, at, axis=0)
            self._table[at:, kernel.AT] -= calls
            self._members.remove(member)
        self._everybody.remove(member)
        self.reduction.leave()

    @property
    def is_empty(self) -> bool:
        return not self._everybody

    @property
    def members(self) -> list[SharableSlidingAggregate]:
        """Those that share."""
        return self._members

    def welcome(self, member: SharableSlidingAggregate, at: Frontier) -> None:
        """A member that has seen nothing begins: the open pane is cut there, and it sees those after it."""
        if member.own is None or self._pause:
            return
        if not self._members:
            others = [each for each in self._everybody if each.may_share and each is not member]
            self._gather(others, at)
        if self._members and self._is_worth(len(self._members) + 1, member.length):
            if self._control[kernel.OPEN]:
                self._panes[self._control[kernel.NEWEST] & (len(self._panes) - 1), kernel.END] = at.ts
                self._control[kernel.OPEN] = 0
                self._control[kernel.NEWEST] += 1
            self._join(member, int(self._control[kernel.NEWEST]), int(self._control[kernel.NEWEST]))

    def offer(self, member: SharableSlidingAggregate, batch: Batch, upto: Frontier) -> None:
        """One that is by itself has gone up to `upto`. When all of those have, it is seen who can share."""
        if self._offered_at != upto:
            self._offered_at = upto
            self._offers.clear()
            self._pause -= self._pause > 0
        self._offers.append(member)
        alone = [each for each in self._everybody if each.own is not None and each.may_share]
        if self._pause or len(self._offers) < len(alone) or len(self._everybody) < 2:
            return
        if self._members and self._upto != upto:
            self._run(batch, upto)
        self._gather(alone, upto)
        if len(self._members) == 1:
            self._dissolve()
        elif any(each.own is not None for each in alone):
            self._pause = _PAUSE

    def _is_worth(self, members: int, length: int) -> bool:
        return length // self._pane <= min(_PANES_A_MEMBER * members, _MOST_PANES)

    def _gather(self, alone: Sequence[SharableSlidingAggregate], upto: Frontier) -> None:
        """Those whose panes are what they would see here share from now on."""
        both = (*alone, *self._members)
        if not alone or not self._is_worth(max(2, len(both)), max(each.length for each in both)):
            return
        found = [(each, cells) for each in alone if (cells := read_cells(_own(each))) is not None]
        # The first one's panes are the oldest that anybody sees.
        found.sort(key=lambda one: int(one[1].ends.min(initial=panes.NEVER)))
        for member, cells in found:
            if not self._members:
                self._found(member, cells, upto)
            else:
                self._admit(member, cells, upto)

    def _found(self, member: SharableSlidingAggregate, cells: PaneCells, upto: Frontier) -> None:
        """The first member's panes are the panes."""
        self._clear()
        self._upto = upto
        ends = np.unique(cells.ends)
        self._make_panes(len(ends) + 1)
        numbers = np.arange(len(ends)) + 1
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
            row = self._panes[number & (len(self._panes) - 1)]
            row[kernel.BEGIN] = panes.pane_begin(end, member.length, member.slide)
            row[kernel.END], row[kernel.LAST] = end, end - 1
        if len(ends):
            row[kernel.LAST] = min(_own(member).last, int(row[kernel.LAST]))
            self._control[kernel.OPEN] = int(ends[-1]) > _limit(upto)
        self._control[kernel.NEWEST] = 1 + len(ends) - self._control[kernel.OPEN]
        slots = self._claim(cells.keys)
        self._cells[:] = 0
        self._cells[kernel.EXTREME :: kernel.WORDS] = _nothing(self._wanted)
        at = (1 + np.searchsorted(ends, cells.ends)) & (len(self._panes) - 1)
        for word in range(kernel.WORDS):
            if word != kernel.EXTREME or self._wanted.extreme >= 0:
                self._cells[at * kernel.WORDS + word, slots] = cells.words[word]
        self._take_over(member, 1, upto)

    def _admit(self, member: SharableSlidingAggregate, cells: PaneCells, upto: Frontier) -> None:
        """Joins if each of its panes is some of those here, and holds the same."""
        newest = int(self._control[kernel.NEWEST] + self._control[kernel.OPEN])
        if not len(cells.ends):
            if not self._control[kernel.OPEN]:
                self._take_over(member, newest, upto)
            return
        ends = np.unique(cells.ends)
        begin = int(panes.pane_begin(int(ends[0]), member.length, member.slide))
        seen = [
            number for number in range(self._oldest, newest) if self._pane_row(number)[kernel.END] > begin
        ]
        of = []
        for number in seen:
            first, last = self._pane_row(number)[[kernel.BEGIN, kernel.END]].tolist()
            end = int(panes.pane_end(last - 1, member.length, member.slide))
            if end != panes.pane_end(first, member.length, member.slide):
                return  # it would be in two panes
            of.append(end)
        if not seen or not np.array_equal(np.unique(of), ends):
            return
        slots = self._claim(cells.keys)
        starts = np.flatnonzero(np.r_[True, np.diff(of) > 0])
        held = self._words(seen)
        wanted = np.zeros((kernel.WORDS, len(ends), self._cells.shape[1]), np.int64)
        wanted[kernel.EXTREME] = _nothing(self._wanted)
        wanted[:, np.searchsorted(ends, cells.ends), slots] = cells.words
        best = np.maximum if self._wanted.sign > 0 else np.minimum
        here = [np.add, best, np.add]
        words = [kernel.ROWS, *([kernel.EXTREME] if self._wanted.extreme >= 0 else []), kernel.SUM]
        if all(np.array_equal(here[word].reduceat(held[word], starts), wanted[word]) for word in words):
            self._take_over(member, seen[0], upto)

    def _take_over(self, member: SharableSlidingAggregate, low: int, upto: Frontier) -> None:
        """A member joins that has reported up to the last boundary; it sees the panes from `low` on."""
        own = _own(member)
        contents = own.contents()
        if (contents[-1] >> self._wanted.keys).any():
            return
        boundary = _limit(upto) // member.slide * member.slide
        high = low
        while high < self._control[kernel.NEWEST] and self._pane_row(high)[kernel.END] <= boundary:
            high += 1
        slots = self._claim(np.concatenate([contents[: self._wanted.keys], contents[-1:]]))
        self._join(member, low, high)
        first = len(self._last) - len(member.calls) - 1
        self._last[first, slots] = 1
        self._last[first + 1 :, slots] = contents[self._wanted.keys : -1]

    def _join(self, member: SharableSlidingAggregate, low: int, high: int) -> None:
        row = [member.length, member.slide, low, high, len(self._calls), len(member.calls)]
        self._table = np.concatenate([self._table, np.array([row], np.int64)])
        self._calls = np.concatenate([self._calls, as_calls(member.calls)])
        more = np.zeros((1 + len(member.calls), self._cells.shape[1]), np.int64)
        self._last = np.concatenate([self._last, more])
        self._members.append(member)
        member.own = None

    def _dissolve(self) -> None:
        """All go on by themselves, for a while."""
        for member in self._members:
            member.own = self.export(member)
        self._clear()
        self._pause = _PAUSE

    def export(self, member: SharableSlidingAggregate) -> SlidingAggregate:
        """The member as it would be if it had been by itself: an aggregate that has seen the same panes."""
        own = member.make()
        if self._upto is not None:
            seen = self._seen_by(member)
            words = self._words(seen)
            at, slots = np.nonzero(words[kernel.ROWS])
            ts = np.array([self._pane_row(number)[kernel.LAST] for number in seen], np.int64)[at]
            keys = self._groups.keys_of(slots)
            own.process([as_rows(ts, keys, words[:, at, slots], self._wanted, self._columns)], self._upto)
        own.reduction = self.reduction
        return own

    # ------------------------------------------------------------ running

    def take(self, member: SharableSlidingAggregate, batch: Batch, upto: Frontier) -> Batch | None:
        """A member's changes up to `upto`; None if it goes on by itself from where it was."""
        if upto != self._upto and not self._run(batch, upto):
            return None
        pieces = self._outlets.pop(member, [])
        if len(pieces) == 1:
            return pieces[0]
        return concat(pieces, self._wanted.keys + len(member.calls))

    def _run(self, batch: Batch, upto: Frontier) -> bool:
        self._outlets.clear()
        rows = self.reduction.reduced(batch)
        self._runs += 1
        if not takes(rows, self._wanted) or not self._still_pays():
            self._dissolve()
            return False
        control = self._control
        control[kernel.NEXT] = 0
        control[kernel.LIMIT] = _limit(upto)
        while why := self._enter(rows):
            if why == kernel.WANTS_GROUPS:
                self._make_groups()
            else:
                self._answer(int(rows.ts[control[kernel.NEXT]]))
                control[kernel.LIMIT] = _limit(upto)
                self._make_panes(2)
        self._answer(_limit(upto))
        self._upto = upto
        return True

    def _still_pays(self) -> bool:
        if len(self._members) < 2 or not self._is_worth(len(self._members), int(self._table[:, 0].max())):
            return False
        newest = int(self._control[kernel.NEWEST] + self._control[kernel.OPEN])
        if newest - self._oldest > _MOST_PANES:
            return False
        sums = self._words([newest - 1])[kernel.SUM] if self._control[kernel.OPEN] else zeros(1)
        if int(np.abs(sums).max()) >= MOST_SUM // 2:
            return False
        if self._runs % _LOOK:
            return True
        rows = self._words(list(range(self._oldest, newest)))[kernel.ROWS]
        used = int(np.count_nonzero(rows)) * _SHARE
        return rows.size < _MANY_CELLS or used >= len(rows) * len(self._groups)

    def _enter(self, rows: Batch) -> int:
        held = self._groups
        return int(
            kernel.enter(
                rows.ts,
                rows.diff,
                rows.data,
                self._control,
                held.table,
                held.records,
                held.width,
                self._panes,
                self._cells,
            )
        )

    def _answer(self, limit: int) -> None:
        """All members' changes at boundaries up to a time, into their outlets."""
        self._control[kernel.LIMIT] = limit
        members, size = len(self._members), len(self._last)
        room = max(1, min(64, _ANSWERS // (size * self._cells.shape[1])))
        answers = np.empty((kernel.WORDS + room * size, self._cells.shape[1]), np.int64)
        boundaries, told = np.empty(room, np.int64), np.empty(room * members, np.int64)
        due, counts = np.empty(members, np.int64), np.empty(members, np.int64)
        if len(self._order) != len(self._groups):
            self._sort_groups()
        done = room
        while done == room:
            done = kernel.sweep(
                self._control,
                self._panes,
                self._cells,
                self._table,
                self._calls,
                due,
                answers,
                boundaries,
                told,
                self._scratch,
            )
            if done:
                self._put_out(int(done), answers, boundaries, told, counts)
        self._control[kernel.OLDEST] = self._table[:, kernel.LOW].min()

    def _put_out(self, done: int, answers: I64, boundaries: I64, told: I64, counts: I64) -> None:
        held = self._groups
        known = int(self._control[kernel.GROUPS])
        picks = np.empty(2 * len(self._order), np.int64)
        kernel.count_changes(self._table, done, self._last, answers, told, known, counts)
        for at, (member, count) in enumerate(zip(self._members, counts.tolist(), strict=True)):
            out = np.empty((self._wanted.keys + len(member.calls) + 3, count), np.int64)
            kernel.put_out(
                self._table,
                self._calls,
                at,
                done,
                self._last,
                answers,
                told,
                boundaries,
                known,
                self._order,
                picks,
                held.records,
                held.width,
                out,
            )
            if count:
                changes = Batch(out[0], zeros(count), out[1], out[2:])
                self._outlets.setdefault(member, []).append(changes)

    def _sort_groups(self) -> None:
        held = self._groups
        records = held.records.reshape(-1, held.width)[: int(held.records[groups.USED]) + 1]
        slots = 1 + np.flatnonzero(records[1:, groups.KEY_NULLS] != -1)
        same = zeros(len(slots)).copy()
        batch = Batch(same, same, ones(len(slots)).copy(), held.keys_of(slots))
        self._order = slots[self._key_order.sorted(batch, np.arange(len(slots)))]

    # ------------------------------------------------------------ what is there

    @property
    def _oldest(self) -> int:
        return int(self._control[kernel.OLDEST])

    def _pane_row(self, number: int) -> I64:
        row: I64 = self._panes[number & (len(self._panes) - 1)]
        return row

    def _words(self, numbers: Sequence[int]) -> I64:
        """What panes hold: [WORDS, panes, groups]."""
        at = (np.array(numbers, np.int64) & (len(self._panes) - 1)) * kernel.WORDS
        return np.stack([self._cells[at + word] for word in range(kernel.WORDS)])

    def _seen_by(self, member: SharableSlidingAggregate) -> list[int]:
        """The panes that a member sees, the open one too."""
        low = int(self._table[self._members.index(member), kernel.LOW])
        return list(range(low, int(self._control[kernel.NEWEST] + self._control[kernel.OPEN])))

    def groups_of(self, member: SharableSlidingAggregate) -> int:
        return int(np.count_nonzero(self._words(self._seen_by(member))[kernel.ROWS].any(axis=0)))

    def reach(self, member: SharableSlidingAggregate) -> tuple[int, int] | None:
        """Where the first pane that a member sees begins, and the time of the last tuple."""
        seen = self._seen_by(member)
        if not seen:
            return None
        end = int(self._pane_row(seen[0])[kernel.END])
        begin = int(panes.pane_begin(end, member.length, member.slide))
        return begin, int(self._pane_row(seen[-1])[kernel.LAST])

    def contents(self, member: SharableSlidingAggregate) -> I64:
        at = self._members.index(member)
        first = int(self._table[at, kernel.AT]) + at
        slots = np.flatnonzero(self._last[first])
        keys = self._groups.keys_of(slots)
        data = np.empty((len(keys) + len(member.calls), len(slots)), np.int64)
        data[: len(keys) - 1], data[-1] = keys[:-1], keys[-1]
        data[len(keys) - 1 : -1] = self._last[first + 1 : first + 1 + len(member.calls), slots]
        return data

    def words_of(self, member: SharableSlidingAggregate) -> Iterator[I64]:
        """What may be a code of a text: keys of groups, and what waits to be taken. One member tells all."""
        if member is self._members[0]:
            yield self._groups.used()
            yield from (batch.data for batches in self._outlets.values() for batch in batches)

    def next_instant(self, member: SharableSlidingAggregate) -> Frontier | None:
        if member in self._outlets:  # another member was asked first, and all have gone on
            return Frontier(int(self._outlets[member][0].ts[0]))
        at = self._members.index(member)
        boundary = int(kernel.next_report(self._control, self._panes, self._table, at))
        if self._control[kernel.OPEN]:
            end = int(self._pane_row(int(self._control[kernel.NEWEST]))[kernel.END])
            boundary = min(boundary, int(panes.ceiling(end, member.slide)))
        return None if boundary >= panes.NEVER else Frontier(boundary)

    # ------------------------------------------------------------ making room

    def _claim(self, keys: I64) -> I64:
        """The slots of groups, new ones if need be."""
        slots = np.zeros(keys.shape[1], np.int64)
        held = self._groups
        keys = np.ascontiguousarray(keys)
        while kernel.claim_all(keys, len(keys) - 1, held.table, held.records, held.width, slots) < len(slots):
            self._widen()
        self._control[kernel.GROUPS] = int(held.records[groups.USED]) + 1
        return slots

    def _make_groups(self) -> None:
        """Frees the slots of groups that are in no pane and that nobody has put out; or makes more slots."""
        held = self._groups
        newest = int(self._control[kernel.NEWEST] + self._control[kernel.OPEN])
        used = self._words(list(range(self._oldest, newest)))[kernel.ROWS].any(axis=0)
        used[: self._last.shape[1]] |= self._rows_put_out().any(axis=0)
        records = held.records.reshape(-1, held.width)
        for slot in range(1, int(held.records[groups.USED]) + 1):
            if not used[slot] and records[slot, groups.KEY_NULLS] != -1:
                groups.release(slot, self._wanted.keys, held.table, held.records, held.width)
        self._order = np.zeros(0, np.int64)
        if 4 * len(held) > 3 * len(held.touched):
            self._widen()

    def _rows_put_out(self) -> I64:
        rows: I64 = self._last[self._table[:, kernel.AT] + np.arange(len(self._table))]
        return rows

    def _widen(self) -> None:
        self._groups.grow()
        size = len(self._groups.touched)
        cells = np.zeros((len(self._cells), size), np.int64)
        cells[kernel.EXTREME :: kernel.WORDS] = _nothing(self._wanted)
        cells[:, : self._cells.shape[1]] = self._cells
        last = np.zeros((len(self._last), size), np.int64)
        last[:, : self._last.shape[1]] = self._last
        self._cells, self._last = cells, last

    def _make_panes(self, more: int) -> None:
        """Room for so many panes more, at least."""
        oldest = self._oldest
        count = int(self._control[kernel.NEWEST] + self._control[kernel.OPEN]) - oldest
        if 2 * (count + more) <= len(self._panes):
            return
        size = 1 << (4 * (count + more) - 1).bit_length()
        numbers = np.arange(oldest, oldest + count)
        from_, to = numbers & (len(self._panes) - 1), numbers & (size - 1)
        rows = np.zeros((size, kernel.PANE), np.int64)
        cells = np.zeros((size * kernel.WORDS, self._cells.shape[1]), np.int64)
        rows[to] = self._panes[from_]
        for word in range(kernel.WORDS):
            cells[to * kernel.WORDS + word] = self._cells[from_ * kernel.WORDS + word]
        self._panes, self._cells = rows, cells


def _own(member: SharableSlidingAggregate) -> SlidingAggregate:
    assert member.own is not None
    return member.own


def _limit(upto: Frontier) -> int:
    """The last boundary before an instant: a boundary is the instant (ts, 0)."""
    return min(upto.ts if upto.seq_tick > 0 else upto.ts - 1, panes.NEVER - 1)


def _nothing(wanted: PaneRequirements) -> int:
    """What combines with any extreme."""
    return -(2**63) if wanted.sign > 0 else 2**63 - 1
