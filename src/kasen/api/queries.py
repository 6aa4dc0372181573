"""The queries of a pipeline by name: live ones, and dropped ones that the program has a use for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from weakref import WeakValueDictionary

from kasen.api.query import Query, QueryOwner, unread_of
from kasen.api.unread import UnreadChanges
from kasen.cql.bound import CatalogChange, Register, RegisteredQuery
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError
from kasen.runtime.output.answer_store import AnswerStore
from kasen.runtime.pipeline import Answer
from kasen.runtime.pushed import OUTPUT_ROWS
from kasen.types import Type

#: So many queries that were dropped can still be asked for; beyond that, those with unread changes.
_MOST_DROPPED = 100


class Queries:
    """Hands answers to their queries, and knows which of these is furthest behind in being read."""

    def __init__(self, owner: QueryOwner) -> None:
        self._owner = owner
        self._by_name: dict[str, Query] = {}
        #: Queries that were dropped and can be asked for, the one to look at next first; and others, as long
        #: as somebody holds them.
        self._dropped: dict[str, None] = {}
        self._left: WeakValueDictionary[str, Query] = WeakValueDictionary()
        self._store = AnswerStore()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Query:
        found = self._by_name.get(name.lower())
        if found is None:
            known = ", ".join(query.name for query in self._by_name.values()) or "none yet"
            raise DataError(f"no query {name!r}; registered are: {known}")
        return found

    def reset(self, queries: Iterable[RegisteredQuery], time: Type) -> None:
        """Before anything runs: these are all the queries that there are."""
        given = {query.name.lower(): query for query in queries}
        self._by_name = {name: query for name, query in self._by_name.items() if name in given}
        self.enter(given.values(), time)

    def enter(self, queries: Iterable[RegisteredQuery], time: Type, *, made: bool = True) -> None:
        """The readers of a query read on if another one comes under its name.

        Its columns are those of the new one from then on; unless `made`, that one has yet to come.
        """
        for query in queries:
            known = self._by_name.get(query.name.lower())
            if known is None:
                self._by_name[query.name.lower()] = Query(UnreadChanges(query, time), self._owner)
            elif made:
                unread_of(known).follow(query)

    def follow(self, change: CatalogChange, time: Type, *, made: bool = True) -> None:
        """Queries came and went, or will. One that went long ago stays while the program has a use for it."""
        for action in change.actions:
            if isinstance(action, Register):
                name = action.query.name.lower()
                left = self._left.pop(name, None)
                if left is not None:
                    self._by_name.setdefault(name, left)
                self._dropped.pop(name, None)
                self.enter([action.query], time, made=made)
            elif made and action.name.lower() in self._by_name:
                self._dropped[action.name.lower()] = None
        # Two for each that was dropped now: so those that stay hold nobody up, and the others get less.
        for _ in range(min(2 * len(change.actions), len(self._dropped) - _MOST_DROPPED)):
            name = next(iter(self._dropped))
            del self._dropped[name]
            if unread_of(self._by_name[name]).is_needed:
                self._dropped[name] = None
            else:
                self._left[name] = self._by_name.pop(name)

    def deliver(
        self,
        answer: Answer,
        epoch: int,
        texts: Dictionary,
        wait: Callable[[UnreadChanges], None] | None = None,
    ) -> None:
        """Hands out the answers of an epoch; each query's when `wait` has returned."""
        for name, batch in answer.changes.items():
            if len(batch):
                unread = unread_of(self._by_name[name.lower()])
                if wait is not None:
                    wait(unread)
                # Between a change and the answers to it, this may be what ran before.
                query = answer.queries.get(name)
                if query is not None and query is not unread.query:
                    unread.follow(query)
                unread.deliver(epoch, batch, texts, self._store)
        self._store.begin()

    def room(self, most: int) -> tuple[str, int]:
        """The query whose reader is furthest behind, and how many more changes fit there."""
        behind: UnreadChanges | None = None
        for query in self._by_name.values():  # this is asked several times per push
            unread = unread_of(query)
            if unread.keeps and (behind is None or unread.count > behind.count):
                behind = unread
        return ("", OUTPUT_ROWS) if behind is None else (behind.query.name, most - behind.count)

    def is_read_elsewhere(self, name: str) -> bool:
        """Whether another thread reads a query, by a name that `room` gave."""
        return name != "" and unread_of(self.find(name)).is_read_elsewhere
