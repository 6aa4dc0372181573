"""A file of changes as JSON lines. Exactly once: on recovery it is cut back to its committed length."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kasen.connect.append_file import AppendFile
from kasen.connect.cell_text import ROWS_AT_ONCE, json_cells, json_text, lines


class JsonSink:
    """One object a change, with the keys ts, seq, tick, diff and the columns. Positions are in bytes."""

    def __init__(self, path: Path, schema: pa.Schema, resume: int | None = None) -> None:
        self._file = AppendFile(path, b"", resume)
        self._keys = [json_text(name) + ": " for name in schema.names]

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(ROWS_AT_ONCE):
            pieces: list[pa.Array | str] = []
            for key, column in zip(self._keys, batch.columns, strict=True):
                pieces += [", " + key, json_cells(column)]
            pieces[0] = "{" + self._keys[0]
            self._file.write(lines([*pieces, "}\n"]))

    def flush(self, sync: bool = False) -> None:
        self._file.flush(sync)

    def position(self) -> int:
        return self._file.position()

    def truncate(self, position: int) -> None:
        self._file.truncate(position)

    def close(self) -> None:
        self._file.close()
