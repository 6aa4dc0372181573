"""The files of a connector, and reading them one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kasen.connect.chunk import START, Chunk, Position
from kasen.errors import DataError

_COMPRESSED = (".gz", ".bz2", ".zst", ".zstd", ".xz", ".lz4", ".snappy", ".deflate")


def is_address(path: str | Path) -> bool:
    """Whether a path is on a file system that its scheme names, and not on this machine's."""
    return "://" in str(path)


def located(base: Path, path: str) -> str:
    """A path that Spark is handed: an address as it is, any other made absolute."""
    return path if is_address(path) else str((base / path).resolve())


def data_files(path: Path, format_: str) -> list[Path]:
    """The path itself, or a folder's files of that format, in the order of their names."""
    if path.is_dir():
        return sorted(file for file in path.glob(f"*.{format_}") if not file.name.startswith((".", "_")))
    return [path] if path.is_file() else []


def need_plain_text(name: str, format_: str, stream: str) -> None:
    """Refuses compressed csv and JSON: a few bytes of them may stand for more than any machine can hold."""
    if format_ in ("csv", "json") and name.lower().endswith(_COMPRESSED):
        raise DataError(f"{stream}: {name} is compressed; Kasen reads csv and JSON as plain text: unpack it")


def need_files(path: Path, format_: str, stream: str) -> list[Path]:
    need_plain_text(path.name, format_, stream)
    files = data_files(path, format_)
    if files:
        return files
    if path.is_dir():
        raise DataError(f"{stream}: no *.{format_} file in the folder {path}")
    near = sorted(each.name for each in path.parent.glob(f"*.{format_}")) if path.parent.is_dir() else []
    there = f"; {path.parent} has: {', '.join(near)}" if near else ""
    raise DataError(f"{stream}: no file {path}{there}")


class FileReader(Protocol):
    """Reads one file, whose columns it has checked when it was made."""

    path: Path

    def chunks(self, offset: int, line: int) -> Iterator[Chunk]:
        """The rows from there on; offset 0 is the beginning of the file."""
        ...


class FileSource:
    """A source of one file or several."""

    def __init__(self, readers: list[FileReader]) -> None:
        self._readers = readers

    def chunks(self, start: Position = START) -> Iterator[Chunk]:
        for reader in self._readers:
            name = reader.path.name
            if name == start.file:
                yield from reader.chunks(start.offset, start.line)
            elif name > start.file:
                yield from reader.chunks(0, 1)
