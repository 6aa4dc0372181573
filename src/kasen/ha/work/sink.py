"""The end of a chain: writes what comes over links to csv files, each tuple once, whatever happens.

A journal beside the files says how far each link was written, at which length and checksum of its file, and
under which generation. It is written after the file, so a restarted sink cuts its files back to what the
journal says. Its first lines are written before the files: a file that the journal does not know means that
the journal is lost.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

import pyarrow as pa

from kasen.checksum import Checksum, note_unprotected
from kasen.connect.csv.sink import CsvSink
from kasen.errors import DataError, KasenError
from kasen.ha.config import Neighbour
from kasen.ha.link.out_queue import times
from kasen.ha.link.wire import BEGIN, Json, LinkPiece, digest, pack, unpack
from kasen.ha.work.work import Result, Work
from kasen.runtime.history import Restart

_REMEMBERED = 500
_JOURNAL_BYTES = 1 << 20


class OutputFault(KasenError):
    """The files of a sink are not what it wrote. It ends, whoever sends to it."""


class SinkWork(Work):
    """Files `<stream>.csv` in a folder."""

    def __init__(self, folder: Path, inputs: tuple[Neighbour, ...]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._journal = folder / "journal.jsonl"
        self._files: dict[str, CsvSink] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self.positions = {link.stream: BEGIN for link in inputs}
        #: The latest generation that each link was written under, and the copy that led it.
        self.leaders = {link.stream: (1, link.copies[0]) for link in inputs}
        self.ended = {link.stream: False for link in inputs}
        self._lengths: dict[str, int] = {}
        #: Of the files up to these lengths. None for lines of versions that kept none, and for length 0.
        self._checksums: dict[str, str | None] = {}
        #: Of the latest pieces, µs from their first tuple's own time to its being written, by the wall clock.
        self.lateness: deque[int] = deque(maxlen=_REMEMBERED)
        is_old = self._read_journal()
        new = [link.stream for link in inputs if link.stream not in self._lengths]
        if not is_old:
            self._check_no_file(new)
        self._check_files()
        self._log = self._journal.open("ab")
        for stream in new:
            self._lengths[stream], self._checksums[stream] = 0, None
            self._log.write(self._entry(stream))
        self._log.flush()

    def _path(self, stream: str) -> Path:
        return self._folder / f"{stream}.csv"

    def _read_journal(self) -> bool:
        """Whether it has lines of a version that wrote none before it made a file, and kept no checksums."""
        if not self._journal.exists():
            return False
        is_old = False
        whole = self._journal.read_bytes()
        complete = whole[: whole.rfind(b"\n") + 1]
        if len(complete) < len(whole):
            with self._journal.open("r+b") as file:
                file.truncate(len(complete))
        for number, line in enumerate(complete.splitlines(), 1):
            entry = self._parse(line, number)
            stream = entry["stream"]
            if stream not in self.positions:
                raise DataError(f"{self._journal} is of a sink with a link for {stream}")
            self.positions[stream], self._lengths[stream] = entry["position"], entry["length"]
            self.ended[stream] = entry["ended"]
            self._checksums[stream] = entry.get("checksum")
            is_old |= "checksum" not in entry
            if "copy" in entry:
                self.leaders[stream] = entry["generation"], entry["copy"]
        return is_old

    def _parse(self, line: bytes, number: int) -> Json:
        """An entry and, behind a tab, its checksum; journals of earlier versions have none."""
        text, _, sum_ = line.partition(b"\t")
        try:
            if sum_ and digest(text).encode() != sum_:
                raise DataError("its checksum does not fit")
            return unpack(text)
        except DataError as fault:
            # What earlier lines say may be less than upstream still holds.
            raise self._fault(f"{self._journal}, line {number}, is damaged ({fault})", "") from None

    def _check_no_file(self, streams: list[str]) -> None:
        """What is in such a file may be all that is left of its answers."""
        for stream in streams:
            if (path := self._path(stream)).exists():
                why = f"{self._journal} is missing or damaged: it does not know {path}, which exists"
                raise self._fault(why, f"restore {self._journal.name}, or ")

    def _check_files(self) -> None:
        """Refuses files that are not what was written, before anything is cut off or added."""
        for stream, length in self._lengths.items():
            if length == 0:
                continue
            path, restore = self._path(stream), "restore it, or "
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    found = Checksum.of(file, length).text
            except OSError as fault:
                raise self._fault(f"{path} cannot be read: {fault.strerror}", restore) from None
            if size < length:
                raise self._fault(f"{path} is damaged: it has {size} bytes of the {length} written", restore)
            noted = self._checksums[stream]
            if noted is None:
                note_unprotected(path)
            elif noted != found:
                why = f"{path} is damaged, or was changed: its checksum is not that of what was written"
                raise self._fault(why, restore)

    def _fault(self, why: str, restore: str) -> OutputFault:
        return OutputFault(f"{why}; {restore}remove {self._folder} and start the cluster anew")

    def gap(self, lost: str) -> OutputFault:
        """A journal whose last lines are gone says less than upstream was told, and so has forgotten."""
        return self._fault(f"{lost}, unless {self._journal} was cut off", "restore it, or ")

    def accept(self, link: Neighbour, schema: pa.Schema) -> None:
        self._schemas.setdefault(link.stream, schema)

    def _file(self, stream: str) -> CsvSink:
        """Opened for the first piece that follows what was written: after a gap, nothing is cut off."""
        found = self._files.get(stream)
        if found is None:
            # At length 0 the file may not be there yet.
            found = CsvSink(self._path(stream), self._schemas[stream], self._lengths[stream] or None)
            self._files[stream] = found
        return found

    def check(self, stream: str, batch: pa.RecordBatch) -> None:
        if batch.schema != self._schemas[stream]:
            raise DataError(f"{stream}: other columns than its file has: {', '.join(batch.schema.names)}")

    def begin(self, restart: Restart | None) -> None:
        raise AssertionError(f"a sink never starts anew {restart}")

    def process(self, pieces: list[tuple[str, LinkPiece]]) -> Result:
        for stream, piece in pieces:
            file = self._file(stream)
            if piece.batch is not None:
                file.write(pa.Table.from_batches([piece.batch]))
                self.lateness.append(time.time_ns() // 1000 - int(times(piece.batch)[0]))
            file.flush(sync=piece.ended)
            self.positions[stream] = piece.upto
            self.ended[stream] = self.ended[stream] or piece.ended
            self._lengths[stream], self._checksums[stream] = file.position(), file.checksum()
            self._log.write(self._entry(stream))
        self._log.flush()
        if self._log.tell() > _JOURNAL_BYTES:
            self._shorten()
        return Result({}, max(self.positions.values()), all(self.ended.values()))

    def _entry(self, stream: str) -> bytes:
        generation, copy = self.leaders[stream]
        entry = {"stream": stream, "position": self.positions[stream], "length": self._lengths[stream]}
        entry |= {"checksum": self._checksums[stream], "generation": generation, "copy": copy}
        text = pack(entry | {"ended": self.ended[stream]})
        return text + b"\t" + digest(text).encode() + b"\n"

    def _shorten(self) -> None:
        """Only the last line of each stream counts. The old journal counts until the new one has its name."""
        draft = self._journal.with_suffix(".draft")
        draft.write_bytes(b"".join(self._entry(stream) for stream in self._lengths))
        draft.replace(self._journal)
        self._log.close()
        self._log = self._journal.open("ab")

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._log.close()
