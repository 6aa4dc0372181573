"""A sliding aggregate that may share its panes with others (see shared_windows), or works by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from kasen.engine.aggregate.accumulators import AggregateSpec
from kasen.engine.aggregate.sliding.shared_panes import SharedPanes
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.operator import State, words_of


class SharableSlidingAggregate:
    """A sliding aggregate that may share its panes. `own` does the work while it does not."""

    def __init__(self, make: Callable[[], SlidingAggregate], length: int, slide: int) -> None:
        self.make = make
        self.length = length
        self.slide = slide
        self.windows: SharedPanes | None = None
        self.own: SlidingAggregate | None = make()
        self.calls: tuple[AggregateSpec, ...] = self.own.calls
        #: Set once it is part of a running graph, outside loops.
        self.may_share = False

    def begin(self, at: Frontier) -> None:
        if self.own is not None:
            self.own.begin(at)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        if self._shared is not None:
            taken = self._shared.take(self, inputs[0], upto)
            if taken is not None:
                return taken
        changes = self._alone.process(inputs, upto)
        if self.windows is not None and self.may_share:
            self.windows.offer(self, inputs[0], upto)
        return changes

    def go_alone(self) -> None:
        """Shares nothing any more."""
        if self.windows is not None:
            self.windows.leave(self)
        self.windows = None
        assert self.own is not None
        self.own.reduction = None

    def close(self) -> None:
        """It goes for good."""
        if self.windows is not None:
            self.windows.leave(self, for_good=True)

    @property
    def _shared(self) -> SharedPanes | None:
        """Where its panes are, if it shares them."""
        return self.windows if self.own is None else None

    @property
    def _alone(self) -> SlidingAggregate:
        """As it would be by itself."""
        return self.own if self.own is not None else cast("SharedPanes", self.windows).export(self)

    @property
    def groups(self) -> int:
        return self._alone.groups if self._shared is None else self._shared.groups_of(self)

    def contents(self) -> I64:
        return self._alone.contents() if self._shared is None else self._shared.contents(self)

    def next_instant(self) -> Frontier | None:
        return self._alone.next_instant() if self._shared is None else self._shared.next_instant(self)

    def last_instant(self) -> Frontier | None:
        if self._shared is None:
            return self._alone.last_instant()
        reach = self._shared.reach(self)
        return None if reach is None else Frontier(((reach[1] + self.length) // self.slide + 1) * self.slide)

    def needs_input_since(self) -> Frontier | None:
        if self._shared is None:
            return self._alone.needs_input_since()
        reach = self._shared.reach(self)
        return None if reach is None else Frontier(reach[0])

    def held_words(self) -> Iterable[I64]:
        """What is shared holds more than a snapshot: groups that are in no window keep their place."""
        return words_of(self._alone) if self._shared is None else self._shared.words_of(self)

    def by_itself(self) -> SlidingAggregate:
        return self._alone

    def take_over(self, other: SlidingAggregate, places: tuple[int, ...], at: int) -> None:
        """As that of SlidingAggregate."""
        assert self.own is not None
        self.own.take_over(other, places, at)

    def snapshot(self) -> State:
        return self._alone.snapshot()

    def restore(self, state: State) -> None:
        assert self.own is not None
        self.own.restore(state)
