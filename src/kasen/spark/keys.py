"""The keys of a micro-batch's tuples in reading order: what the driver's clock needs of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasen.connect.chunk import DeadLetter
from kasen.operators.batch import I64
from kasen.runtime.arrays import unpack_arrays


@dataclass(slots=True)
class Reading:
    """A stream's tuples as read: files in the order of their names, and in each by place.

    `runs` are as Orders have them. `firsts` has for each run its first position, that position's line, and
    the file's name as a dead letter tells it.
    """

    ts: I64
    position: I64
    runs: I64
    firsts: list[tuple[int, int, str]]
    dead: list[DeadLetter]

    def refuse(self, name: str, position: int, reason: str, raw: str) -> DeadLetter:
        first, line, where = max(each for each in self.firsts if each[0] <= position)
        return DeadLetter(name, line + position - first, reason + where, raw)

    def place(self, position: int) -> int:
        """Where Spark saw the tuple at a position."""
        place, first = max(self.runs.T.tolist(), key=lambda run: (run[1] <= position, run[1]))
        return int(place + position - first)


@dataclass(slots=True)
class _Run:
    """Tuples that follow one another in a file, as a task saw them."""

    file: str
    block: int
    place: int
    ts: I64
    bad: list[tuple[int, str, str]]


def read_keys(
    packed: Sequence[bytes], counts: dict[str, int], folders: frozenset[str], headed: frozenset[str]
) -> dict[str, Reading]:
    """What the scan's tasks saw, by stream. `counts` has how many tuples came before; it is updated.

    Dead letters of streams in `folders` tell the file. The files of streams in `headed` begin with a header.
    """
    runs: dict[str, list[_Run]] = {}
    for each in packed:
        state = unpack_arrays(each)["keys"]
        texts = json.loads(state["texts"].tobytes())
        start = 0
        for name, file, block, place, count in texts["runs"]:
            bad = [(p, why, raw) for p, why, raw in texts["bad"] if place <= p < place + count]
            run = _Run(file, block, place, state["ts"][start : start + count], bad)
            runs.setdefault(name, []).append(run)
            start += count
    found = {}
    for name, each_run in runs.items():
        each_run.sort(key=lambda run: (run.file, run.block, run.place))
        first = 2 if name in headed else 1
        found[name] = _reading(name, each_run, counts, first, tells_file=name in folders)
    return found


def _reading(name: str, runs: list[_Run], counts: dict[str, int], first: int, *, tells_file: bool) -> Reading:
    """`first` is the line of a file's first row."""
    position = counts.get(name, 0)
    ts, positions, firsts, dead = [], [], [], []
    places: list[tuple[int, int]] = []
    file, line = "", first
    for run in runs:
        line = line if run.file == file else first
        file = run.file
        where = f" ({file})" if tells_file else ""
        is_good = np.ones(len(run.ts), np.bool_)
        for place, why, raw in run.bad:
            is_good[place - run.place] = False
            dead.append(DeadLetter(name, line + place - run.place, why + where, raw))
        ts.append(run.ts[is_good])
        positions.append(np.arange(position, position + len(run.ts))[is_good])
        firsts.append((position, line, where))
        places.append((run.place, position))
        position += len(run.ts)
        line += len(run.ts)
    counts[name] = position
    ordered = np.array(sorted(places), np.int64).T
    return Reading(np.concatenate(ts), np.concatenate(positions), np.ascontiguousarray(ordered), firsts, dead)
