"""Rows as they were read, in the segments of epochs: what a replay begins with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kasen.engine.operator import State
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.runtime.shard.shipment import Shipper
from kasen.runtime.time_range import within

#: What a row in a segment carries besides its columns.
_ROW = ("ts", "diff", "position")


class RowLog:
    """Packs the rows of inputs, and unpacks them."""

    def __init__(self, inputs: Iterable[Input], dictionary: Dictionary) -> None:
        self._shippers = {input_.name: Shipper(input_.schema, dictionary, _ROW) for input_ in inputs}

    def add(self, pieces: State, name: str, rows: InputRows) -> None:
        """Adds rows of an input to those of its that are in a segment."""
        packed = self._shippers[name].pack((rows.ts, rows.diff, rows.position), rows.data)
        pieces[str(len(pieces))] = np.frombuffer(packed, np.uint8)

    def rows(self, name: str, packed: npt.NDArray[np.uint8]) -> InputRows:
        """Rows that `add` packed, as far as their times are in range."""
        (ts, diff, position), data = self._shippers[name].unpack([packed.tobytes()])
        return within(InputRows(ts, diff, data, position))
