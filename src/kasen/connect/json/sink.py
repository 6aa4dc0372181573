"""A file of changes as JSON lines. Exactly once: on recovery it is cut back to its committed length."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kasen.connect.text.append_file import AppendFile, FileOutput
from kasen.connect.text.writer import RowWriter, json_text


class JsonSink(FileOutput):
    """One object a change, with the keys ts, seq, tick, diff and the columns. Positions are in bytes."""

    def __init__(self, path: Path, schema: pa.Schema, resume: int | None = None) -> None:
        super().__init__(AppendFile(path, b"", resume))
        keys = [json_text(name) + ": " for name in schema.names]
        pieces = ["{" + keys[0], *(", " + key for key in keys[1:]), "}\n"]
        self._writer = RowWriter(schema, pieces, null="null", text=json_text, quoted=True)

    def write(self, table: pa.Table) -> None:
        for part in self._writer.rows(table):
            self._file.write(part)
