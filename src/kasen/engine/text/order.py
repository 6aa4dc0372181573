"""The order of texts as numbers: each text gets a label, and labels compare as the texts do.

A new text gets a label between its neighbours', found in a list of sorted blocks, so that a text costs
the same however many there are; when there is no room between two labels, all are dealt anew.

Labels that were handed out are never written to, so that whoever compares by them may go on doing so while
others ask for those of newer texts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from itertools import chain

import numpy as np

from kasen.engine.batch import I64

_LEAST, _GREATEST = -(2**62), 2**62
_GAP = 2**32
#: Texts of a block; one of twice as many is cut in two.
_BLOCK = 512
# If more than one in so many is new, sorting all is quicker than finding a place for each.
_MANY = 16


class TextOrder:
    """Labels by code. Python orders strings by code point, which is the order of their UTF-8 bytes."""

    def __init__(self) -> None:
        self._labels: I64 = np.zeros(16, np.int64)
        self._count = 0
        self._generation = 0
        self._codes: dict[str, int] = {}
        self._blocks: list[list[str]] = []
        self._firsts: list[str] = []

    def labels(self, texts: list[str], codes: dict[str, int], dealt: array[int], generation: int) -> I64:
        """labels[code] of all texts that have one of the codes `dealt`: of those the last may be new.

        In another generation some texts are gone, and all others are looked at anew.
        """
        self._codes = codes
        if generation != self._generation:
            self._generation, self._count = generation, 0
            self._labels = np.zeros(len(texts), np.int64)
        new = len(dealt) - self._count
        if new:
            if len(texts) > len(self._labels):
                labels = np.zeros(2 * len(texts), np.int64)
                labels[: len(self._labels)] = self._labels
                self._labels = labels
            if new * _MANY > len(dealt):
                self._deal(sorted(codes))
            else:
                for code in dealt[self._count :]:
                    self._place(texts[code])
            self._count = len(dealt)
        view: I64 = self._labels[: len(texts)]
        return view

    def _place(self, text: str) -> None:
        block_at = max(bisect_left(self._firsts, text) - 1, 0)
        block = self._blocks[block_at]
        at = bisect_left(block, text)
        before = self._label_before(block_at, at)
        after = self._label_at(block_at, at)
        if after == _GREATEST and before < _GREATEST - 2 * _GAP:
            after = before + 2 * _GAP  # leave room behind the last for those to come
        insort(block, text)
        self._firsts[block_at] = block[0]
        if after - before < 2:
            self._deal(list(chain.from_iterable(self._blocks)))
            return
        self._labels[self._codes[text]] = (before + after) // 2
        if len(block) >= 2 * _BLOCK:
            self._blocks[block_at : block_at + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._firsts.insert(block_at + 1, block[_BLOCK])

    def _label_before(self, block: int, at: int) -> int:
        if at:
            return self._label(self._blocks[block][at - 1])
        return self._label(self._blocks[block - 1][-1]) if block else _LEAST

    def _label_at(self, block: int, at: int) -> int:
        if at < len(self._blocks[block]):
            return self._label(self._blocks[block][at])
        return self._label(self._blocks[block + 1][0]) if block + 1 < len(self._blocks) else _GREATEST

    def _label(self, text: str) -> int:
        return int(self._labels[self._codes[text]])

    def _deal(self, ordered: list[str]) -> None:
        """Labels with equal gaps for texts in order, in an array of their own."""
        self._blocks = [ordered[first : first + _BLOCK] for first in range(0, len(ordered), _BLOCK)]
        self._firsts = [block[0] for block in self._blocks]
        gap = min(_GAP, _GREATEST // len(ordered))
        codes = np.fromiter(map(self._codes.__getitem__, ordered), np.int64, len(ordered))
        self._labels = np.zeros_like(self._labels)
        self._labels[codes] = np.arange(len(ordered), dtype=np.int64) * gap
