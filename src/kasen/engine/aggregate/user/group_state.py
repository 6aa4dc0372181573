"""How the groups of a user-defined aggregate change: from a bag of rows, or by panes of a sliding window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from kasen.engine.aggregate.user.call import FailedState, UserCall, Value, Words
from kasen.engine.aggregate.user.state_text import from_json, to_json
from kasen.engine.batch import Frontier

Key = tuple[int, ...]
#: None for a group that has no rows any more, or none whose arguments are all there.
Answers = dict[Key, Value | None]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """A batch's rows as lists, with their groups' keys."""

    ts: list[int]
    seq_tick: list[int]
    diff: list[int]
    keys: list[Key]


class CallState(Protocol):
    """One call over all groups. `changes` answers for each group that may have changed at an instant."""

    call: UserCall

    def changes(
        self, rows: KeyedRows, words: list[Words | None], upto: Frontier
    ) -> Iterator[tuple[Frontier, Answers]]: ...

    def state(self) -> Any: ...

    def set_state(self, state: Any) -> None: ...


def saved(state: object) -> Any:
    return {"failed": state.message} if isinstance(state, FailedState) else to_json(state)


def loaded(given: Any) -> object:
    return FailedState(given["failed"]) if isinstance(given, dict) and "failed" in given else from_json(given)


@dataclass(slots=True)
class _Group:
    """A group's rows and their state; None if the state must be made anew from the rows."""

    bag: dict[Words, int] = field(default_factory=dict)
    state: object = None
    is_known: bool = False


class BagCallState:
    """For relations that change at any instant.

    Rows that enter are added, in the order of their values within an instant. If rows leave, they are removed
    where the aggregate can do that; otherwise the state is made anew from the group's rows, which are kept.
    """

    def __init__(self, call: UserCall) -> None:
        self.call = call
        self._groups: dict[Key, _Group] = {}

    def changes(
        self, rows: KeyedRows, words: list[Words | None], upto: Frontier
    ) -> Iterator[tuple[Frontier, Answers]]:
        del upto
        row, end = 0, len(words)
        while row < end:
            at = Frontier(rows.ts[row], rows.seq_tick[row])
            net: dict[Key, dict[Words, int]] = {}
            while row < end and (rows.ts[row], rows.seq_tick[row]) == at:
                found = words[row]
                if found is not None:
                    group = net.setdefault(rows.keys[row], {})
                    group[found] = group.get(found, 0) + rows.diff[row]
                row += 1
            yield at, {key: self._changed(key, change) for key, change in net.items()}

    def _changed(self, key: Key, net: dict[Words, int]) -> Value | None:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(state=self.call.init(), is_known=True)
        net = {words: times for words, times in net.items() if times}
        for words, times in net.items():
            group.bag[words] = group.bag.get(words, 0) + times
            if not group.bag[words]:
                del group.bag[words]
        if not group.bag:
            del self._groups[key]
            return None
        if not self.call.removes and any(times < 0 for times in net.values()):
            group.is_known = False
        if group.is_known:
            for words in self.call.in_order(net):
                group.state = self.call.add(group.state, words, net[words])
        if not group.is_known or isinstance(group.state, FailedState):
            group.state = self.call.fold(group.bag)
        # What failed may have left a state half changed; and it fails only while its row is there.
        group.is_known = not isinstance(group.state, FailedState)
        return self.call.result(group.state)

    def state(self) -> Any:
        return [
            [key, [[words, times] for words, times in group.bag.items()], group.is_known, saved(group.state)]
            for key, group in self._groups.items()
        ]

    def set_state(self, state: Any) -> None:
        for key, bag, is_known, content in state:
            rows = {tuple(words): times for words, times in bag}
            self._groups[tuple(key)] = _Group(rows, loaded(content), is_known)


@dataclass(slots=True)
class _Queue:
    """A group's panes, as (end, state), in two stacks [CQPH].

    New panes go onto `back`, whose states are also merged into `total`. The oldest pane is the last of
    `front`, its state merged with all later ones of `front`. When that is empty, `back` is turned over into
    it. So a pane is merged three times at most, however many there are.
    """

    front: list[tuple[int, object]] = field(default_factory=list)
    back: list[tuple[int, object]] = field(default_factory=list)
    total: object = None

    def push(self, end: int, state: object, call: UserCall) -> None:
        self.total = call.merge(self.total, state) if self.back else state
        self.back.append((end, state))

    def pop(self, call: UserCall) -> None:
        if not self.front:
            for end, state in reversed(self.back):
                merged = call.merge(state, self.front[-1][1]) if self.front else state
                self.front.append((end, merged))
            self.back.clear()
        self.front.pop()

    def whole(self, call: UserCall) -> object:
        if self.front and self.back:
            return call.merge(self.front[-1][1], self.total)
        return self.front[-1][1] if self.front else self.total

    def __len__(self) -> int:
        return len(self.front) + len(self.back)


class PaneCallState:
    """For [RANGE length SLIDE slide]: a tuple is added once, to its pane; windows merge panes."""

    def __init__(self, call: UserCall, length: int, slide: int) -> None:
        self.call = call
        self._length = length
        self._slide = slide
        self._open_end = 0
        self._open: dict[Key, object] = {}
        self._groups: dict[Key, _Queue] = {}
        self._ends: deque[tuple[int, Key]] = deque()  # of all groups' panes, the oldest first
        self._dirty: set[Key] = set()
        self._dirty_at = 0

    def changes(
        self, rows: KeyedRows, words: list[Words | None], upto: Frontier
    ) -> Iterator[tuple[Frontier, Answers]]:
        for row, found in enumerate(words):
            if found is None or not rows.diff[row]:
                continue
            ts = rows.ts[row]
            yield from self._advance(ts)
            end = self._pane_end(ts)
            if ts < self._boundary(end) - self._length:
                continue  # between two windows
            self._open_end = end
            key = rows.keys[row]
            state = self._open[key] if key in self._open else self.call.init()
            self._open[key] = self.call.add(state, found, rows.diff[row])
        # A boundary is the instant (ts, 0), so that of upto.ts is reached only if upto goes beyond it.
        yield from self._advance(upto.ts if upto.seq_tick > 0 else upto.ts - 1)

    def _pane_end(self, ts: int) -> int:
        """Panes are cut at every k * slide and at every k * slide - length."""
        window_ends = (ts // self._slide + 1) * self._slide
        window_begins = ((ts + self._length) // self._slide + 1) * self._slide - self._length
        return min(window_ends, window_begins)

    def _boundary(self, end: int) -> int:
        """The first report after the pane that ends there."""
        return -(-end // self._slide) * self._slide

    def _advance(self, limit: int) -> Iterator[tuple[Frontier, Answers]]:
        while True:
            if self._open and self._open_end <= limit:
                self._close()
            ahead = [self._dirty_at] if self._dirty else []
            if self._ends:
                ahead.append(self._boundary(self._ends[0][0] + self._length))
            if not ahead or min(ahead) > limit:
                return
            yield Frontier(min(ahead)), self._report(min(ahead))

    def _close(self) -> None:
        for key, state in self._open.items():
            self._groups.setdefault(key, _Queue()).push(self._open_end, state, self.call)
            self._ends.append((self._open_end, key))
            self._dirty.add(key)
        self._dirty_at = self._boundary(self._open_end)
        self._open.clear()

    def _report(self, boundary: int) -> Answers:
        while self._ends and self._ends[0][0] <= boundary - self._length:
            _, key = self._ends.popleft()
            self._groups[key].pop(self.call)
            self._dirty.add(key)
        answers: Answers = {}
        for key in self._dirty:
            if len(self._groups[key]):
                answers[key] = self.call.result(self._groups[key].whole(self.call))
            else:
                del self._groups[key]
                answers[key] = None
        self._dirty.clear()
        return answers

    def state(self) -> Any:
        def panes(stack: list[tuple[int, object]]) -> Any:
            return [[end, saved(state)] for end, state in stack]

        return {
            "open_end": self._open_end,
            "open": [[key, saved(state)] for key, state in self._open.items()],
            "groups": [
                [key, panes(queue.front), panes(queue.back), saved(queue.total)]
                for key, queue in self._groups.items()
            ],
            "ends": [[end, key] for end, key in self._ends],
            "dirty": [[*key] for key in sorted(self._dirty)],
            "dirty_at": self._dirty_at,
        }

    def set_state(self, state: Any) -> None:
        def panes(stack: Any) -> list[tuple[int, object]]:
            return [(end, loaded(content)) for end, content in stack]

        self._open_end = state["open_end"]
        self._open = {tuple(key): loaded(content) for key, content in state["open"]}
        self._groups = {
            tuple(key): _Queue(panes(front), panes(back), loaded(total))
            for key, front, back, total in state["groups"]
        }
        self._ends = deque((end, tuple(key)) for end, key in state["ends"])
        self._dirty = {tuple(key) for key in state["dirty"]}
        self._dirty_at = state["dirty_at"]
