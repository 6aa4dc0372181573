"""Long loops over columns on two cores: kernels let go of Python's lock, so a second thread takes a half.

Such loops follow one another by the fraction of a millisecond, and to wake a thread takes a good part of
that. So both sides look for each other's word for a moment before they go to sleep.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.kernels.flags import reaches

There = TypeVar("There")
Here = TypeVar("Here")
Item = TypeVar("Item")

#: From how many rows on handing a half over costs less than it saves.
_WORTH = 1 << 16

#: How often a waiting thread looks before it sleeps: about 0.2 ms.
_LOOKS = 400_000


class _Count:
    """A number that one thread raises and another waits for."""

    def __init__(self) -> None:
        self._word: I64 = np.zeros(1, np.int64)
        self._raised = threading.Condition()
        self._is_waited_for = False

    @property
    def value(self) -> int:
        return self._word.item(0)

    def increase(self) -> None:
        self._word[0] += 1
        if self._is_waited_for:  # which is said before the last look at the word
            with self._raised:
                self._raised.notify()

    def wait_for(self, number: int) -> None:
        if self._word.item(0) >= number or reaches(self._word, number, _LOOKS):
            return
        with self._raised:
            self._is_waited_for = True
            self._raised.wait_for(lambda: self._word.item(0) >= number)
            self._is_waited_for = False


class _SecondCore:
    """A thread that does one thing after another."""

    def __init__(self) -> None:
        self._asked, self._done = _Count(), _Count()
        self._task: Callable[[], object] = int
        self._result: object = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="kasen-second-core", daemon=True).start()

    def begin(self, task: Callable[[], object]) -> None:
        self._task, self._result, self._error = task, None, None
        self._asked.increase()

    def result(self) -> object:
        """What the task begun last returned. An interrupt waits for it: what it works on is in its hands."""
        interrupt: KeyboardInterrupt | None = None
        while self._done.value < self._asked.value:
            try:
                self._done.wait_for(self._asked.value)
            except KeyboardInterrupt as came:
                interrupt = came
        result, error = self._result, interrupt or self._error
        self._task, self._result, self._error = int, None, None
        if error is not None:
            raise error
        return result

    def _run(self) -> None:
        number = 0
        while True:
            number += 1
            self._asked.wait_for(number)
            try:
                self._result = self._task()
            except BaseException as error:
                self._error = error  # raised where the result is asked for
            self._done.increase()


_helper: _SecondCore | None = None
_busy = threading.Lock()
_allowed = (os.cpu_count() or 1) > 1


def use_one_core() -> None:
    """For a process that shares its machine with others of its kind, as Spark's workers do."""
    global _allowed
    _allowed = False


def worth(rows: int) -> bool:
    return _allowed and rows >= _WORTH


def both(there: Callable[[], There], here: Callable[[], Here]) -> tuple[There, Here]:
    """Calls both at the same time, and returns what both did. Neither may depend on the other."""
    global _helper
    if not _busy.acquire(blocking=False):  # another pipeline, in another thread, has the second core
        return there(), here()
    try:
        if _helper is None:
            _helper = _SecondCore()
        try:
            _helper.begin(there)
            mine = here()
        finally:
            theirs = _helper.result()
        return theirs, mine  # type: ignore[return-value]
    finally:
        _busy.release()


def share(run: Callable[[Iterable[Item]], object], items: Sequence[Item], rows: int) -> None:
    """Runs through all items, on two cores if that is worth it for so many rows: each takes the next one."""
    if len(items) > 1 and worth(rows):
        left = iter(items)  # a list's iterator hands out each item once, whoever asks
        both(lambda: run(left), lambda: run(left))
    else:
        run(items)


def middle(sizes: Sequence[int]) -> int:
    """How many of the first pieces have about half of the rows: at least one, and not all."""
    cut, first, total = 1, sizes[0], sum(sizes)
    while cut < len(sizes) - 1 and 2 * first + sizes[cut] < total:
        first += sizes[cut]
        cut += 1
    return cut


def _forget() -> None:
    """A forked process has no other threads than the one that forked it."""
    global _helper, _busy
    _helper, _busy = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
