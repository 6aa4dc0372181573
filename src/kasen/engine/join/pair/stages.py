"""The join of two windows on two cores, in two stages that take about as long as each other.

Here, a piece's arrivals enter their chains, one after the other; that needs the table. There, meanwhile, the
partners of the last piece's arrivals are found, along links that nobody changes any more, and their pairs are
written. Whichever core is ready first places the rows of the next piece. Who does what, and when, changes
nothing in what is found: what an arrival meets is decided when it enters.

Where a piece has an instant that must be done by itself (see kernels/pair_join), both stages of it are
done here, and only its pairs are written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from kasen.engine.batch import I64, Batch
from kasen.engine.join.pair.kernels import pair_join as kernel
from kasen.engine.join.pair.kernels import stages as stages
from kasen.engine.join.pair.match import (
    Arrivals,
    PairMatch,
    given_back,
    nothing_to_do,
    room_for_pairs,
    verified,
    wider,
)
from kasen.engine.join.pair.output import I32, PairOutput
from kasen.engine.join.pair.rows import PairRows, Pieces
from kasen.engine.parallel import both

Result = TypeVar("Result")


class _EnteredPiece:
    """A piece whose arrivals have entered: what they found in the table, block by block."""

    def __init__(self, blocks: int) -> None:
        self.works: I32 = np.empty((blocks, kernel.WORK, kernel.BLOCK), np.int32)
        self.sizes: I64 = np.empty(blocks, np.int64)


class _NextPiece:
    """The rows of the next piece, to be placed behind those of this."""

    def __init__(self, rows: PairRows, inputs: Sequence[Batch], spans: Pieces, behind: Pieces) -> None:
        self._place = partial(rows.place, inputs=inputs, spans=spans, behind=behind)
        self._sides = iter((0, 1))
        #: Of each side, once it is placed.
        self.any_nulls = [False, False]

    def place(self) -> None:
        for side in self._sides:  # of which each core takes the next
            self.any_nulls[side] = self._place(side)


class PairStages:
    """For pieces of up to `most` arrivals; larger ones are matched as on one core."""

    def __init__(self, match: PairMatch, most: int) -> None:
        self._match = match
        blocks = most // kernel.BLOCK + 1
        # One is filled while the pairs of the other are found.
        self._entering, self._entered = _EnteredPiece(blocks), _EnteredPiece(blocks)
        # What the second stage has for itself.
        self._cursor: I64 = match.cursor.copy()
        self._found: I32 = np.empty_like(match.found)
        self._pairs = room_for_pairs()

    def run(
        self,
        answer: PairOutput,
        inputs: Sequence[Batch],
        pieces: Sequence[Pieces],
        arrivals_of: Callable[[Pieces], Arrivals],
    ) -> None:
        """Joins one piece after the other."""
        rows = self._match.rows
        # What is left to do of the last piece, and the oldest rows that this may read.
        rest, since = nothing_to_do, rows.starts()
        ahead: _NextPiece | None = None
        for spans, after in zip(pieces, [*pieces[1:], None], strict=True):
            if ahead is not None:
                rows.begin(spans, ahead.any_nulls)
            else:
                if rows.would_overwrite(spans, since):
                    rest()
                    rest = nothing_to_do
                both(rest, partial(rows.receive, inputs, spans))
                rest = nothing_to_do
            arrivals, since = arrivals_of(spans), rows.starts()
            ahead = None
            if after is not None and not rows.must_move(spans, after):
                ahead = _NextPiece(rows, inputs, after, spans)
            enter = partial(self._enter, arrivals)
            _, count = both(partial(_then_place, rest, ahead), partial(_then_place, enter, ahead))
            if count is None:
                rest = self._expanding(answer, arrivals)
            else:
                rest = self._match.writing(answer, count, arrivals)
        rest()

    def _enter(self, arrivals: Arrivals) -> int | None:
        """The first stage. If the second had to be done as well, how many pairs there are."""
        match, rows, to = self._match, self._match.rows, self._entering
        match.begin()
        cursor = match.cursor
        cursor[[kernel.BLOCKS_ENTERED, kernel.BLOCKS_EXPANDED]] = 0
        while status := stages.enter_piece(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads, *arrivals, cursor, to.works,
            to.sizes, match.words,
        ):  # fmt: skip
            if status == kernel.SPECIAL:
                break
            match.make_slots()
        rows.used = int(cursor[kernel.USED])
        if status == kernel.DONE:
            return None
        cursor[kernel.EXPANDED] = 0
        while stages.expand_piece(rows.cfg, rows.links, cursor, to.works, to.sizes, match.found, match.pairs):
            match.widen()
        return match.go_on(arrivals)

    def _expanding(self, answer: PairOutput, arrivals: Arrivals) -> Callable[[], None]:
        """The second stage of the arrivals that have just entered."""
        rows, piece = self._match.rows, self._entering
        self._entering, self._entered = self._entered, piece
        blocks = int(self._match.cursor[kernel.BLOCKS_ENTERED])
        store, links, cfg = rows.store, rows.links, rows.cfg.copy()  # rows may move meanwhile

        def expand() -> None:
            cursor = self._cursor
            cursor[[kernel.TAKEN, kernel.WRITTEN, kernel.EXPANDED, kernel.BLOCKS_EXPANDED]] = 0
            cursor[kernel.BLOCKS_ENTERED] = blocks
            while stages.expand_piece(cfg, links, cursor, piece.works, piece.sizes, self._found, self._pairs):
                self._pairs = wider(self._pairs)
            count = verified(store, cfg, rows.keys, self._pairs, int(cursor[kernel.WRITTEN]))
            answer.write(answer.make_room(count), store, cfg, self._pairs, count, *arrivals[:2])
            self._pairs = given_back(self._pairs, count)

        return expand


def _then_place(work: Callable[[], Result], ahead: _NextPiece | None) -> Result:
    result = work()
    if ahead is not None:
        ahead.place()
    return result
