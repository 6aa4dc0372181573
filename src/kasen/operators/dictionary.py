"""The pipeline's dictionary of strings: text to code at the edge, code to text on the way out.

`labels` orders codes as their texts are ordered (binary), so that kernels can compare strings by
comparing numbers. A new text gets a label between its neighbours'; when there is no room left, all
labels are dealt anew. Codes never change; labels may, so no operator keeps a label.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from kasen.errors import InternalError
from kasen.operators.base import State
from kasen.operators.batch import I64

_GAP = 2**32
_BULK = 64


class Dictionary:
    """All strings the pipeline has met."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []
        self._sorted: list[bytes] = []
        self._sorted_codes: list[int] = []
        self._labels = np.zeros(16, np.int64)

    def __len__(self) -> int:
        return len(self._texts)

    def code(self, text: str) -> int:
        """The text's code; a text not met before gets the next one."""
        found = self._codes.get(text)
        if found is None:
            found = self._add(text)
            self._place(found)
        return found

    def encode(self, texts: Sequence[str]) -> I64:
        """Codes of many texts (unique texts are the cheap case)."""
        get = self._codes.get
        codes = np.empty(len(texts), np.int64)
        fresh: list[int] = []
        for index, text in enumerate(texts):
            found = get(text)
            if found is None:
                found = self._add(text)
                fresh.append(found)
            codes[index] = found
        if len(fresh) > _BULK:
            self._deal()
        else:
            for code in fresh:
                self._place(code)
        return codes

    def text(self, code: int) -> str:
        return self._texts[code]

    def decode(self, codes: I64) -> list[str]:
        texts = self._texts
        return [texts[code] for code in codes.tolist()]

    @property
    def texts(self) -> list[str]:
        """All texts by code; not to be changed."""
        return self._texts

    @property
    def labels(self) -> I64:
        """labels[code]: compares as the texts do. Valid until the next text is added."""
        view: I64 = self._labels[: len(self._texts)]
        return view

    def snapshot(self) -> State:
        encoded = [text.encode("utf-8", "surrogatepass") for text in self._texts]
        return {
            "lengths": np.array([len(each) for each in encoded], np.int64),
            "bytes": np.frombuffer(b"".join(encoded), np.uint8),
        }

    def restore(self, state: State) -> None:
        """Called on a dictionary that holds nothing but the constants of the same plan, or nothing at all."""
        whole = state["bytes"].tobytes()
        start = 0
        for code, length in enumerate(state["lengths"].tolist()):
            text = whole[start : start + length].decode("utf-8", "surrogatepass")
            start += length
            if code == len(self._texts):
                self._add(text)
            elif self._texts[code] != text:
                raise InternalError(f"a state's text {text!r} has the code of {self._texts[code]!r}")
        self._deal()

    def _add(self, text: str) -> int:
        code = len(self._texts)
        self._codes[text] = code
        self._texts.append(text)
        if code == len(self._labels):
            self._labels = np.concatenate([self._labels, np.zeros(code, np.int64)])
        return code

    def _place(self, code: int) -> None:
        """Gives a new code a label between its neighbours'."""
        key = self._texts[code].encode("utf-8", "surrogatepass")
        at = bisect_left(self._sorted, key)
        before = int(self._labels[self._sorted_codes[at - 1]]) if at else -(2**62)
        after = int(self._labels[self._sorted_codes[at]]) if at < len(self._sorted) else 2**62
        self._sorted.insert(at, key)
        self._sorted_codes.insert(at, code)
        if at == len(self._sorted) - 1 and before < 2**62 - _GAP:
            after = before + 2 * _GAP
        if after - before < 2:
            self._deal()
        else:
            self._labels[code] = (before + after) // 2

    def _deal(self) -> None:
        """Sorts everything and deals labels with equal gaps."""
        keyed = sorted((text.encode("utf-8", "surrogatepass"), code) for code, text in enumerate(self._texts))
        self._sorted = [key for key, _ in keyed]
        self._sorted_codes = [code for _, code in keyed]
        gap = min(_GAP, 2**62 // max(1, len(keyed)))
        self._labels[np.array(self._sorted_codes, np.int64)] = np.arange(len(keyed), dtype=np.int64) * gap
