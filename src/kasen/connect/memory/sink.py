"""Changes kept in memory, for programs that read a query's answers themselves."""

from __future__ import annotations

import pyarrow as pa


class MemorySink:
    """Keeps every change. Positions count rows. It does not outlive its process, so it promises nothing."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += len(table)

    def table(self) -> pa.Table:
        """All changes so far."""
        self._tables = [pa.concat_tables([self._schema.empty_table(), *self._tables])]
        return self._tables[0]

    def flush(self, sync: bool = False) -> None:
        del sync

    def position(self) -> int:
        return self._rows

    def checksum(self) -> str:
        return ""

    def truncate(self, position: int) -> None:
        self._tables = [self.table().slice(0, position)]
        self._rows = position

    def close(self) -> None:
        return
