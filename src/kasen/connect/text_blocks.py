"""A text file read block by block; a block always begins where a record does."""

from __future__ import annotations

import re
from typing import IO

import numpy as np
import numpy.typing as npt

from kasen.kernels.csv_scan import CUT_IN_QUOTES, FULL

BLOCK_BYTES = 1 << 22
#: A record that has not ended after so many bytes is given up: a stray quote must not swallow a whole file.
MOST_RECORD_BYTES = 1 << 24

_LINE_END = re.compile(rb"\r\n|\r|\n")
_SHOWN_BYTES = 1000


class TextBlocks:
    """`bytes[pos:]` is still to be read; it begins on `line`. `final`: the file ends with this block."""

    def __init__(self, file: IO[bytes], offset: int, line: int) -> None:
        file.seek(offset)
        self._file = file
        self._offset = offset
        self.bytes = b""
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
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
        self._replace(self.bytes[self.pos :] + read)
        return True

    def is_stuck(self, why: int) -> bool:
        """Whether the record at `pos`, at which a scan has stopped, will not be completed by reading on."""
        too_long = why != FULL and len(self.bytes) - self.pos > MOST_RECORD_BYTES
        return too_long or (self.final and why == CUT_IN_QUOTES)

    def give_up(self, why: int) -> tuple[bytes, str]:
        """Skips one line: all of a line that is too long, or the line on which a quote is never closed.

        Returns what to show of it, and what is wrong with it.
        """
        self.line += 1
        end = _LINE_END.search(self.bytes, self.pos)
        if why == CUT_IN_QUOTES:
            begin, self.pos = self.pos, end.end() if end else len(self.bytes)
            return self.bytes[begin : end.start() if end else None], "a quote is not closed"
        shown = self.bytes[self.pos : self.pos + _SHOWN_BYTES] + b"..."
        self._skip_line()
        return shown, f"longer than {MOST_RECORD_BYTES} bytes"

    def _skip_line(self) -> None:
        self.pos = len(self.bytes)
        while self.more():
            end = self.bytes.find(b"\n")
            if end >= 0:
                self.pos = end + 1
                return
            self.pos = len(self.bytes)

    def _replace(self, block: bytes) -> None:
        self._offset += self.pos
        self.pos = 0
        self.bytes = block
        self.data = np.frombuffer(block, np.uint8)
