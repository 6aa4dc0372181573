"""How many rows run at once, so that their answers fit into memory.

A thousand queries that pass one row each make a thousand answers of it, and a query that joins long texts
to longer ones makes megabytes of a row. All answers of a run exist at once. So a run takes no more rows than
answers are expected for that fit into a limit, by what the runs before it brought. Runs are cut between
different times only: one time's answers exist at once however many they are. Answers never tell how runs
were cut.
"""

from __future__ import annotations

#: The answers of a run are expected to take at most so many bytes, ...
MOST_BYTES = 1 << 28
#: ... and the texts it makes a part of that: on their way out there are several copies of a text.
_TEXTS_PART = 4
#: Runs of fewer rows are not worth cutting, unless these take several times as much as the limit.
_LEAST_ROWS = 1024
_SEVERAL = 4
#: Before anything is known: every row is in the answer of every query, with so many bytes.
_FIRST_GUESS = 80.0
#: Before anything is known: a row makes as much text as so many of the longest texts together have.
_FIRST_TEXTS = 100.0
#: By how much less is expected after a run that brought less. More is expected at once.
_FALL = 4


class Pace:
    """Learns from answers how many bytes a row brings.

    What it says depends on what it was told and on nothing else: a new one that is told the same says the
    same.
    """

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._limit = limit
        self._bytes_per_row = 0.0
        self._queries = 0
        #: How much text a row makes, in lengths of the longest text that there is before.
        self._texts_per_row = _FIRST_TEXTS

    def most(self, queries: int, longest: int = 0) -> int:
        """How many rows to run next, of a pipeline with so many queries, and texts of so many characters."""
        if queries > self._queries:  # nobody has seen what the new ones say
            self._bytes_per_row += (queries - self._queries) * _FIRST_GUESS
        self._queries = queries
        by_answers = self._limit / self._bytes_per_row if self._bytes_per_row else _LEAST_ROWS
        if by_answers * _SEVERAL >= _LEAST_ROWS:
            by_answers = max(by_answers, _LEAST_ROWS)
        text_per_row = self._texts_per_row * longest
        return max(
            1, int(min(by_answers, self._limit / _TEXTS_PART / text_per_row) if text_per_row else by_answers)
        )

    def saw(self, rows: int, size: int, text: int = 0, longest: int = 0) -> None:
        """So many rows brought answers of so many bytes, and made so many characters of texts.

        `longest` is what `most` was told before the run.
        """
        if not rows:
            return
        is_telling = rows >= _LEAST_ROWS  # else it may not have been this that limited them
        self._bytes_per_row = max(size / rows, self._bytes_per_row / (_FALL if is_telling else 1))
        if longest:
            found = text / rows / longest
            self._texts_per_row = max(found, self._texts_per_row / (_FALL if text or is_telling else 1))
