"""The records of groups, and the table that finds them by key: kernels/groups, with room that grows."""

from __future__ import annotations

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.kernels import groups

_FIRST_SLOTS = 16


class RecordTable:
    """Records of `width` words by a key of `keys` columns; or a lone one, always there, at slot 1."""

    def __init__(self, keys: int, width: int, *, lone: bool = False) -> None:
        self._keys = keys
        self._lone = lone
        self.width = width
        self.records: I64 = np.zeros(_FIRST_SLOTS * width, np.int64)
        self.table: I64 = np.zeros(2 * _FIRST_SLOTS, np.int64)
        self.touched: I64 = np.zeros(_FIRST_SLOTS, np.int64)  # scratch: a place for every slot
        if lone:
            self.records[groups.USED] = self.records[groups.LIVE] = 1

    def __len__(self) -> int:
        return int(self.records[groups.LIVE])

    def grow(self) -> None:
        self._set(self.records, 2 * len(self.records) // self.width)

    def used(self) -> I64:
        """The records that were ever used, and the header."""
        return self.records[: (int(self.records[groups.USED]) + 1) * self.width].copy()

    def keys_of(self, slots: I64) -> I64:
        """The keys of groups, as a batch's data is laid out."""
        found = self.records.reshape(-1, self.width)[slots]
        data = np.empty((self._keys + 1, len(found)), np.int64)
        data[:-1] = found[:, groups.KEY : groups.KEY + self._keys].T
        data[-1] = found[:, groups.KEY_NULLS]
        return data

    def reported(self, calls: int) -> I64:
        """The rows that groups have put out and not taken back: keys, then the values of calls."""
        keys = self._keys
        used = self.records[self.width : (int(self.records[groups.USED]) + 1) * self.width]
        found = used.reshape(-1, self.width)
        found = found[found[:, groups.REPORTED] == 1]
        data = np.empty((keys + calls + 1, len(found)), np.int64)
        data[:-1] = found[:, groups.KEY : groups.KEY + keys + calls].T
        data[-1] = found[:, groups.NULLS] << keys | found[:, groups.KEY_NULLS]
        return data

    def replace(self, records: I64, width: int) -> None:
        """Puts other records, of as many slots or more, in place of these."""
        self.width = width
        self._set(records, max(_FIRST_SLOTS, len(records) // width))

    def _set(self, records: I64, slots: int) -> None:
        self.records = np.zeros(slots * self.width, np.int64)
        self.records[: len(records)] = records
        touched = np.zeros(slots, np.int64)
        kept = min(slots, len(self.touched))
        touched[:kept] = self.touched[:kept]
        self.touched = touched
        self.table = np.zeros(1 << (2 * slots - 1).bit_length(), np.int64)
        if not self._lone:
            groups.enter_all(self._keys, self.table, self.records, self.width)
