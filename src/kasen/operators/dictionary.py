"""The pipeline's dictionary of strings: text to code at the edge, code to text on the way out.

`labels` orders codes as their texts are ordered (binary), so that kernels can compare strings by
comparing numbers. Codes never change; labels may, so no operator keeps a label. Most queries never compare
texts but for equality, so labels are made only when they are asked for.

Texts come from every thread that pushes, while others run the pipeline: codes are dealt and labels made by
one thread at a time, and both stay as they are for those who have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from kasen.errors import InternalError
from kasen.operators.base import State
from kasen.operators.batch import I64
from kasen.operators.text_order import TextOrder


class Dictionary:
    """All strings the pipeline has met."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []
        self._order = TextOrder()
        self._changing = Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def code(self, text: str) -> int:
        """The text's code; a text not met before gets the next one."""
        found = self._codes.get(text)
        return self._add(text) if found is None else found

    def encode(self, texts: Sequence[str]) -> I64:
        """Codes of many texts (unique texts are the cheap case)."""
        found = list(map(self._codes.get, texts))
        if None in found:
            found = list(map(self.code, texts))
        return np.array(found, np.int64)

    def text(self, code: int) -> str:
        return self._texts[code]

    def decode(self, codes: I64) -> list[str]:
        return list(map(self._texts.__getitem__, codes.tolist()))

    @property
    def texts(self) -> list[str]:
        """All texts by code; not to be changed."""
        return self._texts

    @property
    def labels(self) -> I64:
        """labels[code] of the texts met so far: compares as they do."""
        with self._changing:
            return self._order.labels(self._texts, self._codes)

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

    def _add(self, text: str) -> int:
        with self._changing:
            code = self._codes.get(text)
            if code is None:
                code = len(self._texts)
                self._texts.append(text)  # before its code is known to anybody
                self._codes[text] = code
            return code
