"""Admission of pushed rows: a bounded queue in front of the pipeline, and what happens when it is full.

A result that has been produced is never lost [WindowJoin]. When the answers' readers cannot keep up,
matching waits, rows queue up here, and when there is no more room the stream's ON PRESSURE policy decides:
the push waits, or rows are refused *before* they are admitted, and counted. Refusing is a decision about
the input, so it is logged as input: a replay with the log refuses the same rows.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO
from zlib import crc32

import numpy as np
import numpy.typing as npt

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.engine.batch import I64
from kasen.errors import DataError
from kasen.runtime.input.feed import InputRows
from kasen.types import OnPressure, Pressure

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class PushedRows:
    """Rows of one push; a row's position minus `offset` is its row in the chunk."""

    stream: str
    rows: InputRows
    dead: list[DeadLetter]
    chunk: Chunk
    offset: int

    def __len__(self) -> int:
        return len(self.rows)

    def split(self, count: int) -> tuple[PushedRows, PushedRows]:
        """The first `count` rows, with the dead letters, and the others."""
        first, rest = self.rows.part(0, count), self.rows.part(count, len(self))
        return self._with(first, self.dead), self._with(rest, [])

    def only(self, kept: Mask) -> PushedRows:
        return self._with(self.rows.take(kept), self.dead)

    def _with(self, rows: InputRows, dead: list[DeadLetter]) -> PushedRows:
        return PushedRows(self.stream, rows, dead, self.chunk, self.offset)


@dataclass(frozen=True, slots=True)
class Punctuation:
    """No row below `ts` follows on this stream; it keeps its place among the rows."""

    stream: str
    ts: int


@dataclass(slots=True)
class Admission:
    """What became of a stream's pushed rows. Whatever was pushed is admitted, shed, or in a waiting push."""

    admitted: int = 0
    waiting: int = 0
    shed: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        return self.shed.total()


class Gate:
    """What was pushed and has not run yet, in the order of pushing. Each stream has room for `most` rows.

    Not for several threads at a time: whoever owns it holds a lock.
    """

    def __init__(
        self,
        policies: Mapping[str, OnPressure],
        most: int,
        seed: int = 0,
        log: ShedLog | None = None,
        replay: Mapping[str, I64] | None = None,
        keep: Callable[[I64], None] = lambda _: None,
    ) -> None:
        """`replay` has the positions that an earlier run refused: then only those are, and pushes wait.

        `keep` is told of columns that are copied, whose texts are to be held.
        """
        self._policies = policies
        self.most = most
        self._seed = seed
        self._log = log
        self._replay = replay
        self._keep = keep
        self._queue: deque[PushedRows | Punctuation] = deque()
        self.streams = {name: Admission() for name in policies}

    def __bool__(self) -> bool:
        return bool(self._queue)

    def punctuate(self, stream: str, ts: int) -> None:
        self._queue.append(Punctuation(stream, ts))

    def admit(self, pushed: PushedRows) -> PushedRows | None:
        """Takes rows in as the stream's policy says; returns those that must wait outside for room."""
        name = pushed.stream
        admission, on = self.streams[name], self._policies[name]
        if self._replay is not None:
            pushed = self._shed_again(pushed)
        policy = Pressure.BLOCK if self._replay is not None else on.policy
        if policy is Pressure.OLDEST:
            pushed = self._push_out(pushed)
        elif policy is Pressure.SAMPLE:
            pushed = self._sample(pushed, on.keep)
        room = self.most - admission.waiting
        rest: PushedRows | None = None
        if len(pushed) > room:
            pushed, rest = pushed.split(room)
            if policy is not Pressure.BLOCK:
                self._shed(name, rest.rows.position, "full" if policy is Pressure.SAMPLE else "newest")
                rest = None
        admission.admitted += len(pushed)
        admission.waiting += len(pushed)
        if len(pushed) or pushed.dead:
            self._queue.append(pushed)
        return rest

    def give_up(self, rest: PushedRows) -> None:
        """Rows whose push has waited in vain: refused like those of the other policies."""
        self._shed(rest.stream, rest.rows.position, "waited in vain")

    def take(self, most: int) -> PushedRows | Punctuation | None:
        """The next to run: at most that many rows of one push, or a punctuation."""
        if not self._queue:
            return None
        first = self._queue.popleft()
        if isinstance(first, Punctuation):
            return first
        if len(first) > most:
            first, rest = first.split(most)
            self._queue.appendleft(rest)
        self.streams[first.stream].waiting -= len(first)
        return first

    # ------------------------------------------------------------ shedding

    def _push_out(self, pushed: PushedRows) -> PushedRows:
        """SHED OLDEST: the stream's rows that have waited longest make room, then the push's own first."""
        name = pushed.stream
        admission = self.streams[name]
        excess = admission.waiting + len(pushed) - self.most
        kept: list[PushedRows | Punctuation] = []
        while excess > 0 and self._queue:
            first = self._queue.popleft()
            if isinstance(first, PushedRows) and first.stream == name:
                out, first = first.split(min(excess, len(first)))
                first.dead = out.dead + first.dead
                admission.waiting -= len(out)
                admission.admitted -= len(out)
                excess -= len(out)
                self._shed(name, out.rows.position, "oldest")
                if not len(first) and not first.dead:
                    continue
            kept.append(first)
        self._queue.extendleft(reversed(kept))
        if excess > 0:
            out, pushed = pushed.split(excess)
            pushed.dead = out.dead + pushed.dead
            self._shed(name, out.rows.position, "oldest")
        return pushed

    def _sample(self, pushed: PushedRows, keep: float) -> PushedRows:
        """SHED SAMPLE: what would fill the second half of the room is thinned out by its position's hash."""
        free = max(0, self.most // 2 - self.streams[pushed.stream].waiting)
        if len(pushed) <= free:
            return pushed
        kept = chosen(pushed.stream, pushed.rows.position, self._seed, keep)
        kept[:free] = True
        self._shed(pushed.stream, pushed.rows.position[~kept], "sample")
        return self._only(pushed, kept)

    def _shed_again(self, pushed: PushedRows) -> PushedRows:
        assert self._replay is not None
        again = np.isin(pushed.rows.position, self._replay.get(pushed.stream, np.empty(0, np.int64)))
        if not again.any():
            return pushed
        self._shed(pushed.stream, pushed.rows.position[again], "replay")
        return self._only(pushed, ~again)

    def _only(self, pushed: PushedRows, kept: Mask) -> PushedRows:
        copied = pushed.only(kept)
        for column in copied.rows.data:
            self._keep(column)
        return copied

    def _shed(self, stream: str, positions: I64, reason: str) -> None:
        if len(positions):
            self.streams[stream].shed[reason] += len(positions)
            if self._log is not None:
                self._log.write(stream, positions, reason)


def chosen(stream: str, positions: I64, seed: int, keep: float) -> Mask:
    """Which rows a sample keeps: the same for the same stream, position and seed, on every machine."""
    mixed = positions.astype(np.uint64) + np.uint64((seed << 32 | crc32(stream.encode())) & (2**64 - 1))
    # The finaliser of SplitMix64: every bit of the position moves every bit of the hash.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    kept: Mask = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53 < keep
    return kept


class ShedLog:
    """The refused rows as lines of JSON: stream, first and last position, reason. Each line is on disk
    before the rows after it are admitted."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, stream: str, positions: I64, reason: str) -> None:
        for first, last in _stretches(positions):
            entry = {"stream": stream, "first": first, "last": last, "reason": reason}
            self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> dict[str, I64]:
    """The refused positions of each stream. A line that a crash cut off counts for nothing."""
    found: dict[str, list[I64]] = {}
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            entry = json.loads(line)
            stretch = np.arange(entry["first"], entry["last"] + 1, dtype=np.int64)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: line {number} is not an entry of a log of refused rows") from error
        found.setdefault(entry["stream"], []).append(stretch)
    return {stream: np.concatenate(stretches) for stream, stretches in found.items()}


def _stretches(positions: I64) -> Iterable[tuple[int, int]]:
    """Runs of neighbouring positions, as first and last."""
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    for part in np.split(positions, cuts):
        yield int(part[0]), int(part[-1])
