"""What the benchmarks share: timing, the table that they print, memory of this process."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: ours beside theirs. `ratio` is what the target is about."""

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


class Table:
    """Prints each line as soon as it is measured."""

    def __init__(self, title: str) -> None:
        script = Path(sys.argv[0])
        command = " ".join(["python", "-m", f"{script.parent.name}.{script.stem}", *sys.argv[1:]])
        print(f"# {title}\n# command: {command}\n", flush=True)
        self.missed = 0
        self.add(Line("what", "ours", "theirs", "ratio", "target"))

    def add(self, line: Line) -> None:
        met = "" if line.met is None else "met" if line.met else "NOT MET"
        self.missed += line.met is False
        cells = f"{line.what:<46} {line.ours:>30} {line.theirs:>30} {line.ratio:>7}  {line.target:<26} {met}"
        print(cells.rstrip(), flush=True)


def best(run: Callable[[], object], times: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The least seconds that a run took: what else the machine did only adds."""
    seconds = []
    for _ in range(times):
        gc.collect()
        begin = clock()
        run()
        seconds.append(clock() - begin)
    return min(seconds)


def best_of_each(runs: Sequence[Callable[[], object]], times: int) -> list[float]:
    """The least seconds of each, taken in turn, so that a bad minute of the machine is bad for all."""
    least = [float("inf")] * len(runs)
    for _ in range(times):
        least = [min(known, best(run, 1)) for known, run in zip(least, runs, strict=True)]
    return least


def resident() -> int:
    """Bytes of this process in memory now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def speed(rows: float, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.2f} M rows/s"
