"""From a link's record batches to the rows of an input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kasen.connect.arrow_columns import check_types, read_batch
from kasen.connect.chunk import Position
from kasen.connect.decode import INSTANT_AND_DIFF
from kasen.connect.draft import Draft
from kasen.connect.encode import encode
from kasen.connect.layout import ColumnPositions
from kasen.connect.registry import layout_of_input
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError
from kasen.ha.link.out_queue import times
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.types import Type, to_arrow


class LinkRows:
    """Reads one input.

    Its time is the instant's, whatever TIMESTAMP BY calls it; other columns go by name.
    """

    def __init__(self, input_: Input, time: Type, schema: pa.Schema) -> None:
        """DataError if the query's columns are not what the input declares."""
        if input_.timestamp is None:
            raise DataError(f"{input_.name} comes over a link, which carries times: declare it TIMESTAMP BY")
        if schema.field(0).type != to_arrow(time):
            raise DataError(f"{input_.name}: times are {schema.field(0).type} on the link, and {time} here")
        self._layout = layout_of_input(input_)
        own = [name.lower() for name in schema.names]
        own[: len(INSTANT_AND_DIFF)] = [""] * len(INSTANT_AND_DIFF)
        columns = []
        for index, field in enumerate(input_.schema):
            if index == input_.timestamp:
                columns.append(0)
                continue
            if own.count(field.name.lower()) != 1:
                there = ", ".join(schema.names[len(INSTANT_AND_DIFF) :])
                raise DataError(
                    f"{input_.name}: expected exactly one column {field.name!r} on the link,"
                    f" found {own.count(field.name.lower())}; it has: {there}"
                )
            columns.append(own.index(field.name.lower()))
        diff = INSTANT_AND_DIFF.index("diff") if input_.is_relation else None
        self._found = ColumnPositions(tuple(columns), diff)
        check_types(self._layout, self._found, schema, "the link")
        name = input_.schema[input_.timestamp].name.lower()
        self._same = own.index(name) if name in own else None

    def check(self, batch: pa.RecordBatch) -> None:
        """DataError if a row is not of its type: a link carries what another node has checked."""
        self._read(batch)

    def rows(self, batch: pa.RecordBatch, dictionary: Dictionary) -> InputRows:
        lines = np.arange(batch.num_rows, dtype=np.int64)
        chunk = self._read(batch).finish(lines + 1, lambda _: "", lambda _: {}, Position("", 0, 0))
        return InputRows(times(batch).copy(), chunk.diff, encode(chunk, dictionary), lines)

    def _read(self, batch: pa.RecordBatch) -> Draft:
        if self._same is not None and not np.array_equal(times(batch), _numbers(batch, self._same)):
            name = batch.schema.names[self._same]
            raise DataError(
                f"{self._layout.name}: column {name!r} is not the time of its changes; select it AS something"
            )
        draft = Draft(self._layout, batch.num_rows)
        read_batch(draft, batch, self._found)
        if draft.unsure.any():
            row = batch.slice(int(np.flatnonzero(draft.unsure)[0]), 1).to_pylist()[0]
            raise DataError(f"{self._layout.name}: a row does not fit the declared columns: {row}")
        return draft


def _numbers(batch: pa.RecordBatch, column: int) -> np.ndarray:
    array = batch.column(column)
    if array.null_count:
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]
