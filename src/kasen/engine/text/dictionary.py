"""The pipeline's dictionary of strings: text to code at the edge, code to text on the way out.

`labels` orders codes as their texts are ordered (binary), so that kernels can compare strings by
comparing numbers. A text keeps its code as long as anything holds it; labels may change, so no operator
keeps a label. Most queries never compare texts but for equality, so labels are made only when they are
asked for.

Texts that nothing holds any more are forgotten, and their codes dealt again: see `forget`. Whoever keeps
a table by code learns from `NewCodes` which codes have a text that the table does not know.

Texts come from every thread that pushes, while others run the pipeline: codes are dealt, labels made and
texts forgotten by one thread at a time. Labels stay as they are for those who have them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import RLock, local
from typing import ClassVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64
from kasen.engine.operator import State
from kasen.engine.text.order import TextOrder
from kasen.errors import InternalError
from kasen.types import MAX_TEXT_BYTES

#: What stands in the place of a text that was forgotten. Nobody should ever see it.
FORGOTTEN = "\x00forgotten"
#: A word that is looked at costs about an eighth of what a new text does.
_WORDS_A_TEXT = 8
#: So many words are looked at together, in memory that stays in the cache.
_PIECE = 1 << 16


class Dictionary:
    """All strings that the pipeline holds."""

    #: Texts are not looked through before so many new ones came.
    least_new: ClassVar[int] = 1 << 16
    #: ... or before new ones have so many characters.
    least_new_size: ClassVar[int] = 1 << 26
    #: For tests: whoever asks is told to look now, whatever came.
    is_always_due: ClassVar[bool] = False

    def __init__(self, max_text_bytes: int = MAX_TEXT_BYTES) -> None:
        #: No expression makes a longer text.
        self.max_text_bytes = max_text_bytes
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []
        #: The codes that have a text, in the order in which they were dealt since `forget`, others first.
        self._dealt = array("q")
        #: Codes without a text below the greatest with one, the least last.
        self._free: list[int] = []
        #: How many hold each of them as a constant. NULLs are held as code 0.
        self._constants: Counter[int] = Counter({0: 1})
        self._noting = _Noting()
        self._kept: list[ref[I64]] = []
        self._most_kept = 64
        self._order = TextOrder()
        self._look_at = self.least_new
        #: How many characters all texts have, and the longest one that no function made.
        self._size = 0
        self._longest = 0
        self._look_at_size = self.least_new_size
        #: Counts how often texts were forgotten.
        self.generation = 0
        #: Held from a text's code being looked up to the array that holds it being kept.
        self.entering = RLock()

    def __len__(self) -> int:
        """Every code is below this."""
        return len(self._texts)

    @property
    def held(self) -> int:
        """How many texts there are."""
        return len(self._codes)

    @property
    def size(self) -> int:
        """How many characters all texts have."""
        return self._size

    @property
    def longest(self) -> int:
        """How many characters the longest text has that came from outside, and was not made of others."""
        return self._longest

    def code(self, text: str) -> int:
        """The text's code; a text not met before gets a free one."""
        found = self._codes.get(text)
        return self._add(text) if found is None else found

    def constant(self, text: str) -> int:
        """The code of a text of a query: it is not forgotten unless it is released."""
        with self.entering:
            code = self.code(text)
            self._hold([code])
            return code

    def make_constant(self, codes: I64) -> None:
        """The texts with these codes are not forgotten unless they are released."""
        with self.entering:
            self._hold(codes.tolist())

    def _hold(self, codes: list[int]) -> None:
        self._constants.update(codes)
        if self._noting.codes is not None:
            self._noting.codes += codes

    @property
    def noted(self) -> list[int] | None:
        """Where this thread notes the constants that it makes; None if nowhere."""
        return self._noting.codes

    @contextmanager
    def noting(self, codes: list[int] | None) -> Iterator[None]:
        """Notes the constants that this thread makes: for whoever will release them."""
        before, self._noting.codes = self._noting.codes, codes
        try:
            yield
        finally:
            self._noting.codes = before

    def release(self, codes: Iterable[int]) -> None:
        """Whoever made these constants, as noted, has no more use for them."""
        with self.entering:
            for code in codes:
                self._constants[code] -= 1
                if not self._constants[code]:
                    del self._constants[code]

    def encode(self, texts: Sequence[str]) -> I64:
        """Codes of many texts (unique texts are the cheap case)."""
        found = list(map(self._codes.get, texts))
        if None in found:
            found = list(map(self.code, texts))
        return np.array(found, np.int64)

    def encode_made(self, texts: Sequence[str]) -> I64:
        """Codes of texts that a function made: they do not count as long ones, however long they are."""
        with self.entering:
            longest = self._longest
            codes = self.encode(texts)
            self._longest = longest
        return codes

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
        with self.entering:
            return self._order.labels(self._texts, self._codes, self._dealt, self.generation)

    def dealt_since(self, count: int) -> list[int]:
        """The codes dealt in this generation after the first `count` of them."""
        with self.entering:
            return self._dealt[count:].tolist()

    # ------------------------------------------------------------ forgetting

    def keep(self, words: I64) -> None:
        """The texts whose codes are in an array are held as long as the array is, or a view of it."""
        while isinstance(words.base, np.ndarray):
            words = words.base
        with self.entering:
            self._kept.append(ref(words))
            if len(self._kept) > self._most_kept:
                self._kept = [each for each in self._kept if each() is not None]
                self._most_kept = 2 * len(self._kept) + 64

    @property
    def is_due(self) -> bool:
        """Whether looking for texts that nothing holds is worth its while."""
        return len(self._dealt) >= self._look_at or self._size >= self._look_at_size or self.is_always_due

    def forget(self, words: Callable[[], Iterable[I64]]) -> None:
        """Forgets every text but constants, those in arrays that are kept, and those among `words`.

        `words` tells every number that anybody holds beside these: whatever looks like a code counts as one.
        So a text may stay for a while because of a number that is none, but there are never more texts than
        numbers held. Nobody may be between looking up a code and telling of it: others wait at `entering`.
        """
        with self.entering:
            is_held = np.zeros(len(self._texts), np.bool_)
            looked_at = 0
            arrays = (each for kept in self._kept if (each := kept()) is not None)
            for array_ in chain(words(), arrays):
                _mark(array_, is_held)
                looked_at += array_.size
            constants = np.fromiter(self._constants, np.int64)
            is_held[constants[constants < len(is_held)]] = True
            self._drop(is_held)
            self._look_at = len(self._dealt) + max(
                self.least_new, len(self._dealt), looked_at // _WORDS_A_TEXT
            )
            # Looking at a word costs about as much as copying a character does.
            self._look_at_size = self._size + max(self.least_new_size, self._size, looked_at)

    def _drop(self, is_held: npt.NDArray[np.bool_]) -> None:
        dealt = np.array(self._dealt, np.int64)
        stays = is_held[dealt]
        if stays.all():
            return
        codes, texts = self._codes, self._texts
        for code in dealt[~stays].tolist():
            del codes[texts[code]]
            texts[code] = FORGOTTEN
        held = np.sort(dealt[stays])
        del texts[int(held[-1]) + 1 if len(held) else 0 :]
        lengths = list(map(len, codes))
        self._size, self._longest = sum(lengths), min(self._longest, max(lengths, default=0))
        self._codes = dict(codes)  # room that dead texts took in the table is given back
        is_free = np.ones(len(texts), np.bool_)
        is_free[held] = False
        self._free = np.flatnonzero(is_free)[::-1].tolist()
        self._dealt = array("q", held.tobytes())
        self.generation += 1

    # ------------------------------------------------------------ state

    def snapshot(self) -> State:
        """The texts by code, one after the other; codes without one have the length -1."""
        known = [None if text is FORGOTTEN else text for text in self._texts]
        encoded = [text.encode("utf-8", "surrogatepass") for text in known if text is not None]
        lengths = np.full(len(known), -1, np.int64)
        lengths[[text is not None for text in known]] = [len(each) for each in encoded]
        return {"lengths": lengths, "bytes": np.frombuffer(b"".join(encoded), np.uint8)}

    def restore(self, state: State) -> None:
        """Called on a dictionary that holds nothing but the constants of the same plan, or nothing at all."""
        whole = state["bytes"].tobytes()
        start = 0
        with self.entering:
            free = set(self._free)
            for code, length in enumerate(state["lengths"].tolist()):
                text = whole[start : start + length].decode("utf-8", "surrogatepass") if length >= 0 else None
                start += max(length, 0)
                if code == len(self._texts):
                    self._texts.append(FORGOTTEN)
                    free.add(code)
                if code not in free:
                    if self._texts[code] != text:
                        raise InternalError(f"a state's text {text!r} has the code of {self._texts[code]!r}")
                elif text is not None:
                    if text in self._codes:
                        raise InternalError(f"a state's text {text!r} has the code {self._codes[text]} here")
                    free.discard(code)
                    self._enter(text, code)
            self._free = sorted(free, reverse=True)

    def _add(self, text: str) -> int:
        with self.entering:
            code = self._codes.get(text)
            if code is None:
                code = self._free.pop() if self._free else len(self._texts)
                self._enter(text, code)
            return code

    def _enter(self, text: str, code: int) -> None:
        if code == len(self._texts):
            self._texts.append(text)  # before its code is known to anybody
        else:
            self._texts[code] = text
        self._codes[text] = code
        self._dealt.append(code)
        size = len(text)
        self._size += size
        if size > self._longest:
            self._longest = size


class _Noting(local):
    """Where each thread notes constants."""

    codes: list[int] | None = None


class NewCodes:
    """For whoever keeps a table by code: the codes that have got a text since the last time."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._generation = dictionary.generation
        self._seen = 0

    def take(self) -> list[int]:
        """After texts were forgotten, these are all codes that have one."""
        if self._generation != self._dictionary.generation:
            self._generation, self._seen = self._dictionary.generation, 0
        found = self._dictionary.dealt_since(self._seen)
        self._seen += len(found)
        return found


def _mark(words: I64, is_held: npt.NDArray[np.bool_]) -> None:
    """Marks those of the words that may be codes."""
    flat = words.reshape(-1)
    for first in range(0, len(flat), _PIECE):
        piece = flat[first : first + _PIECE]
        is_held[piece[(piece >= 0) & (piece < len(is_held))]] = True
