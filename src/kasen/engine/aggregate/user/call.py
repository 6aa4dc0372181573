"""One call of a user-defined aggregate: runs the user's code on the words of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kasen.aggregates import UserAggregate
from kasen.engine.aggregate.user.state_text import ALLOWED, UnsavableState, apart, to_json
from kasen.engine.aggregate.user.values import order, reader, writer
from kasen.engine.batch import Batch
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import QueryError
from kasen.types import Type

#: The arguments of a row, as words; and a result: its word, and whether it is NULL.
Words = tuple[int, ...]
Value = tuple[int, bool]

NOTHING: Value = (0, True)


@dataclass(frozen=True, slots=True)
class FailedState:
    """Stands for a state that the user's code could not make."""

    message: str


class UserCall:
    """States are handed through; a Failed one makes everything that it goes into Failed, and NULL of that."""

    def __init__(
        self,
        aggregate: UserAggregate,
        columns: tuple[int, ...],
        types: tuple[Type, ...],
        returns: Type,
        dictionary: Dictionary,
        failures: Failures,
    ) -> None:
        self._name = aggregate.name
        self._columns = columns
        self._readers = [reader(type_, dictionary) for type_ in types]
        self._writer = writer(returns, dictionary)
        self._failures = failures
        self._is_checked = False
        try:
            self._code = aggregate.implementation()
        except Exception as error:
            raise QueryError(f"aggregate {self._name} cannot be made: {_said(error)}") from error
        #: Whether rows can be taken out of a state again.
        self.removes = callable(getattr(self._code, "remove", None))

    def words(self, batch: Batch) -> list[Words | None]:
        """The arguments of each row; None where one of them is NULL, as aggregates do not see such rows."""
        mask = sum(1 << column for column in set(self._columns))
        rows = zip(*(batch.data[column].tolist() for column in self._columns), strict=True)
        return [None if nulls & mask else row for row, nulls in zip(rows, batch.nulls.tolist(), strict=True)]

    def init(self) -> object:
        try:
            return self._code.init()
        except Exception as error:
            return FailedState(f"{self._name}: init() failed: {_said(error)}")

    def add(self, state: object, words: Words, times: int = 1) -> object:
        """The state with a row added so many times; taken out again if `times` is below zero."""
        if isinstance(state, FailedState):
            return state
        method = self._code.add if times > 0 else self._code.remove
        values: tuple[object, ...] = words
        try:
            values = self._values(words)
            for _ in range(abs(times)):
                state = method(state, *values)
        except Exception as error:
            shown = ", ".join(repr(value) for value in values)
            return FailedState(f"{self._name}({shown}) failed: {_said(error)}")
        if not self._is_checked:
            self._check(state)
        return state

    def merge(self, one: object, other: object) -> object:
        """Both states in one. Neither is changed, whatever the user's code does to what it gets."""
        if isinstance(one, FailedState):
            return one
        if isinstance(other, FailedState):
            return other
        try:
            return self._code.merge(apart(one), apart(other))
        except Exception as error:
            return FailedState(f"{self._name}: merge({one!r}, {other!r}) failed: {_said(error)}")

    def fold(self, bag: Mapping[Words, int]) -> object:
        """The state of a bag of rows, added in the order of their values, so that it is always the same."""
        state = self.init()
        for words in self.in_order(bag):
            state = self.add(state, words, bag[words])
        return state

    def in_order(self, rows: Iterable[Words]) -> list[Words]:
        return sorted(rows, key=self._order)

    def result(self, state: object) -> Value:
        """What the state amounts to. A failure gives NULL and is counted."""
        if not isinstance(state, FailedState):
            try:
                value = self._code.result(apart(state))
                return NOTHING if value is None else (self._writer(value), False)
            except Exception as error:
                state = FailedState(f"{self._name}: result({state!r}) failed: {_said(error)}")
        self._failures.note(state.message)
        return NOTHING

    def nothing(self) -> Value:
        """The value of a group of no rows."""
        return self.result(self.init())

    def _values(self, words: Words) -> tuple[object, ...]:
        return tuple(read(word) for read, word in zip(self._readers, words, strict=True))

    def _order(self, words: Words) -> tuple[object, ...]:
        try:
            return tuple(order(value) for value in self._values(words))
        except OverflowError:  # a time that Python has no name for; adding it fails too
            return words

    def _check(self, state: object) -> None:
        """Looks at the first state: what cannot be saved is told now, not at the first checkpoint."""
        self._is_checked = True
        try:
            to_json(state)
        except UnsavableState as fault:
            said = f"aggregate {self._name} keeps a {fault} in its state, which cannot be saved"
            raise QueryError(said, remedy=f"make states of {ALLOWED}") from None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
