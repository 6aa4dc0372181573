"""What an epoch owes to the wall clock: stamps of arrival, and streams that have been silent for too long.

Rows without a time of their own arrive when their epoch begins, all of them. That instant is noted before it
is used, under the epoch's number, and a note is never replaced: an epoch that is done again, after a crash,
has the same stamp, and so the same answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from kasen.checksum import parsing
from kasen.plan.physical import Input
from kasen.spark.state.state_files import Files

_FOLDER = "stamps"
#: How many notes are kept: that of the epoch which may have to be done again, and the one before.
_KEPT = 2


def _now() -> int:
    """Arrival time in µs; the one place where a run on Spark looks at the clock for its data."""
    return time.time_ns() // 1000


class Timing:
    """Asked once an epoch, in this order: `begin`, `hear` for each stream that brought rows, `silent`."""

    def __init__(
        self,
        streams: Iterable[Input],
        files: Files | None,
        now: Callable[[], int] = _now,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Stamps are noted in `files`; without them nothing is to outlast this process."""
        given = list(streams)
        #: The streams whose rows carry no time.
        self.stamped = [
            input_.name for input_ in given if input_.timestamp is None and not input_.is_relation
        ]
        self._files = files if self.stamped else None
        self._now = now
        self._ticks = ticks
        self._idle = {input_.name: input_.idle for input_ in given if input_.idle is not None}
        self._heard = dict.fromkeys(self._idle, ticks())
        self._last = -(2**63)
        if self._files is not None:
            self._files.make(_FOLDER)
            for name in self._notes()[-1:]:
                self._last = self._read(name)

    def _notes(self) -> list[str]:
        assert self._files is not None
        # A process that died may have left a draft.
        return [name for name in self._files.list(_FOLDER) if name.removeprefix(f"{_FOLDER}/").isdigit()]

    def _read(self, name: str) -> int:
        assert self._files is not None
        with parsing(f"{self._files.root}/{name}"):
            return int(self._files.record(name))

    def begin(self, epoch: int) -> int:
        """When the epoch's rows came, always after those of the epoch before; 0 if nobody asks."""
        if not self.stamped:
            return 0
        stamp = max(self._now(), self._last + 1)
        if self._files is not None:
            note = f"{_FOLDER}/{epoch:012}"
            if not self._files.create(note, str(stamp).encode()):
                stamp = self._read(note)
            for old in self._notes()[:-_KEPT]:
                self._files.remove(old)
        self._last = stamp
        return stamp

    def hear(self, name: str) -> None:
        if name in self._heard:
            self._heard[name] = self._ticks()

    def silent(self) -> Iterator[str]:
        """The streams that are IDLE: nobody waits for them any longer."""
        for name, length in self._idle.items():
            if (self._ticks() - self._heard[name]) * 1e6 >= length:
                yield name
