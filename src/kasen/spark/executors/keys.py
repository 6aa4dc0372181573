"""The keys of a micro-batch's tuples in reading order: what the driver's clock needs of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from kasen.connect.chunk import DeadLetter
from kasen.engine.batch import I64
from kasen.runtime.durable.arrays import unpack_arrays

#: The texts of a file's bad rows in order, read from it again: by stream and file.
BadTexts = Callable[[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class FileTuples:
    """A file's tuples: the positions from `first` on, whose lines begin at `line`; `where` tells the file."""

    name: str
    first: int
    count: int
    line: int
    where: str


@dataclass(slots=True)
class ReadTuples:
    """A stream's tuples as read: files in the order of their names, and in each by place.

    `ts` and `position` are the good ones'. `runs` are as Orders have them. `failed` has how many operations
    failed in the tuple at a position, if any did.
    """

    ts: I64
    position: I64
    runs: I64
    files: list[FileTuples]
    dead: list[DeadLetter]
    failed: dict[int, int]

    def file(self, position: int) -> FileTuples:
        return max((each for each in self.files if each.first <= position), key=lambda each: each.first)

    def refuse(self, name: str, position: int, reason: str, raw: str) -> DeadLetter:
        file = self.file(position)
        return DeadLetter(name, file.line + position - file.first, reason + file.where, raw)

    def place(self, position: int) -> int:
        """Where Spark saw the tuple at a position."""
        place, first = max(self.runs.T.tolist(), key=lambda run: (run[1] <= position, run[1]))
        return int(place + position - first)


@dataclass(slots=True)
class _TupleRun:
    """Tuples that follow one another in a file, as a task saw them."""

    file: str
    block: int
    place: int
    ts: I64
    bad: list[tuple[int, str, str | None]]
    failed: list[tuple[int, int]]


def read_keys(
    packed: Sequence[bytes],
    counts: dict[str, int],
    folders: frozenset[str],
    headed: frozenset[str],
    texts: BadTexts,
    find: Callable[[str, int], tuple[str, int]],
) -> dict[str, ReadTuples]:
    """What the scan's tasks saw, by stream. `counts` has how many tuples came before; it is updated.

    Dead letters of streams in `folders` tell the file. The files of streams in `headed` begin with a header.
    """
    runs: dict[str, list[_TupleRun]] = {}
    for each in packed:
        state = unpack_arrays(each)["keys"]
        notes = json.loads(state["texts"].tobytes())
        start = 0
        for name, block, place, count in notes["runs"]:
            bad = [found for found in notes["bad"] if place <= found[0] < place + count]
            failed = [found for found in notes["failed"] if place <= found[0] < place + count]
            run = _TupleRun(*find(name, block), place, state["ts"][start : start + count], bad, failed)
            runs.setdefault(name, []).append(run)
            start += count
    return {
        name: _Reader(name, counts, texts, 2 if name in headed else 1, name in folders).read(each)
        for name, each in runs.items()
    }


@dataclass(slots=True)
class _Reader:
    """Puts a stream's runs in order. The first row of a file is at the line `first`."""

    name: str
    counts: dict[str, int]
    texts: BadTexts
    first: int
    tells_file: bool
    dead: list[DeadLetter] = field(default_factory=list)

    def read(self, runs: list[_TupleRun]) -> ReadTuples:
        runs.sort(key=lambda run: (run.file, run.block, run.place))
        position = self.counts.get(self.name, 0)
        ts, positions, failed = [], [], dict[int, int]()
        places: list[tuple[int, int]] = []
        files: list[FileTuples] = []
        for name, own in groupby(runs, lambda run: run.file):
            begin = position
            where = f" ({name})" if self.tells_file else ""
            bad: list[tuple[int, str, str | None]] = []
            for run in own:
                is_good = np.ones(len(run.ts), np.bool_)
                for place, why, raw in run.bad:
                    is_good[place - run.place] = False
                    bad.append((self.first + position - begin + place - run.place, why + where, raw))
                ts.append(run.ts[is_good])
                positions.append(np.arange(position, position + len(run.ts))[is_good])
                places.append((run.place, position))
                failed |= {position + place - run.place: count for place, count in run.failed}
                position += len(run.ts)
            files.append(FileTuples(name, begin, position - begin, self.first, where))
            self._bury(name, bad)
        self.counts[self.name] = position
        ordered = np.ascontiguousarray(np.array(sorted(places), np.int64).T)
        return ReadTuples(np.concatenate(ts), np.concatenate(positions), ordered, files, self.dead, failed)

    def _bury(self, file: str, bad: list[tuple[int, str, str | None]]) -> None:
        raws: Iterable[str | None] = [raw for _, _, raw in bad]
        if None in raws:
            raws = self.texts(self.name, file)
        for (line, why, _), raw in zip(bad, raws, strict=True):
            self.dead.append(DeadLetter(self.name, line, why, raw or ""))
