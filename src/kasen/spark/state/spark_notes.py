"""What Spark has noted of its epochs: which rows each has (offsets, sources), and which are done (commits).

Spark alone writes and reads these files, and on a local disk Hadoop's checksums (.crc) lie beside them. Those
do not tell of a file that is gone, and Spark prints a stack if they do not match. So each commit record of
ours has the checksums of what Spark noted up to then, and a restart looks at all of it before Spark does. At
an address there is no such look.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from kasen.checksum import DamagedFile, checksum, log
from kasen.runtime.durable.checkpoint import sync_folder

_OFFSETS, _COMMITS, _SOURCES = "offsets", "commits", "sources"


class SparkNotes:
    """Spark's folder of one streaming query's checkpoint, on a local file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since = 0

    def sync(self) -> dict[str, str]:
        """Makes durable what is new since the last call; the names of these files, and their checksums."""
        latest, found = self._since, {}
        for place, _, names in os.walk(self._folder):
            fresh = 0
            for name in names:
                path = Path(place) / name
                with suppress(FileNotFoundError), path.open("rb") as file:
                    written = os.fstat(file.fileno()).st_mtime_ns
                    if written >= self._since:
                        os.fsync(file.fileno())
                        latest = max(latest, written)
                        fresh += 1
                        if not name.startswith("."):
                            found[str(path.relative_to(self._folder))] = checksum(file.read())
            if fresh:
                sync_folder(Path(place))
        self._since = latest
        return found

    def check(self, noted: dict[str, str], last: int) -> None:
        """Refuses to resume after the last epoch that is committed, if something is damaged or gone.

        Spark removes what it does not need any longer, but needs the last two offsets, and of a stream of
        files all that was noted since its notes were last put together. If some of that were gone, Spark
        would read rows twice or never, or print a stack. What was noted after the commit, it can note again.
        """
        files = [each for each in self._folder.rglob("*") if each.is_file() and each.name[0] != "."]
        later = [each for each in files if str(each.relative_to(self._folder)) not in noted]
        for file in files:
            if file not in later:
                self._check_noted(file, noted[str(file.relative_to(self._folder))])
        try:
            for file in later:
                self._check_later(file)
            self._check_complete(last)
        except DamagedFile as damage:
            if not noted:
                raise  # from before checksums: nothing tells what was noted after the commit
            log.warning("note: %s; what Spark noted after epoch %d is noted again", damage.fault, last)
            for file in later:
                self._remove(file)
            self._check_complete(last)

    def _check_noted(self, file: Path, digest: str) -> None:
        """By the checksum in our records."""
        content, beside = file.read_bytes(), _beside(file)
        if digest != checksum(content):
            raise DamagedFile(file, "its checksum does not match")
        if beside.exists() and not _matches(content, beside.read_bytes()):
            beside.unlink()  # the file is right, so this is not

    def _check_later(self, file: Path) -> None:
        """By Hadoop's checksums."""
        beside = _beside(file)
        if beside.exists() and not _matches(file.read_bytes(), beside.read_bytes()):
            raise DamagedFile(file, f"{beside.name} does not match")

    def _check_complete(self, last: int) -> None:
        newest = max(self._numbers(_OFFSETS), default=0)
        wanted = {last, newest, max(0, newest - 1)}
        self._need("metadata", *(f"{_OFFSETS}/{number}" for number in sorted(wanted)))
        self._check_sources(self._folder / _OFFSETS / str(newest))

    def _check_sources(self, offsets: Path) -> None:
        """The files up to which a stream of files was read are in lists up to the same number."""
        for number, line in enumerate(offsets.read_bytes().split(b"\n")[2:]):
            try:
                last = json.loads(line)["logOffset"]
            except (ValueError, KeyError, TypeError):
                continue  # another kind of source; what is damaged, Spark refuses
            folder = f"{_SOURCES}/{number}"
            whole = {int(file.stem) for file in (self._folder / folder).glob("[0-9]*.compact")}
            first = max((each for each in whole if each <= last), default=-1) + 1
            self._need(*(f"{folder}/{each}" for each in range(first, last + 1)))

    def _need(self, *names: str) -> None:
        for name in names:
            if not (self._folder / name).exists():
                raise DamagedFile(self._folder / name, "it is missing")

    def is_done(self, epoch: int) -> bool:
        """Whether Spark will not run an epoch again by itself."""
        return max(self._numbers(_COMMITS), default=-1) >= epoch

    def can_redo(self, epoch: int) -> bool:
        """Whether Spark still knows which rows an epoch had, and has done none after it."""
        return epoch in self._numbers(_OFFSETS) and not self.is_done(epoch + 1)

    def redo(self, epoch: int) -> None:
        """Lets Spark run an epoch again, with the same rows."""
        for number in self._numbers(_OFFSETS):
            if number > epoch:
                self._remove(self._folder / _OFFSETS / str(number))
        self._remove(self._folder / _COMMITS / str(epoch))

    def _numbers(self, kind: str) -> set[int]:
        return {int(file.name) for file in (self._folder / kind).glob("*") if file.name.isdigit()}

    def _remove(self, file: Path) -> None:
        for each in (file, _beside(file)):
            each.unlink(missing_ok=True)
        if file.parent.exists():
            sync_folder(file.parent)


def _beside(file: Path) -> Path:
    """Where Hadoop has the checksums of a file."""
    return file.parent / f".{file.name}.crc"


def _matches(content: bytes, sums: bytes) -> bool:
    """Whether Hadoop's checksums are those of a content: one for each block of so many bytes."""
    size = int.from_bytes(sums[4:8])
    if not size:
        return False
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    return sums == b"crc\0" + sums[4:8] + b"".join(crc32(block).to_bytes(4) for block in blocks)
