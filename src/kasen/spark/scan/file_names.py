"""Where a row comes from, as a number: a file's name in each row would take longer to cross than the row.

Spark hashes the names as it reads; where the block begins that it reads of a file is laid over the hash. The
driver hashes the names in the folder, and so knows which file and block are meant.
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
from kasen.spark.scan.input_files import PATTERNS, input_files, need_header

# That of Spark's xxhash64.
_SEED = 42
_ENCODED = frozenset(' %"<>\\^`{|}#?[]')


def code_of(name: Column, block: Column | int = 0) -> Column:
    """The number of a block of a file, as Spark computes it."""
    return F.xxhash64(name).bitwiseXOR(F.lit(block) if isinstance(block, int) else block)


def code(name: str) -> int:
    """The number of a file's first block: the same, as Spark tells names like parts of addresses."""
    told = "".join(quote(each) if each in _ENCODED else each for each in name)
    digest = xxh64_intdigest(told.encode(), _SEED)
    return digest - (1 << 64) if digest >> 63 else digest


class FileNames:
    """The names of all inputs' files by number, found as they are asked for."""

    def __init__(self, inputs: tuple[Input, ...], base: Path) -> None:
        self._base = base
        self._inputs = {input_.name: input_.connector for input_ in inputs if not is_foreign(input_)}
        #: The numbers of the files of each stream, and how long they were.
        self._files: dict[str, dict[int, tuple[str, int]]] = {}
        #: The columns of csv files, and those that have been compared.
        self._headers: dict[str, list[str]] = {}
        self._checked: set[tuple[str, str]] = set()
        # What has no file has this name.
        self._blocks = {code(""): ("", 0)}

    def find(self, stream: str, number: int) -> tuple[str, int]:
        """The file of a stream's rows, and where in it the block begins."""
        if number not in self._blocks:
            found = self._known(stream, number)
            if not found:
                # It came, or grew, since the folder was last looked at.
                self._list(stream)
                found = self._known(stream, number)
            if len(found) != 1:
                remedy = "files must stay where they are, and whole, until what was read of them is answered"
                path = self._inputs[stream].option("path")
                raise DataError(f"{stream}: a file that was read is not in {path}: {remedy}")
            self._check_columns(stream, found[0][0])
            self._blocks[number] = found[0]
        return self._blocks[number]

    def _check_columns(self, stream: str, name: str) -> None:
        """Whether a csv file that came has the columns of the others."""
        connector = self._inputs[stream]
        if connector.format != "csv" or (stream, name) in self._checked:
            return
        files = input_files(self._base, connector.option("path"), connector.format)
        if stream not in self._headers:
            self._headers[stream] = files.header(files.names()[0], stream)
        need_header(stream, files, name, self._headers[stream])
        self._checked.add((stream, name))

    def _known(self, stream: str, number: int) -> list[tuple[str, int]]:
        """The blocks of files that have a number: one, if the file is there."""
        files = self._files.get(stream, {}).items()
        return [(name, number ^ first) for first, (name, size) in files if 0 <= number ^ first <= size]

    def _list(self, stream: str) -> None:
        connector = self._inputs[stream]
        for name, size in input_files(self._base, connector.option("path"), connector.format).sizes().items():
            if not PATTERNS.isdisjoint(name):
                fault = f"{stream}: a file is called {name}: Spark takes []{{}}*? in names for patterns"
                raise DataError(f"{fault}, and may read this and other files twice; rename it")
            self._files.setdefault(stream, {})[code(name)] = (name, size)
