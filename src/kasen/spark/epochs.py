"""Durable epochs: which files of state count, and nothing else does.

State is a log and a snapshot. Each part of a pipeline (the driver's, or a fragment on a shard) writes what
it read in an epoch as a segment, and a snapshot only when the segments since the last one far outweigh it. So
the bytes written are in proportion to the input, whatever the windows, and a restart reads a few
times the state: it replays the segments, which gives the same state, because answers are deterministic.
While a window fills, its state is what was read, and no snapshot is worth its bytes.

Files carry the name of the attempt that wrote them. They count only if the epoch's commit record lists
them, and that record is created or, if it is there already, left alone: a task or a driver that was thought
dead and goes on writing changes nothing. Two records are kept, with the files they list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kasen.errors import DataError
from kasen.spark.delta import files_in, grow, shrink
from kasen.spark.state_files import Files

VERSION = 2
_KEPT = 2
#: After so many records that tell what is new, one tells all.
_WHOLE = 64
#: Below this, segments never call for a snapshot: many small files cost more than their bytes.
LEAST = 1 << 18
#: A snapshot is written when the segments since the last one are so many times as large. What is written is
#: then a fifth more than what is read, whatever the windows, and a restart reads six times the state.
TIMES = 5


@dataclass(slots=True)
class Journal:
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
    def of(record: dict[str, Any]) -> Journal:
        snapshot = record["snapshot"]
        log = [(int(epoch), str(file), int(size)) for epoch, file, size in record["log"]]
        if snapshot is None:
            return Journal(None, log)
        return Journal((snapshot[0], snapshot[1], snapshot[2]), log, snapshot[2])


def bytes_held(record: Any) -> int:
    """The bytes of all snapshots and segments that a commit record lists."""
    if isinstance(record, dict) and record.keys() == {"snapshot", "log"}:
        files = [*record["log"], *([record["snapshot"]] if record["snapshot"] is not None else [])]
        return sum(int(size) for _, _, size in files)
    parts = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    return sum(bytes_held(part) for part in parts)


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
        self.files.make("commits", "files", "changes")
        self._has_changes = bool(self.files.list("changes"))

    def load(self) -> dict[str, Any] | None:
        """The last commit record; what no kept record lists is removed."""
        self._check_identity()
        record: dict[str, Any] = {}
        for name in self.files.list("commits"):
            if not name.endswith(".json"):
                continue
            delta = self._read(name)
            last = record.get("epoch")
            record = grow(delta, record) if "new" in delta or record else {}
            epoch = int(record.get("epoch", -1))
            if name != _commit_file(epoch) or last not in (None, epoch - 1):
                raise DataError(
                    f"{self.files.root}/{name} does not follow the commit before, which was removed or is "
                    "damaged; remove the folder to start anew"
                )
            self._keep(record, is_whole="new" in delta)
        live = self._live()
        last = max(self._records, default=-1)
        for name in self.files.list("files"):
            # Those of later epochs may be in the hands of a run that we cannot see.
            if name not in live and _epoch_of(name) <= last:
                self.files.remove(name)
        return self._records[max(self._records)] if self._records else None

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
        try:
            record: dict[str, Any] = json.loads(self.files.read(name))
            return record
        except (ValueError, OSError) as error:
            where = f"{self.files.root}/{name}"
            raise DataError(f"{where} is damaged ({error}); remove the folder to start anew") from None

    def _check_identity(self) -> None:
        content = json.dumps(self._identity).encode()
        if self.files.create("identity.json", content):
            return
        found = self._read("identity.json")
        if found["version"] != VERSION:
            raise DataError(
                f"{self.files.root} has format {found['version']}; this Kasen reads format {VERSION}"
            )
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
        self.files.create(f"changes/{after + 1:012}-{number:06}.cql", text.encode())
        self._has_changes = True

    def changes(self) -> dict[int, list[str]]:
        """The texts that changed queries, by the epoch after which they did (-1: before the first)."""
        found: dict[int, list[str]] = {}
        for name in self.files.list("changes"):
            if name.endswith(".cql"):
                after = int(name.split("/")[1].split("-")[0]) - 1
                found.setdefault(after, []).append(self.files.read(name).decode())
        return found

    def _forget_changes(self) -> None:
        """Removes the texts that are part of all snapshots which are kept."""
        before = min(map(_changes_before, self._records.values()))
        names = self.files.list("changes")
        for name in names:
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
    return Journal.of(record["journal"]).since if "journal" in record else int(record["epoch"])


def _epoch_of(file: str) -> int:
    """The epoch in a file's name; -1 if it has none."""
    found = re.search(r"-(\d{12})-", file)
    return int(found[1]) if found else -1


def _commit_file(epoch: int) -> str:
    return f"commits/{epoch:012}.json"
