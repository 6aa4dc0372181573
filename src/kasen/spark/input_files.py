"""The files of an input, as the driver sees them: on this machine, or at an address that Spark reaches."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from kasen.connect import files as local_files
from kasen.connect.csv_source import header_of, read_header
from kasen.connect.files import is_address
from kasen.errors import DataError

#: No header of a csv file is longer.
_HEADER_BYTES = 1 << 20


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

    def address(self, name: str) -> str:
        """Where Spark finds one of them."""
        ...

    def sizes(self) -> dict[str, int]:
        """All files that are there now, also those of other formats."""
        ...


def input_files(base: Path, path: str, format_: str) -> InputFiles:
    return RemoteFiles(path, format_) if is_address(path) else LocalFiles(base / path, format_)


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

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        return [file.name for file in local_files.data_files(self._path, self._format)]

    def need(self, stream: str) -> list[str]:
        return [file.name for file in local_files.need_files(self._path, self._format, stream)]

    def header(self, name: str, stream: str) -> list[str]:
        return read_header(self._folder / name, stream)[0]

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

    def __str__(self) -> str:
        return self._address

    def _ask(self, question: Any, address: str | None = None) -> Any:
        """What its file system says of a path."""
        jvm: Any = SparkContext._jvm
        context: Any = SparkContext._active_spark_context
        path = jvm.org.apache.hadoop.fs.Path(address or self._address)
        try:
            return question(path.getFileSystem(context._jsc.hadoopConfiguration()), path)
        except Py4JJavaError as error:
            fault = str(error.java_exception.toString()).splitlines()[0]
            raise DataError(f"Spark cannot read {address or self._address}: {fault}") from None

    def names(self) -> list[str]:
        hidden = (".", "_")
        return sorted(
            name
            for name in self.sizes()
            if name == self._only or (name.endswith(f".{self._format}") and not name.startswith(hidden))
        )

    def need(self, stream: str) -> list[str]:
        names = self.names()
        if not names:
            raise DataError(f"{stream}: no *.{self._format} file in the folder {self._address}")
        return names

    def header(self, name: str, stream: str) -> list[str]:
        def first(system: Any, path: Any) -> bytes:
            file = system.open(path)
            try:
                return bytes(file.readNBytes(_HEADER_BYTES))
            finally:
                file.close()

        address = self.address(name)
        return header_of(BytesIO(self._ask(first, address)), address, stream)[0]

    def address(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def sizes(self) -> dict[str, int]:
        found = self._ask(lambda system, path: system.listStatus(path))
        return {one.getPath().getName(): int(one.getLen()) for one in found}
