"""LIKE: % stands for any characters, _ for one; there is no escape character."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Matcher = Callable[[str], bool]


def like(text: str, pattern: str) -> bool:
    return _matcher(pattern)(text)


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Matcher:
    """Each piece between %'s is taken where it first fits, which is never worse than a later place.

    A single regular expression would try all places of every piece against those of the others.
    """
    first, *rest = [_piece(piece) for piece in pattern.split("%")]
    if not rest:
        return lambda text: first.fullmatch(text) is not None
    *middle, last = rest
    last_length = len(pattern) - pattern.rfind("%") - 1

    def matches(text: str) -> bool:
        found = first.match(text)
        for piece in middle:
            if found is None:
                return False
            found = piece.search(text, found.end())
        end = len(text) - last_length
        return found is not None and end >= found.end() and last.match(text, end) is not None

    return matches


def _piece(piece: str) -> re.Pattern[str]:
    return re.compile("".join("." if char == "_" else re.escape(char) for char in piece), re.DOTALL)
