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

from kasen.runtime.checkpoint import sync_folder
from kasen.runtime.checksum import DamagedFile, checksum

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

        Spark removes files that it does not need any longer. Of those that it does, it would read a row twice
        or never if the newest were gone, and finds out by itself about others.
        """
        for file in self._folder.rglob("*"):
            if file.is_file() and not file.name.startswith("."):
                self._check_file(file, noted.get(str(file.relative_to(self._folder))))
        offsets = self._numbers(_OFFSETS)
        for name in ("metadata", f"{_OFFSETS}/{last}"):
            if not (self._folder / name).exists():
                raise DamagedFile(self._folder / name, "it is missing")
        self._check_sources(self._folder / _OFFSETS / str(max(offsets)))

    def _check_file(self, file: Path, digest: str | None) -> None:
        """By our checksum, or for what was noted after the last commit, by Hadoop's."""
        content, beside = file.read_bytes(), file.parent / f".{file.name}.crc"
        is_right = not beside.exists() or _matches(content, beside.read_bytes())
        if digest is None and not is_right:
            raise DamagedFile(file, f"{beside.name} does not match")
        if digest is not None and digest != checksum(content):
            raise DamagedFile(file, "its checksum does not match")
        if not is_right:
            beside.unlink()  # the file is right, so this is not

    def _check_sources(self, offsets: Path) -> None:
        """The files up to which a stream of files was read are in a list of the same number."""
        for number, line in enumerate(offsets.read_bytes().split(b"\n")[2:]):
            try:
                last = json.loads(line)["logOffset"]
            except (ValueError, KeyError, TypeError):
                continue  # another kind of source; what is damaged, Spark refuses
            log = self._folder / _SOURCES / str(number)
            if not any((log / name).exists() for name in (str(last), f"{last}.compact")):
                raise DamagedFile(log / str(last), "it is missing")

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
                self._remove(_OFFSETS, number)
        self._remove(_COMMITS, epoch)

    def _numbers(self, kind: str) -> set[int]:
        return {int(file.name) for file in (self._folder / kind).glob("*") if file.name.isdigit()}

    def _remove(self, kind: str, number: int) -> None:
        for name in (str(number), f".{number}.crc"):
            (self._folder / kind / name).unlink(missing_ok=True)
        if (self._folder / kind).exists():
            sync_folder(self._folder / kind)


def _matches(content: bytes, sums: bytes) -> bool:
    """Whether Hadoop's checksums are those of a content: one for each block of so many bytes."""
    size = int.from_bytes(sums[4:8])
    if not size:
        return False
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    return sums == b"crc\0" + sums[4:8] + b"".join(crc32(block).to_bytes(4) for block in blocks)
