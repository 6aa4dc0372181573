"""The operator contract: everything that the runtime asks of a running step.

The runtime knows operators by this class alone: it never looks at their classes or at private fields. A step
without memory has to say what `process` does, and nothing else; the defaults here are right for it.

What the loop machine asks of operators that it runs by itself is in loop_parts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import BEGIN, I64, Batch, Frontier
from kasen.engine.window.held_tuples import HeldTuples
from kasen.errors import InternalError

#: An operator's state at rest: named arrays, nothing else, so that it can be written as Arrow or npz.
State = dict[str, npt.NDArray[Any]]

#: What the steps of one graph share, by what it is and which step it reads; see `Operator.read_from`.
SharingPool = dict[Hashable, Any]


class Operator:
    """A running step. One thread at a time uses it, and in this order:

    1. `read_from` when the step gets its place in a graph, and again when it moves to other inputs.
       An operator that is made for a single computation has no place, and works all the same.
    2. Before the first `process`: at most one of `restore`, `take_over`, `count_from` and `count_on`; and
       `begin`, once, unless what it goes on from had begun.
    3. `let_share`, then perhaps `share_from`, once it is part of a graph that runs.
    4. `process`, with ever later frontiers. Between two calls anything that only asks; `go_alone` and
       `end_input` at any time, and `process` goes on after them.
    5. `close`, if the step leaves while others stay. Nothing is called after that. If the whole graph
       goes, nobody is told.
    """

    #: Whether `process` changes nothing but the operator's own state and `shared_state`. Then it may run
    #: beside others on another core. Expressions are not independent (their failures are counted in one
    #: place, and their texts enter the pipeline's dictionary), nor are users' functions; joins say no because
    #: they share their own work between cores.
    is_independent: bool = False

    # ------------------------------------------------------------ running

    def begin(self, at: Frontier) -> None:
        """The pipeline's first instant, or that at which the step comes: what is always there appears now."""

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        """Each input batch holds that input's changes at instants from the last frontier up to (not
        including) `upto`, in instant order; the answer holds the output's changes in the same range, in
        instant order. So an answer never depends on how the instants were cut into calls.

        A graph does not call it if no input has changes and `next_instant` is not before `upto`. Batches are
        not kept or changed by the caller's side after the call, and an operator must not change its inputs.
        """
        raise NotImplementedError

    def next_instant(self) -> Frontier | None:
        """The first instant at which this operator may emit something without input, or None."""
        return None

    def last_instant(self) -> Frontier | None:
        """The last instant at which what a time window here holds now leaves it, or None."""
        return None

    def end_input(self) -> None:
        """The pipeline's input has ended: only windows still move. Delays deliver nothing from now on."""

    def close(self) -> None:
        """The step leaves for good: gives back its part of what is shared."""

    # ------------------------------------------------------------ state

    def snapshot(self) -> State:
        """Every code of a text that the state holds is a word of an int64 array here, or `held_words` tells
        it."""
        return {}

    def restore(self, state: State) -> None:
        """Goes on from a snapshot."""
        del state

    def held_words(self) -> Iterable[I64]:
        """Arrays with every word of the state that may be the code of a text, and others: what it does not
        tell is lost. Whoever has a snapshot of more than words overrides this."""
        return words_in(self.snapshot())

    def needs_input_since(self) -> Frontier | None:
        """The oldest instant whose input the state depends on; None if it holds none.

        BEGIN means: the state cannot be rebuilt from recent input.
        """
        return None

    def oldest(self, position: int) -> Frontier | None:
        """The oldest tuple of an input that the step itself holds in a window; None if it holds none of it,
        or only what follows from windows below, as bags and groups do. By default it has one input."""
        del position
        since = self.needs_input_since()
        return None if since == BEGIN else since

    # ------------------------------------------------------------ for queries that come later

    def contents(self) -> I64 | None:
        """The rows now in the relation, as a batch's data is laid out; None if it cannot tell."""
        return None

    def held_tuples(self, position: int) -> HeldTuples:
        """The tuples of the window behind an input. Asked only of steps that have them (plan/memories)."""
        raise InternalError(f"{type(self).__name__} cannot tell the tuples of its input {position}")

    def take_over(self, other: Operator, places: tuple[int, ...], at: int) -> None:
        """Goes on, at a time, with the groups of another aggregate of the same kind.

        `places` has of each call its place among the other's calls; -1 is COUNT(*).
        """
        del other, places, at
        raise InternalError(f"{type(self).__name__} cannot go on with the groups of another")

    @property
    def groups(self) -> int:
        """How many groups an aggregate has now."""
        return 0

    def config(self) -> list[tuple[str, tuple[int, ...]]]:
        """The configuration tuples that set it up, if any did: where each goes, and what it writes there."""
        return []

    # ------------------------------------------------------------ windows that number tuples

    def counted(self) -> tuple[Frontier, int] | None:
        """The oldest instant held, and how many tuples came before it: what `count_from` needs. None if it
        holds nothing, or does not count tuples."""
        return None

    def count_from(self, oldest: Frontier, before: int) -> None:
        """`before` tuples came before the instant `oldest`; older ones are passed over."""
        raise InternalError(f"{type(self).__name__} does not count tuples from {oldest}, after {before}")

    def count_on(self, first: int) -> None:
        """The next tuple is number `first` of the stream. Only to some windows does that matter."""

    # ------------------------------------------------------------ sharing

    def read_from(self, sources: tuple[int, ...], pool: SharingPool) -> None:
        """The step reads these steps of the graph from now on. In the graph's `pool` it finds, or puts, what
        it has in common with others over the same input. Sharing never shows in answers."""

    def let_share(self) -> None:
        """From now on it may share state with others that are let, too."""

    def share_from(self, at: Frontier) -> None:
        """It has seen nothing and begins at an instant: it may share at once. All that come with it have
        been let share before."""

    def go_alone(self) -> None:
        """It shares nothing any more, as it is part of a loop."""

    @property
    def shared_state(self) -> Hashable | None:
        """What it shares with other steps: of those that share the same, only one runs at a time."""
        return None

    def fellows(self) -> Sequence[Operator]:
        """The steps, itself among them, that share state now."""
        return ()

    def by_itself(self) -> Operator:
        """The operator as it is if it shares nothing."""
        return self


def words_in(state: State) -> Iterable[I64]:
    """The words of a state that has nothing but words."""
    for name, array in state.items():
        if array.dtype not in (np.int64, np.uint64):
            raise InternalError(f"the state's {name} has {array.dtype}, which may hide codes of texts")
        yield array.view(np.int64)


def bound_to_array(bound: Frontier | None) -> I64:
    """An instant as part of a state; empty if there is none."""
    return np.array([] if bound is None else bound, np.int64)


def bound_from_array(array: I64) -> Frontier | None:
    return Frontier(*array.tolist()) if len(array) else None
