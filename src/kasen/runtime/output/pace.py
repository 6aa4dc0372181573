"""How many rows run at once, so that their answers fit into memory.

A thousand queries that pass one row each make a thousand answers of it, and all answers of a run exist at
once. So a run takes no more rows than answers are expected for that fit into a limit, by what the runs
before it brought. Runs are cut between different times only: one time's answers exist at once however many
they are. Answers never tell how runs were cut.
"""

from __future__ import annotations

#: The answers of a run are expected to take at most so many bytes.
MOST_BYTES = 1 << 28
#: Runs of fewer rows are not worth cutting: what a step costs whatever comes would be most of the cost.
_LEAST_ROWS = 1024
#: Before anything is known: every row is in the answer of every query, with so many bytes.
_FIRST_GUESS = 80.0
#: By how much less is expected after a run that brought less. More is expected at once.
_FALL = 4


class Pace:
    """Learns from answers how many bytes a row brings.

    What it says depends on the answers it has seen and on nothing else: a new one that sees the same
    answers says the same.
    """

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._a_row = 0.0
        self._queries = 0

    def most(self, queries: int) -> int:
        """How many rows to run next, of a pipeline with so many queries."""
        if queries > self._queries:  # nobody has seen what the new ones say
            self._a_row += (queries - self._queries) * _FIRST_GUESS
        self._queries = queries
        return max(_LEAST_ROWS, int(self._limit / self._a_row)) if self._a_row else _LEAST_ROWS

    def saw(self, rows: int, size: int) -> None:
        """So many rows brought answers of so many bytes."""
        if rows >= _LEAST_ROWS:  # else it was not this that limited them
            self._a_row = max(size / rows, self._a_row / _FALL)
