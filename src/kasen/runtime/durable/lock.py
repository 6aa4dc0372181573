"""One run at a time: whoever goes on from a checkpoint cuts answers back, which nobody else may write."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from kasen.errors import DataError

_LONGEST = 32


class RunLock:
    """Held until it is released or dropped, or the process is gone, however it went."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(f"cannot keep checkpoints in {folder}: {error.strerror}") from None
        #: Closes the file, and so gives the lock back.
        self.release = weakref.finalize(self, os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, _LONGEST).decode() or "unknown"
            self.release()
            raise DataError(f"a run (process {holder}) is at work on {folder}; end that one first") from None
        except OSError:
            return  # a file system without locks: a commit record is created once, in any case
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
