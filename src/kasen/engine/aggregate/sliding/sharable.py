"""A sliding aggregate that may share its panes with others (see `shared_panes`), or works by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import gcd
from typing import cast

from kasen.engine.aggregate.accumulators import AggregateSpec
from kasen.engine.aggregate.sliding.pane_reduction import PaneRequirements
from kasen.engine.aggregate.sliding.shared_panes import SharedPanes
from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.operator import Operator, SharingPool, State
from kasen.engine.stream.value_order import ValueOrder


class SharableSlidingAggregate(Operator):
    """A sliding aggregate that may share its panes. `own` does the work while it does not.

    Aggregates over one input that want the same of panes as long may share these.
    """

    is_independent = True

    def __init__(
        self,
        make: Callable[[], SlidingAggregate],
        length: int,
        slide: int,
        wanted: PaneRequirements,
        columns: int,
        order: ValueOrder,
    ) -> None:
        """`columns` of the input; `order` is that of keys."""
        self.make = make
        self.length = length
        self.slide = slide
        self._wanted = wanted
        self._columns = columns
        self._order = order
        #: Where it may share panes, and by which key others find that.
        self.windows: SharedPanes | None = None
        self._found_in: tuple[SharingPool, Hashable] = {}, None
        self.own: SlidingAggregate | None = make()
        self.calls: tuple[AggregateSpec, ...] = self.own.calls
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

    # ------------------------------------------------------------ sharing

    def read_from(self, sources: tuple[int, ...], pool: SharingPool) -> None:
        self.go_alone()
        pane = gcd(self.length, self.slide)
        key = (sources[0], self._wanted, pane)
        self._found_in = pool, key
        if key not in pool:
            pool[key] = SharedPanes(self._wanted, pane, self._columns, self._order)
        pool[key].add(self)

    def let_share(self) -> None:
        self.may_share = True

    def share_from(self, at: Frontier) -> None:
        if self.windows is not None:
            self.windows.welcome(self, at)

    def go_alone(self) -> None:
        self._leave()
        self.windows = None
        assert self.own is not None
        self.own.reduction = None

    def close(self) -> None:
        self._leave(for_good=True)

    def _leave(self, *, for_good: bool = False) -> None:
        if self.windows is not None:
            self.windows.leave(self, for_good=for_good)
            if self.windows.is_empty:
                pool, key = self._found_in
                del pool[key]

    @property
    def shared_state(self) -> SharedPanes | None:
        return self.windows

    def fellows(self) -> Sequence[Operator]:
        return () if self._shared is None else self._shared.members

    @property
    def _shared(self) -> SharedPanes | None:
        """Where its panes are, if it shares them."""
        return self.windows if self.own is None else None

    @property
    def _alone(self) -> SlidingAggregate:
        """As it would be by itself."""
        return self.own if self.own is not None else cast("SharedPanes", self.windows).export(self)

    def by_itself(self) -> SlidingAggregate:
        return self._alone

    # ------------------------------------------------------------ the rest is its own's, or that of its part

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
        return self._alone.held_words() if self._shared is None else self._shared.words_of(self)

    def take_over(self, other: Operator, places: tuple[int, ...], at: int) -> None:
        assert self.own is not None
        self.own.take_over(other, places, at)

    def snapshot(self) -> State:
        return self._alone.snapshot()

    def restore(self, state: State) -> None:
        assert self.own is not None
        self.own.restore(state)
