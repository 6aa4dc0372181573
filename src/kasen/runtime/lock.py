"""One run at a time: whoever goes on from a checkpoint cuts answers back, which nobody else may write."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kasen.errors import DataError


class RunLock:
    """Held until it is released, or the process is gone, however it went."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / "lock").open("a+b")
        except OSError as error:
            raise DataError(f"cannot keep checkpoints in {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().decode() or "unknown"
            self._file.close()
            raise DataError(f"a run (process {holder}) is at work on {folder}; end that one first") from None
        except OSError:
            return  # a file system without locks: a commit record is created once, in any case
        self._file.truncate(0)
        self._file.write(str(os.getpid()).encode())
        self._file.flush()

    def release(self) -> None:
        self._file.close()
