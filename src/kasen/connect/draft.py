"""A chunk in the making: columns read in bulk, then the rows that bulk reading was not sure of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kasen.connect.chunk import Chunk, DeadLetter, Position
from kasen.connect.layout import Layout
from kasen.connect.values import RefusedRow, Value, read_row
from kasen.engine.batch import I64, ones, zeros

Flags = npt.NDArray[np.bool_]


class Draft:
    """n rows of a layout. `unsure` marks those whose values are still to be told, by values.read_row.

    Whoever reads a column sets it, and then its NULLs and doubts; columns that nobody sets are all 0.
    `lend` says that columns may lie in memory that is not the draft's own: then nobody changes that later.
    """

    def __init__(self, layout: Layout, n: int, *, lend: bool = False) -> None:
        self.layout = layout
        self.lend = lend
        self.data: list[I64] = [zeros(n)] * (layout.width + 1)
        self.diff: I64 = ones(n)
        self.texts: dict[int, pa.StringArray] = {}
        self._rows = n
        self._unsure: Flags | None = None  # none is

    @property
    def unsure(self) -> Flags:
        if self._unsure is None:
            self._unsure = np.zeros(self._rows, np.bool_)
        return self._unsure

    @unsure.setter
    def unsure(self, rows: Flags) -> None:
        self._unsure = rows

    def set_nulls(self, index: int, nulls: Flags) -> None:
        """Values of NULLs must be 0 already. A row without its time is never right."""
        if nulls.any():
            self.data[-1] = self.data[-1] | nulls.astype(np.int64) << index
            if index == self.layout.timestamp:
                self.unsure |= nulls

    def set_texts(self, index: int, texts: pa.StringArray | pa.DictionaryArray) -> None:
        """A whole VARCHAR column, NULLs too."""
        encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
        if isinstance(texts, pa.DictionaryArray):
            if encoded.dictionary.null_count:
                encoded = encoded.dictionary_decode().cast(pa.string()).dictionary_encode()
            indices, different = encoded.indices.cast(pa.int32()), encoded.dictionary.cast(pa.string())
            encoded = pa.DictionaryArray.from_arrays(indices, different)
        self.texts[index] = encoded.dictionary
        indices = encoded.indices
        self._doubt_long_texts(encoded)
        if indices.null_count:
            self.set_nulls(index, indices.is_null().to_numpy(zero_copy_only=False))
            indices = indices.fill_null(0)
        self.data[index] = indices.to_numpy().astype(np.int64)

    def _doubt_long_texts(self, encoded: pa.DictionaryArray) -> None:
        most = self.layout.max_text_bytes
        if encoded.dictionary.nbytes <= most:
            return
        lengths = pc.binary_length(encoded.dictionary).to_numpy()
        if lengths.max(initial=0) > most:
            places = encoded.indices.fill_null(0).to_numpy()
            self.unsure |= (lengths > most)[places] & encoded.indices.is_valid().to_numpy(
                zero_copy_only=False
            )

    def check_diff(self) -> None:
        """To be called when `diff` has been written."""
        self.unsure |= (self.diff != 1) & (self.diff != -1)

    def finish(
        self,
        lines: I64 | range,
        raw_of: Callable[[int], str],
        cells_of: Callable[[int], Mapping[str, object]],
        end: Position,
        where: str = "",
    ) -> Chunk:
        """The chunk. `cells_of(row)` gives an unsure row's cells or raises Refused; `where` names a file."""
        name = self.layout.name
        dead: list[DeadLetter] = []
        refused: list[int] = []
        more: dict[int, list[str]] = {}
        unsure = [] if self._unsure is None else np.flatnonzero(self._unsure).tolist()
        if unsure:
            self.data = [column.copy() for column in self.data]
            self.diff = self.diff.copy()
        for row in unsure:
            try:
                values, diff = read_row(self.layout, cells_of(row))
            except RefusedRow as fault:
                dead.append(DeadLetter(name, int(lines[row]), f"{fault}{where}", raw_of(row)))
                refused.append(row)
                continue
            self._write(row, values, more)
            self.diff[row] = diff
        for index, texts in more.items():
            self.texts[index] = pa.concat_arrays([self.texts[index], pa.array(texts, pa.string())])
        if not refused:
            return Chunk(name, self.data, self.texts, lines, self.diff, dead, end, raw_of, where)
        kept = np.delete(np.arange(len(lines)), refused)
        return Chunk(
            name,
            [column[kept] for column in self.data],
            self.texts,
            np.asarray(lines)[kept],
            self.diff[kept],
            dead,
            end,
            lambda row: raw_of(kept[row]),
            where,
        )

    def _write(self, row: int, values: Sequence[Value], more: dict[int, list[str]]) -> None:
        nulls = 0
        for index, value in enumerate(values):
            if value is None:
                nulls |= 1 << index
                self.data[index][row] = 0
            elif isinstance(value, str):
                new = more.setdefault(index, [])
                old = self.texts.setdefault(index, pa.array([], pa.string()))
                self.data[index][row] = len(old) + len(new)
                new.append(value)
            else:
                self.data[index][row] = value
        self.data[-1][row] = nulls
