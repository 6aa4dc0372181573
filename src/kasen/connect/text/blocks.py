"""A text file read block by block; a block always begins where a record does."""

from __future__ import annotations

import re
from typing import IO

import numpy as np
import numpy.typing as npt

from kasen.engine.text.kernels.csv_scan import CUT

BLOCK_BYTES = 1 << 22
#: A record that has not ended after so many bytes is given up: a stray quote must not swallow a whole file.
MOST_RECORD_BYTES = 1 << 24

_SHOWN_BYTES = 1000
_NOTHING: npt.NDArray[np.uint8] = np.empty(0, np.uint8)


class TextBlocks:
    """`bytes[pos:]` is still to be read; it begins on `line`. `final`: the file ends with this block.

    `endless` says of every byte of the block whether a record that begins there is to be given up; it is
    empty until somebody has to know.
    """

    def __init__(self, file: IO[bytes], offset: int, line: int) -> None:
        file.seek(offset)
        self._file = file
        self._offset = offset
        self.bytes = b""
        self.data = self.endless = _NOTHING
        self.pos = 0
        self.line = line
        self.final = False

    @property
    def offset(self) -> int:
        """The place of `pos` in the file."""
        return self._offset + self.pos

    def more(self) -> bool:
        """Reads on; what was left of the block before comes first. False if the file has ended."""
        if self.final:
            return False
        read = self._file.read(BLOCK_BYTES)
        self.final = len(read) < BLOCK_BYTES
        self._offset += self.pos
        self.bytes = self.bytes[self.pos :] + read
        self.data = np.frombuffer(self.bytes, np.uint8)
        self.endless = _NOTHING
        self.pos = 0
        return True

    def is_stuck(self, why: int) -> bool:
        """Whether the record at `pos`, at which a scan has stopped, is to be given up.

        That depends on the file alone, not on its blocks: one byte more than the longest record and its end
        has been seen, or the file has ended.
        """
        return why == CUT and (self.final or len(self.bytes) - self.pos > MOST_RECORD_BYTES + 1)

    def skip_line(self, line_end: re.Pattern[bytes]) -> bytes:
        """Skips the line at `pos`, which is too long, and returns what to show of it."""
        shown = self.bytes[self.pos : self.pos + min(_SHOWN_BYTES, MOST_RECORD_BYTES)] + b"..."
        self.line += 1
        while (end := line_end.search(self.bytes, self.pos)) is None or not self._is_whole(end):
            self.pos = len(self.bytes) if end is None else end.start()
            if not self.more():
                return shown
        self.pos = end.end()
        return shown

    def _is_whole(self, end: re.Match[bytes]) -> bool:
        """Whether no LF can follow that belongs to the same line end."""
        return self.final or end.end() < len(self.bytes) or end[0] != b"\r"
