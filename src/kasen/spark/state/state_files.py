"""Where state lies: whole files below a folder, or below an address on any file system that Spark reaches.

A file's name ends with its checksum, so a commit record that names it records the checksum too; records are
sealed. Nothing is parsed before its checksum is right.

Python workers have no way to Spark's own file systems, so files are read and written by Arrow's, or for what
Arrow does not know by fsspec's. Neither can create a file only if it is not there; the driver, which alone
does so, has Spark do it as for its own checkpoints.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs
from py4j.protocol import Py4JJavaError

from kasen.checksum import DamagedFile, checksum, parsing, seal, unseal, verify
from kasen.connect.files import is_address, located
from kasen.engine.operator import State
from kasen.errors import DataError, writing
from kasen.runtime.durable.arrays import unpack_arrays
from kasen.runtime.durable.checkpoint import sync_folder
from kasen.spark.faults import said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A setting of Spark's: by which address Python reaches the checkpoint, if not by Spark's own. (hdfs:// needs
#: libhdfs on every host, and webhdfs:// does not, but Spark's own client of the latter lacks a class.)
SAME_PLACE = "spark.kasen.checkpoint"
_FOLDER = "state"
#: What Spark calls them, and what Arrow does.
_ALIASES = {"s3a": "s3", "s3n": "s3"}


def below(folder: str | Path, name: str) -> str:
    """The path or address of a folder in another one."""
    return f"{str(folder).rstrip('/')}/{name}" if is_address(folder) else located(Path(folder), name)


@cache
def _file_system(root: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system that a path or an address is on, and its path there."""
    if not is_address(root):
        return pyarrow.fs.LocalFileSystem(), root
    scheme, rest = root.split("://", 1)
    try:
        system, path = pyarrow.fs.FileSystem.from_uri(f"{_ALIASES.get(scheme, scheme)}://{rest}")
        return system, str(path)
    except pa.ArrowInvalid:
        return _by_fsspec(root, scheme)
    except OSError as error:
        remedy = f"if Python knows it by another address, set {SAME_PLACE}"
        raise DataError(f"cannot reach {root} from Python: {error}; {remedy}") from None


def _by_fsspec(root: str, scheme: str) -> tuple[pyarrow.fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        remedy = "pip install fsspec, and the package that it needs for this file system"
        raise DataError(f"Arrow does not know the file system of {root}: {remedy}") from None
    try:
        system, path = url_to_fs(root)
    except (ImportError, ValueError) as error:
        raise DataError(f"neither Arrow nor fsspec knows the file system {scheme}:// ({error})") from None
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(system)), str(path)


#: A file, and what is wrong with it.
Damage = tuple[str, str]


class Files:
    """Whole files below a path or an address. Workers use this alone."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._system, self._base = _file_system(root)
        self._is_local = isinstance(self._system, pyarrow.fs.LocalFileSystem)
        #: Whether records may lack a seal: the folder was begun before there were any.
        self.takes_old = False
        #: Whether a record without a seal was read.
        self.met_old = False

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def make(self, *folders: str) -> None:
        for folder in folders:
            self._system.create_dir(self._path(folder), recursive=True)

    def read(self, name: str) -> bytes:
        """A file as it was written, or an error."""
        content = self._read(name)
        verify(f"{self.root}/{name}", checksum(content))
        return content

    def arrays(self, name: str) -> dict[str, State]:
        """The arrays that a file holds."""
        content = self.read(name)
        with parsing(f"{self.root}/{name}"):
            return unpack_arrays(content)

    def record(self, name: str) -> bytes:
        """What a record holds that was created."""
        sealed = self._read(name)
        content = bytes(unseal(sealed, f"{self.root}/{name}", old=self.takes_old))
        self.met_old |= len(content) == len(sealed)
        return content

    def find_damage(self, names: Iterable[str]) -> Damage | None:
        """The first of these files that is damaged."""
        for name in names:
            try:
                self.read(name)
            except DamagedFile as damage:
                return damage.file, damage.why
        return None

    def _read(self, name: str) -> bytes:
        try:
            with self._system.open_input_file(self._path(name)) as file:
                content: bytes = file.read()
        except FileNotFoundError:
            raise DamagedFile(f"{self.root}/{name}", "it is missing") from None
        return content

    def write(self, name: str, content: bytes, *, lasting: bool = True) -> tuple[str, int]:
        """A new file, safe when this returns if it is to last; its name with its checksum, and its size."""
        name = f"{name}.{checksum(content)}"
        self._write(name, content, lasting=lasting)
        return name, len(content)

    def _write(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        if self._is_local:
            with writing(self._path(name)), Path(self._path(name)).open("wb") as file:
                file.write(content)
                if lasting:
                    file.flush()
                    os.fsync(file.fileno())
        else:
            with self._system.open_output_stream(self._path(name)) as stream:
                stream.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """A new record, whole at once; False if there is one of that name already, which stays as it is."""
        return self._create(name, seal(content))

    def _create(self, name: str, content: bytes) -> bool:
        assert self._is_local, "elsewhere only the driver creates files"
        draft = f"{name}.{uuid.uuid4().hex}"
        self._write(draft, content)
        try:
            # Unlike a rename, a link never replaces what is there.
            os.link(self._path(draft), self._path(name))
        except FileExistsError:
            return False
        finally:
            Path(self._path(draft)).unlink()
        sync_folder(Path(self._path(name)).parent)
        return True

    def exists(self, name: str) -> bool:
        info = self._system.get_file_info(self._path(name))
        return bool(info.type != pyarrow.fs.FileType.NotFound)

    def list(self, folder: str) -> list[str]:
        selector = pyarrow.fs.FileSelector(self._path(folder), allow_not_found=True)
        return sorted(f"{folder}/{info.base_name}" for info in self._system.get_file_info(selector))

    def remove(self, name: str) -> None:
        try:
            self._system.delete_file(self._path(name))
        except FileNotFoundError:
            return


class DriverFiles(Files):
    """The driver's, which creates files at an address as Spark does those of its own checkpoints."""

    def __init__(self, spark: SparkSession, checkpoint: str | Path) -> None:
        """Below a folder, or below an address of Spark's; Python may have to know that place by another."""
        self._spark = spark
        self._address = below(checkpoint, _FOLDER)
        super().__init__(below(str(spark.conf.get(SAME_PLACE, None) or checkpoint), _FOLDER))

    def _create(self, name: str, content: bytes) -> bool:
        if self._is_local:
            return super()._create(name, content)
        address = f"{self._address}/{name}"
        try:
            self._create_by_spark(address, content)
        except Py4JJavaError as error:
            if self.exists(name):
                return False
            raise DataError(f"cannot create {address}: {said(error)}") from None
        if not self.exists(name):
            remedy = f"{SAME_PLACE} must be another address of the same folder"
            raise DataError(f"Spark has created {address}, but Python finds no {self.root}/{name}: {remedy}")
        return True

    def _create_by_spark(self, address: str, content: bytes) -> None:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(address)
        managers = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        stream = managers.create(path.getParent(), conf).createAtomic(path, False)
        try:
            stream.write(content)
            stream.close()
        except Py4JJavaError:
            stream.cancel()
            raise
