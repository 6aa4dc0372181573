"""The file of refused rows. Exactly once, as a csv sink is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kasen.connect.chunk import DeadLetter
from kasen.connect.text.append_file import AppendFile, FileOutput
from kasen.connect.text.writer import csv_text

FILE_NAME = "dead_letter.csv"


class DeadLetterFile(FileOutput):
    """DIR/dead_letter.csv. It is there from the beginning, even if nothing is ever refused.

    `count` is how many letters were written since it was opened.
    """

    def __init__(self, folder: Path, resume: int | None = None) -> None:
        super().__init__(AppendFile(folder / FILE_NAME, b"stream,line,reason,raw\n", resume))
        self.count = 0

    def write(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            cells = (letter.stream, str(letter.line), letter.reason, letter.raw)
            self._file.write((",".join(map(csv_text, cells)) + "\n").encode("utf-8", "backslashreplace"))
            self.count += 1
