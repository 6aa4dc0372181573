"""The files of an input, as the driver sees them: on this machine, or at an address that Spark reaches."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from kasen.connect import files as local_files
from kasen.connect.csv.source import header_of, read_header
from kasen.connect.files import is_address
from kasen.errors import DataError
from kasen.spark.faults import said

#: No header of a csv file is longer, nor the first row of a JSON file.
_HEAD_BYTES = 1 << 20
#: What Spark takes for patterns in names, and what no path of Hadoop's has.
PATTERNS = frozenset("[]{}*?")
_UNREADABLE = PATTERNS | {":"}


class InputFiles(Protocol):
    """A file, or a folder with files."""

    #: What Spark reads: a folder, and the names in it.
    folder: str
    pattern: str

    def names(self) -> list[str]:
        """The names of the files, in order."""
        ...

    def need(self, stream: str) -> list[str]:
        """The same; a DataError if there are none."""
        ...

    def header(self, name: str, stream: str) -> list[str]:
        """The columns of a csv file."""
        ...

    def head(self, name: str) -> bytes:
        """How a file begins."""
        ...

    def address(self, name: str) -> str:
        """Where Spark finds one of them."""
        ...

    def sizes(self) -> dict[str, int]:
        """All files that are there now, also those of other formats."""
        ...


def input_files(base: Path, path: str, format_: str) -> InputFiles:
    return RemoteFiles(path, format_) if is_address(path) else LocalFiles(base / path, format_)


def _need_plain(stream: str, folder: str, names: list[str]) -> None:
    """Refuses names that Spark does not take as they are."""
    for name in (folder, *names):
        odd = sorted((_UNREADABLE if name is not folder else PATTERNS) & set(name))
        if odd:
            fault = f"{stream}: {name} has {' '.join(odd)} in its name, which Spark cannot read"
            raise DataError(f"{fault}, or takes for a pattern; rename it")
        if name is not folder and name.startswith(("_", ".")):
            raise DataError(f"{stream}: Spark takes {name} for a hidden file, and reads nothing; rename it")


def _refuse_partition(stream: str, folder: str) -> None:
    remedy = "give the path of the folder with the files themselves"
    raise DataError(f"{stream}: Spark would read {folder} instead of the files beside it; {remedy}")


def _folders(system: Any, path: Any) -> list[str]:
    if not system.getFileStatus(path).isDirectory():
        return []
    return [one.getPath().getName() for one in system.listStatus(path) if one.isDirectory()]


def need_header(stream: str, files: InputFiles, file: str, header: list[str]) -> None:
    """Spark reads the columns of csv files by their places: all files must have the same ones."""
    found = files.header(file, stream)
    if [name.lower() for name in found] != [name.lower() for name in header]:
        fault = f"{stream}: {files.address(file)} has the columns {', '.join(found)}"
        remedy = "on Spark, the csv files of a folder have the same ones in the same order"
        raise DataError(f"{fault}, others have {', '.join(header)}: {remedy}")


class LocalFiles:
    """On this machine."""

    def __init__(self, path: Path, format_: str) -> None:
        self._path = path
        self._format = format_
        is_folder = path.is_dir()
        self._folder = path if is_folder else path.parent
        self.folder = str(self._folder.resolve())
        # A file stream reads folders: one file is a folder seen through its name.
        self.pattern = f"*.{format_}" if is_folder else path.name

    def names(self) -> list[str]:
        return [file.name for file in local_files.data_files(self._path, self._format)]

    def need(self, stream: str) -> list[str]:
        names = [file.name for file in local_files.need_files(self._path, self._format, stream)]
        _need_plain(stream, self.folder, names)
        for each in self._path.iterdir() if self._path.is_dir() else ():
            if "=" in each.name and each.is_dir():
                _refuse_partition(stream, str(each))
        return names

    def header(self, name: str, stream: str) -> list[str]:
        return read_header(self._folder / name, stream)[0]

    def head(self, name: str) -> bytes:
        with (self._folder / name).open("rb") as file:
            return file.read(_HEAD_BYTES)

    def address(self, name: str) -> str:
        return str((self._folder / name).resolve())

    def sizes(self) -> dict[str, int]:
        files = self._path.iterdir() if self._path.is_dir() else [self._path]
        return {file.name: file.stat().st_size for file in files}


class RemoteFiles:
    """On a file system of Spark's, through which they are looked at."""

    def __init__(self, address: str, format_: str) -> None:
        self._address = address.rstrip("/")
        self._format = format_
        is_folder = self._ask(lambda system, path: system.getFileStatus(path).isDirectory())
        self.folder, name = (self._address, "") if is_folder else self._address.rsplit("/", 1)
        self.pattern = name or f"*.{format_}"
        self._only = name

    def _ask(self, question: Any, address: str | None = None) -> Any:
        """What its file system says of a path."""
        jvm: Any = SparkContext._jvm
        context: Any = SparkContext._active_spark_context
        path = jvm.org.apache.hadoop.fs.Path(address or self._address)
        try:
            return question(path.getFileSystem(context._jsc.hadoopConfiguration()), path)
        except Py4JJavaError as error:
            raise DataError(f"Spark cannot read {address or self._address}: {said(error)}") from None

    def names(self) -> list[str]:
        hidden = (".", "_")
        return sorted(
            name
            for name in self.sizes()
            if name == self._only or (name.endswith(f".{self._format}") and not name.startswith(hidden))
        )

    def need(self, stream: str) -> list[str]:
        names = self.names()
        for name in names:
            local_files.need_plain_text(name, self._format, stream)
        if not names:
            raise DataError(f"{stream}: no *.{self._format} file in the folder {self._address}")
        _need_plain(stream, self.folder.split("://", 1)[1].split("/", 1)[-1], names)
        for name in self._ask(_folders):
            if "=" in name:
                _refuse_partition(stream, self.address(name))
        return names

    def header(self, name: str, stream: str) -> list[str]:
        return header_of(BytesIO(self.head(name)), self.address(name), stream)[0]

    def head(self, name: str) -> bytes:
        def first(system: Any, path: Any) -> bytes:
            file = system.open(path)
            try:
                return bytes(file.readNBytes(_HEAD_BYTES))
            finally:
                file.close()

        begins: bytes = self._ask(first, self.address(name))
        return begins

    def address(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def sizes(self) -> dict[str, int]:
        found = self._ask(lambda system, path: system.listStatus(path))
        return {one.getPath().getName(): int(one.getLen()) for one in found}
