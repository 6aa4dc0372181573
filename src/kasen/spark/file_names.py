"""The file that a row comes from, as a number: a name in each row would take longer to cross than the row.

Spark hashes the names as it reads. The driver hashes those in the folder, and so knows which are meant.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from pyspark.sql import Column
from pyspark.sql import functions as F
from xxhash import xxh64_intdigest

from kasen.errors import DataError
from kasen.plan.native.lower import is_foreign
from kasen.plan.physical import Input

# That of Spark's xxhash64.
_SEED = 42
_PATTERNS = frozenset("[]{}*?")
_ENCODED = frozenset(' %"<>\\^`{|}#?[]')


def code_of(name: Column) -> Column:
    """A name's number, as Spark computes it."""
    return F.xxhash64(name)


def code(name: str) -> int:
    """The number of a file's name: the same, as Spark tells names like parts of addresses."""
    told = "".join(quote(each) if each in _ENCODED else each for each in name)
    digest = xxh64_intdigest(told.encode(), _SEED)
    return digest - (1 << 64) if digest >> 63 else digest


class FileNames:
    """The names of all inputs' files by number, found as they are asked for."""

    def __init__(self, inputs: tuple[Input, ...], base: Path) -> None:
        self._paths = {one.name: base / one.connector.option("path") for one in inputs if not is_foreign(one)}
        # What has no file has this name.
        self._names = {code(""): ""}

    def name(self, stream: str, number: int) -> str:
        """The file of a stream's rows."""
        if number not in self._names:
            self._list(stream)
        if number not in self._names:
            remedy = "files must stay where they are until what was read of them is answered"
            raise DataError(f"{stream}: a file that was read is not in {self._paths[stream]}: {remedy}")
        return self._names[number]

    def _list(self, stream: str) -> None:
        path = self._paths[stream]
        for file in path.iterdir() if path.is_dir() else [path]:
            if not _PATTERNS.isdisjoint(file.name):
                fault = f"{stream}: a file is called {file.name}: Spark takes []{{}}*? in names for patterns"
                raise DataError(f"{fault}, and may read this and other files twice; rename it")
            self._names[code(file.name)] = file.name
