"""The driver's books of a sharded pipeline: which files hold the state of its clock and of each shard."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from kasen.engine.operator import State
from kasen.runtime.shard.clock import Clock
from kasen.spark.state.epochs import StateJournal
from kasen.spark.state.state_files import Files

CLOCK = "clock"


@dataclass(slots=True)
class Ledger:
    """`past` has for each epoch since the oldest snapshot its orders' file and its attempt.

    An epoch is `begin`, any writing, and `close`, which makes its files part of the books.
    """

    files: Files
    parts: list[str]
    pipeline: str = field(default_factory=lambda: uuid.uuid4().hex)
    base: str = ""
    journals: dict[str, StateJournal] = field(default_factory=dict)
    past: list[tuple[int, str, str]] = field(default_factory=list)
    attempt: str = ""
    _orders: str = ""
    _reports: list[dict[str, Any]] = field(default_factory=list)

    def load(self, record: dict[str, Any]) -> None:
        """Goes on from a commit record; an empty one is a beginning."""
        self.pipeline = record.get("pipeline", self.pipeline)
        self.base = record.get("attempt", "")
        self.journals = {part: StateJournal() for part in (CLOCK, *self.parts)}
        self.journals |= {part: StateJournal.of(each) for part, each in record.get("journals", {}).items()}
        self.past = [(epoch, file, attempt) for epoch, file, attempt in record.get("past", [])]

    def record(self) -> dict[str, Any]:
        """What a commit record must hold to go on from here."""
        return {
            "pipeline": self.pipeline,
            "attempt": self.base,
            "journals": {part: journal.to_json() for part, journal in self.journals.items()},
            "past": self.past,
        }

    @property
    def next(self) -> int:
        """A number for what comes after the epochs in the books."""
        # When every shard has a snapshot of the last epoch, nothing else tells of it.
        known = [epoch for epoch, _, _ in self.past] + [each.since for each in self.journals.values()]
        return max(known, default=-1) + 1

    def begin(self) -> None:
        """A new attempt at an epoch; what an earlier one has written is forgotten."""
        self.attempt = uuid.uuid4().hex
        self._orders, self._reports = "", []

    def write_orders(self, epoch: int, packed: bytes) -> None:
        self._orders, _ = self.files.write(f"files/orders-{epoch:012}-{self.attempt}", packed)

    def take(self, reports: list[dict[str, Any]]) -> None:
        """What the shards say they have written."""
        self._reports = reports

    def close(self, epoch: int) -> None:
        """The attempt succeeded: the next epoch builds on it."""
        if not self._orders:
            return
        self.past.append((epoch, self._orders, self.attempt))
        self.base = self.attempt
        for report in self._reports:
            file, snapshot, journal = report["segment"], report["snapshot"], self.journals[report["part"]]
            journal.weighed = report["weighed"]
            journal.add(epoch, (file, report["weight"]), None if snapshot is None else tuple(snapshot))
        self.past = [each for each in self.past if each[0] > self.oldest]
        self._orders, self._reports = "", []

    @property
    def oldest(self) -> int:
        """The epoch from which on everything is kept, because some part goes on from there."""
        return min(self.journals[part].start for part in self.parts)

    def extend(self, parts: list[str]) -> None:
        """There are so many parts now: queries that came may have more levels than those before, or fewer."""
        if parts != self.parts:
            self.parts = parts
            self.journals = {part: self.journals.get(part, StateJournal()) for part in (CLOCK, *parts)}

    def write_clock(self, epoch: int, segment: dict[str, State], clock: Clock) -> None:
        """The clock's part of an epoch. It must come before the attempt is closed."""
        name = f"files/{CLOCK}-{epoch:012}-{self.attempt}"
        state = clock.snapshot if clock.begun else None
        self.journals[CLOCK].write(self.files, name, epoch, segment, state)
