"""A csv file of changes. Exactly once: on recovery it is cut back to its committed length."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kasen.connect.text.append_file import AppendFile, FileOutput
from kasen.connect.text.writer import RowWriter, csv_text


class CsvSink(FileOutput):
    """Header ts,seq,tick,diff,<columns>. Positions are lengths in bytes."""

    def __init__(self, path: Path, schema: pa.Schema, resume: int | None = None) -> None:
        header = ",".join(csv_text(name) for name in schema.names) + "\n"
        super().__init__(AppendFile(path, header.encode(), resume))
        pieces = ["", *[","] * (len(schema) - 1), "\n"]
        self._writer = RowWriter(schema, pieces, null="", text=csv_text, quoted=False)

    def write(self, table: pa.Table) -> None:
        for part in self._writer.rows(table):
            self._file.write(part)
