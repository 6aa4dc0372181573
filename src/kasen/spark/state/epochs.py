"""Durable epochs: which files of state count, and nothing else does.

State is a log and a snapshot. Each part of a pipeline (the driver's, or a fragment on a shard) writes what
it read in an epoch as a segment, and a snapshot only when the segments since the last one far outweigh it. So
the bytes written are in proportion to the input, whatever the windows, and a restart reads a few
times the state: it replays the segments, which gives the same state, because answers are deterministic.
While a window fills, its state is what was read, and no snapshot is worth its bytes.

Files carry the name of the attempt that wrote them. They count only if the epoch's commit record lists
them, and that record is created or, if it is there already, left alone: a task or a driver that was thought
dead and goes on writing changes nothing. Two records are kept, with the files they list.

Files are named with their checksums, and records are sealed with theirs (state_files.py). If the last epoch's
record or files are damaged, and Spark can run it again, the run resumes from the record before; any other
damage is an error that names the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kasen.checksum import DamagedFile, checksum_in, log, note_unprotected, parsing
from kasen.engine.operator import State
from kasen.errors import DataError
from kasen.runtime.durable.arrays import pack_arrays
from kasen.spark.state.delta import files_in, grow, shrink
from kasen.spark.state.state_files import Damage, Files

VERSION = 3
#: The format before there were checksums. Such a folder is still read, and added to.
_OLD = 2
_KEPT = 2
#: A change made by hand, and what tells that there is one.
_TEXT, _KEPT_TEXT = ".cql", ".kept"
#: After so many records that tell what is new, one tells all.
_WHOLE = 64
#: Below this, segments never call for a snapshot: many small files cost more than their bytes.
LEAST = 1 << 18
#: A snapshot is written when the segments since the last one are so many times as large. What is written is
#: then a fifth more than what is read, whatever the windows, and a restart reads six times the state.
TIMES = 5


@dataclass(slots=True)
class StateJournal:
    """A part's files: its last snapshot (epoch, file, bytes) and the segments since (epoch, file, bytes).

    A segment's file may be "": nothing came for the part in that epoch, but time went on.
    """

    snapshot: tuple[int, str, int] | None = None
    log: list[tuple[int, str, int]] = field(default_factory=list)
    #: How large the state was when it was last packed, written or not.
    weighed: int = 0

    def add(self, epoch: int, segment: tuple[str, int] | None, snapshot: tuple[str, int] | None) -> None:
        if segment is not None:
            self.log.append((epoch, *segment))
        if snapshot is not None:
            self.snapshot, self.log = (epoch, *snapshot), []
            self.weighed = snapshot[1]

    def write(
        self,
        files: Files,
        name: str,
        epoch: int,
        segment: dict[str, State],
        state: Callable[[], dict[str, State]] | None,
    ) -> None:
        """Writes what the driver read in an epoch, and its whole state if that is due.

        There is no `state` before the beginning: static tables are in the log only.
        """
        packed = pack_arrays(segment)
        written = files.write(f"{name}.segment", packed)
        whole = None
        if state is not None:
            due = self.snapshot_due(len(packed), lambda: pack_arrays(state()))
            whole = None if due is None else files.write(f"{name}.snapshot", due)
        self.add(epoch, written, whole)

    def snapshot_due(self, more: int, pack: Callable[[], bytes]) -> bytes | None:
        """The packed state, if the segments, with one of `more` bytes, are so many times as large.

        It is packed only when they outweigh what it was when it was last packed.
        """
        size = sum(each[2] for each in self.log) + more
        if size <= max(LEAST, TIMES * self.weighed):
            return None
        packed = pack()
        self.weighed = len(packed)
        return packed if size > TIMES * self.weighed else None

    @property
    def since(self) -> int:
        """The epoch of the last snapshot; -1 if there is none."""
        return -1 if self.snapshot is None else self.snapshot[0]

    @property
    def start(self) -> int:
        """The epoch after which its part begins to replay: a part that came later has nothing before."""
        return self.since if self.snapshot is not None or not self.log else self.log[0][0] - 1

    def to_json(self) -> dict[str, Any]:
        return {"snapshot": self.snapshot, "log": self.log}

    @staticmethod
    def of(record: dict[str, Any]) -> StateJournal:
        snapshot = record["snapshot"]
        log = [(int(epoch), str(file), int(size)) for epoch, file, size in record["log"]]
        if snapshot is None:
            return StateJournal(None, log)
        return StateJournal((snapshot[0], snapshot[1], snapshot[2]), log, snapshot[2])


def bytes_held(record: Any) -> int:
    """The bytes of all snapshots and segments that a commit record lists."""
    if isinstance(record, dict) and record.keys() == {"snapshot", "log"}:
        files = [*record["log"], *([record["snapshot"]] if record["snapshot"] is not None else [])]
        return sum(int(size) for _, _, size in files)
    parts = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    return sum(bytes_held(part) for part in parts)


class InputLog(Protocol):
    """Who knows which rows an epoch had."""

    def is_done(self, epoch: int) -> bool: ...

    def can_redo(self, epoch: int) -> bool: ...

    def redo(self, epoch: int) -> None: ...


#: Finds a damaged file among some, if there is one.
FindsDamage = Callable[[list[str]], Damage | None]


class Store:
    """The epochs of one run of an app, in a folder: `commits/`, `files/`, and `changes/` made by hand.

    A commit record tells what is new since the one before; every so often one tells all.
    """

    def __init__(self, files: Files, fingerprint: str, layout: str) -> None:
        """`layout` says how state is cut into parts: placement and number of shards."""
        self.files = files
        self._identity = {"version": VERSION, "app": fingerprint, "layout": layout}
        self._records: dict[int, dict[str, Any]] = {}
        self._whole: list[int] = []  # the epochs whose records tell all, as far as they are kept
        self._since_whole = 0
        self._query: str | None = None  # that was found to be the right one
        #: The checksums of what Spark had noted by the epochs whose records are kept.
        self.noted: dict[str, str] = {}
        self.files.make("commits", "files", "changes")
        self._has_changes = bool(self.files.list("changes"))

    def load(
        self, input_log: InputLog | None = None, find_damage: FindsDamage | None = None
    ) -> dict[str, Any] | None:
        """The commit record to resume from; what no kept record lists is removed.

        With an input log, that is the record before the last one if the last epoch's files are damaged.
        """
        self._check_identity()
        names = [name for name in self.files.list("commits") if name.endswith(".json")]
        for name in names:
            try:
                self._add(name, find_damage if name == names[-1] else None)
            except DamagedFile as damage:
                if name != names[-1] or input_log is None:
                    raise
                self._redo(name, input_log, damage)
        after = max(self._records, default=-1) + 1
        if input_log is not None and input_log.is_done(after):
            name = _commit_file(after)
            self._redo(name, input_log, DamagedFile(f"{self.files.root}/{name}", "it is missing"))
        self._note_unprotected()
        live = self._live()
        last = max(self._records, default=-1)
        for name in self.files.list("files"):
            # Those of later epochs may be in the hands of a run that we cannot see.
            if name not in live and _epoch_of(name) <= last:
                self.files.remove(name)
        return self._records[max(self._records)] if self._records else None

    def _add(self, name: str, find_damage: FindsDamage | None) -> None:
        """Reads the next record, and if asked to, the files that it names and the one before does not."""
        delta = self._read(name)
        before = self._records[max(self._records)] if self._records else {}
        with parsing(f"{self.files.root}/{name}"):
            epoch = int(name.removeprefix("commits/").removesuffix(".json"))
            if before.get("epoch", epoch - 1) != epoch - 1 or not (before or "new" in delta):
                missing = f"{self.files.root}/{_commit_file(epoch - 1)}"
                raise DamagedFile(missing, f"it is missing, and {name} builds on it")
            record = grow(delta, before)
            self.noted |= record.get("noted", {})
            if record["epoch"] != epoch:
                raise ValueError(f"it is of epoch {record['epoch']}")
        fault = find_damage(sorted(files_in(record) - files_in(before))) if find_damage is not None else None
        if fault is not None:
            raise DamagedFile(*fault)
        self._keep(record, is_whole="new" in delta)

    def _redo(self, name: str, input_log: InputLog, damage: DamagedFile) -> None:
        """Takes back the last epoch, if Spark can run it again and nobody has changed queries since."""
        epoch = max(self._records, default=-1) + 1
        if name != _commit_file(epoch) or epoch in self.changes() or not input_log.can_redo(epoch):
            raise damage
        log.warning("note: %s; epoch %d is run again", damage.fault, epoch)
        # Spark first: should the record outlast this process, all of this happens once more.
        input_log.redo(epoch)
        self.files.remove(name)

    def _note_unprotected(self) -> None:
        last = self._records[max(self._records)] if self._records else None
        if self.files.met_old or (last is not None and None in map(checksum_in, files_in(last))):
            note_unprotected(self.files.root)

    def _keep(self, record: dict[str, Any], *, is_whole: bool) -> None:
        epoch = int(record["epoch"])
        self._records[epoch] = record
        for old in sorted(self._records)[:-_KEPT]:
            del self._records[old]
        if is_whole:
            self._whole.append(epoch)
            self._since_whole = 0
        else:
            self._since_whole += 1

    def _read(self, name: str) -> dict[str, Any]:
        content = self.files.record(name)
        with parsing(f"{self.files.root}/{name}"):
            return dict(json.loads(content))

    def _check_identity(self) -> None:
        content = json.dumps(self._identity).encode()
        if not self.files.list("commits") and self.files.create("identity.json", content):
            return
        self.files.takes_old = True
        found = self._read("identity.json")
        if found["version"] not in (VERSION, _OLD):
            raise DataError(
                f"{self.files.root} has format {found['version']}; this Kasen reads format {VERSION}"
            )
        if found["version"] == VERSION:
            self.files.takes_old = False
            found = self._read("identity.json")
        if found["app"] != self._identity["app"]:
            raise DataError(
                f"{self.files.root} holds checkpoints of another app, or of another text of this one; "
                "give a new folder, or remove this one to start anew"
            )
        if found["layout"] != self._identity["layout"]:
            raise DataError(
                f"{self.files.root} holds state of {found['layout']}, and this run is of "
                f"{self._identity['layout']}; run it as before, or remove the folder to start anew"
            )
        if self.files.exists("query.json"):
            self._read("query.json")  # better now than in an epoch

    def check_query(self, query: str, epoch: int) -> None:
        """Refuses epochs of another streaming query than the one whose state this is."""
        if query == self._query:
            return
        self.files.create("query.json", json.dumps({"id": query}).encode())
        known = self._read("query.json")["id"]
        if known != query:
            raise DataError(
                f"{self.files.root} holds the state of streaming query {known}, and this is {query}: "
                "Spark's own checkpoint was removed or is another one's; remove both to start anew"
            )
        if epoch > 0 and not self._records:
            raise DataError(
                f"{self.files.root} holds no state, but Spark goes on at epoch {epoch}: the state was "
                "removed; remove Spark's checkpoint too to start anew"
            )
        self._query = query

    def commit(self, record: dict[str, Any]) -> None:
        """The epoch counts from now on, with exactly the files that the record names."""
        record = json.loads(json.dumps(record))
        epoch = int(record["epoch"])
        last = self._records[max(self._records)] if self._records else None
        is_whole = last is None or self._since_whole >= _WHOLE
        delta = {"new": record} if is_whole else shrink(record, last)
        if not self.files.create(_commit_file(epoch), json.dumps(delta).encode()):
            raise DataError(
                f"epoch {epoch} was committed by another run into {self.files.root}; end one of the two"
            )
        before = self._live()
        self._keep(record, is_whole=is_whole)
        for name in before - self._live():
            self.files.remove(name)
        if is_whole:
            self._forget()
        if self._has_changes:
            self._forget_changes()

    def note_change(self, after: int, text: str) -> None:
        """Queries were changed by hand after an epoch; `replay` does it again at the same place."""
        number = len(self.changes().get(after, ()))
        name = f"changes/{after + 1:012}-{number:06}"
        self.files.create(f"{name}{_TEXT}", text.encode())
        # No record names the text before the next commit does: this tells if it is gone.
        self.files.create(f"{name}{_KEPT_TEXT}", b"")
        self._has_changes = True

    def changes(self) -> dict[int, list[str]]:
        """The texts that changed queries, by the epoch after which they did (-1: before the first)."""
        found: dict[int, list[str]] = {}
        names = self.files.list("changes")
        texts = {name.removesuffix(_KEPT_TEXT) + _TEXT for name in names if name.endswith(_KEPT_TEXT)}
        for name in sorted(texts | {name for name in names if name.endswith(_TEXT)}):
            after = int(name.split("/")[1].split("-")[0]) - 1
            found.setdefault(after, []).append(self.files.record(name).decode())
        return found

    def _forget_changes(self) -> None:
        """Removes the texts that are part of all snapshots which are kept."""
        before = min(map(_changes_before, self._records.values()))
        names = self.files.list("changes")
        # What tells of a text goes before it.
        for name in reversed(names):
            if name < f"changes/{before + 1:012}":
                self.files.remove(name)
        self._has_changes = bool(names)

    def _forget(self) -> None:
        """Removes the records before the last but one that tells all."""
        if len(self._whole) <= _KEPT:
            return
        self._whole = self._whole[-_KEPT:]
        for name in self.files.list("commits"):
            if name < _commit_file(self._whole[0]):
                self.files.remove(name)

    def _live(self) -> set[str]:
        return {file for record in self._records.values() for file in files_in(record)}


def _changes_before(record: dict[str, Any]) -> int:
    """The epoch after which changes made by hand are to be done again, to go on from a record."""
    # The driver's pipeline goes on from its snapshot; on executors, the record holds the queries.
    return StateJournal.of(record["journal"]).since if "journal" in record else int(record["epoch"])


def _epoch_of(file: str) -> int:
    """The epoch in a file's name; -1 if it has none."""
    found = re.search(r"-(\d{12})-", file)
    return int(found[1]) if found else -1


def _commit_file(epoch: int) -> str:
    return f"commits/{epoch:012}.json"
