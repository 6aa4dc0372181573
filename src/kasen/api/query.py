"""The answers of one query, as a program reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kasen.api.unread import ForeachBatch, UnreadChanges
from kasen.connect.plain import Change

if TYPE_CHECKING:  # Spark is loaded when it is first used
    from kasen.spark.scan.sources import Frame

ForeachFrame = Callable[[int, "Frame"], None]


@dataclass(frozen=True, slots=True)
class QueryOwner:
    """What a query asks of its pipeline."""

    #: Whether the pipeline runs in the background.
    is_running: Callable[[], bool]
    #: A reader has taken something: matching may go on.
    make_room: Callable[[], None]
    #: Raises what ended a background run, once.
    tell_error: Callable[[], None]
    #: Raises an error unless the pipeline runs on Spark.
    need_spark: Callable[[], None]
    #: A table as a DataFrame.
    frame: Callable[[pa.Table], Frame]


class Query:
    """A registered query's answers: changes as Arrow tables with columns ts, seq, tick, diff, and its own.

    Every change is handed out once, to whichever of the ways below asks first.
    """

    __slots__ = ("__weakref__", "_owner", "_unread")

    def __init__(self, unread: UnreadChanges, owner: QueryOwner) -> None:
        self._unread = unread
        self._owner = owner

    @property
    def name(self) -> str:
        return self._unread.query.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes that the query makes now."""
        return self._unread.schema

    @property
    def waiting(self) -> int:
        """How many changes wait to be read."""
        return self._unread.count

    def to_arrow(self) -> pa.Table:
        """All changes that have not been handed out yet, as one table.

        A table has one set of columns. If REPLACE gave the query other ones, changes with the new columns
        wait for the next call.
        """
        tables = [piece.table() for piece in self._unread.take_all(self._owner.make_room, alike=True)]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def changes(self) -> list[Change]:
        """All changes that have not been handed out yet, as Python's values: the quickest way for a few."""
        taken = self._unread.take_all(self._owner.make_room)
        return [change for piece in taken for change in piece.changes()]

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes epoch by epoch.

        While the pipeline runs in the background (after `start`) this waits for more until it ends, and
        raises what ended it if that was an error; otherwise it hands out what is there.
        """
        while True:
            piece = self._unread.take_first(self._owner.is_running)
            if piece is None:
                self._owner.tell_error()
                return
            self._owner.make_room()
            yield piece.table()

    def foreach_batch(self, function: ForeachBatch | ForeachFrame, *, frames: bool = False) -> Query:
        """From now on calls `function(epoch, changes)` instead of keeping changes.

        They come as an Arrow table; with `frames`, for engine='spark', as a DataFrame.
        """
        if frames:
            self._owner.need_spark()
            self._unread.call(lambda epoch, table: function(epoch, self._owner.frame(table)))
        else:
            self._unread.call(function)
        return self

    def discard(self) -> Query:
        """From now on keeps nothing: for a query that only others read, or that has a sink of its own."""
        self._unread.discard()
        self._owner.make_room()
        return self


def unread_of(query: Query) -> UnreadChanges:
    """What waits for the readers of a query: for the pipeline, which delivers it."""
    return query._unread
