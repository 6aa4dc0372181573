"""A file that grows, and can be cut back to a length that it had."""

from __future__ import annotations

import os
from pathlib import Path

from kasen.checksum import Checksum
from kasen.errors import DataError, writing

_BUFFER = 1 << 20


class AppendFile:
    """A new file that begins with `header`, or an old one cut back to `resume` bytes."""

    def __init__(self, path: Path, header: bytes, resume: int | None = None) -> None:
        self._path = path
        self._header = header
        self._synced_folder = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("r+b" if resume is not None else "wb", _BUFFER)
        except OSError as fault:
            raise DataError(f"cannot write {path}: {fault.strerror}") from None
        self._length = 0
        self._checksum = Checksum()
        self.truncate(resume or 0)

    def write(self, content: bytes | memoryview) -> None:
        with writing(self._path):
            self._file.write(content)
        self._checksum.add(content)

    def flush(self, sync: bool = False) -> None:
        with writing(self._path):
            self._file.flush()
            if sync:
                os.fsync(self._file.fileno())
                self._sync_folder()
        self._length = self._file.tell()

    def position(self) -> int:
        """The length in bytes at the last flush."""
        return self._length

    def checksum(self) -> str:
        """Of all that was flushed."""
        return self._checksum.text

    def truncate(self, position: int) -> None:
        """What is left is read once, as its checksum is that of what comes."""
        self._file.flush()
        length = os.fstat(self._file.fileno()).st_size
        if position > length:
            self._file.close()
            raise DataError(
                f"{self._path} has {length} bytes, but {position} were written: it was changed or replaced"
            )
        self._file.truncate(position)
        with self._path.open("rb") as written:
            self._checksum = Checksum.of(written)
        self._file.seek(position)
        if position == 0:
            self.write(self._header)
        self.flush()

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _sync_folder(self) -> None:
        """A new file is safe only when the folder that names it is."""
        if not self._synced_folder:
            folder = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
            self._synced_folder = True


class FileOutput:
    """What everything written to one growing file has in common: its place is the file's."""

    def __init__(self, file: AppendFile) -> None:
        self._file = file

    def flush(self, sync: bool = False) -> None:
        self._file.flush(sync)

    def position(self) -> int:
        return self._file.position()

    def checksum(self) -> str:
        return self._file.checksum()

    def truncate(self, position: int) -> None:
        self._file.truncate(position)

    def close(self) -> None:
        self._file.close()
