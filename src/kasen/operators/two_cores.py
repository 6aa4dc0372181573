"""Long loops over columns on two cores: kernels let go of Python's lock, so a second thread takes a half."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

There = TypeVar("There")
Here = TypeVar("Here")

#: From how many rows on handing a half over costs less than it saves.
_WORTH = 1 << 17

_helper: ThreadPoolExecutor | None = None
_allowed = (os.cpu_count() or 1) > 1


def use_one_core() -> None:
    """For a process that shares its machine with others of its kind, as Spark's workers do."""
    global _allowed
    _allowed = False


def worth(rows: int) -> bool:
    return _allowed and rows >= _WORTH


def both(there: Callable[[], There], here: Callable[[], Here]) -> tuple[There, Here]:
    """Calls both at the same time, and returns what both did. Neither may depend on the other."""
    global _helper
    if _helper is None:
        _helper = ThreadPoolExecutor(1, "kasen-second-core")
    handed = _helper.submit(there)
    mine = here()
    return handed.result(), mine


def middle(sizes: Sequence[int]) -> int:
    """How many of the first pieces have about half of the rows: at least one, and not all."""
    cut, first, total = 1, sizes[0], sum(sizes)
    while cut < len(sizes) - 1 and 2 * first + sizes[cut] < total:
        first += sizes[cut]
        cut += 1
    return cut


def _forget() -> None:
    """A forked process has no other threads than the one that forked it."""
    global _helper
    _helper = None


os.register_at_fork(after_in_child=_forget)
