"""What every sink keeps to."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Sink(Protocol):
    """Takes a query's changes, as decode.decode makes them, in instant order.

    To write exactly once, a runner calls flush(sync=True), records position() with the rest of its state,
    and after a crash opens the sink at that position, which takes back everything written since.
    """

    def write(self, table: pa.Table) -> None: ...

    def flush(self, sync: bool = False) -> None:
        """Makes all that was written visible to readers; with `sync`, also safe from a power cut."""
        ...

    def position(self) -> int:
        """How much was flushed, in the sink's own units."""
        ...

    def checksum(self) -> str:
        """Of all that was flushed; "" if the sink cannot tell."""
        ...

    def truncate(self, position: int) -> None:
        """Takes back everything behind an earlier position."""
        ...

    def close(self) -> None:
        """Flushes. Nothing is called afterwards."""
        ...
