"""What every operator keeps to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, Frontier
from kasen.errors import InternalError

#: An operator's state at rest: named arrays, nothing else, so that it can be written as Arrow or npz.
State = dict[str, npt.NDArray[Any]]


class Operator(Protocol):
    """A running step.

    `process` is called with ever later frontiers. Each input batch holds that input's changes at
    instants from the last frontier up to (not including) `upto`, in instant order; the answer holds the
    output's changes in the same range, in instant order. So an answer never depends on how the instants
    were cut into calls. Batches are not kept or changed by the caller's side after the call, and an
    operator must not change its inputs.
    """

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch: ...

    def next_instant(self) -> Frontier | None:
        """The first instant at which this operator will put something out without input, or None."""
        ...

    def snapshot(self) -> State:
        """Every code of a text that the state holds is a word of an int64 array here, unless the operator
        is a WordHolder."""
        ...

    def restore(self, state: State) -> None:
        """Called on a new operator, before the first `process`."""
        ...

    def needs_input_since(self) -> Frontier | None:
        """The oldest instant whose input the state depends on; None if it holds none.

        BEGIN means: the state cannot be rebuilt from recent input.
        """
        ...


@runtime_checkable
class Holder(Protocol):
    """An operator that can tell the rows of its relation as they are after the last `process`."""

    def contents(self) -> npt.NDArray[np.int64]:
        """The rows now in the relation, as a batch's data is laid out."""
        ...


@runtime_checkable
class WordHolder(Protocol):
    """An operator whose snapshot does not tell every word that it holds as numbers."""

    def held_words(self) -> Iterable[I64]:
        """Arrays with every word of the state that may be the code of a text, and others."""
        ...


def words_of(operator: Operator) -> Iterable[I64]:
    """Every word that an operator holds and that may be the code of a text: what it does not tell is lost."""
    if isinstance(operator, WordHolder):
        yield from operator.held_words()
        return
    yield from words_in(operator.snapshot())


def words_in(state: State) -> Iterable[I64]:
    """The words of a state that has nothing but words."""
    for name, array in state.items():
        if array.dtype not in (np.int64, np.uint64):
            raise InternalError(f"the state's {name} has {array.dtype}, which may hide codes of texts")
        yield array.view(np.int64)


class Stateless:
    """The parts of the contract that a step without memory has."""

    def next_instant(self) -> Frontier | None:
        return None

    def snapshot(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        del state

    def needs_input_since(self) -> Frontier | None:
        return None
