"""How a command ends on SIGINT (Ctrl-C) and SIGTERM: quietly, and by the signal itself.

A command ends at once as long as it has nothing to bring to an end. `kasen run` finishes its epoch first; a
second signal ends it at once, too. Nothing is raised in the middle of other code: a library would print what
it makes of that, or leave a half-started Java behind.

Only commands call `arm`. A program that imports Kasen handles signals as it likes.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_armed = False
_asked: int | None = None
_leaving = False
_cleanups: list[Callable[[], object]] = []


def arm() -> None:
    """From now on a signal ends the process at once."""
    global _armed
    if _armed:
        return
    _armed = True
    _handle(end)
    # Registered first, so called last: when everything else has been tidied up.
    atexit.register(_leave_at_exit)


def end(number: int, _: FrameType | None = None) -> NoReturn:
    """Ends the process by a signal: so a shell ends its script, and a service manager sees a clean stop."""
    for cleanup in reversed(_cleanups):
        with suppress(Exception):
            cleanup()
    _die(number)


def at_end(cleanup: Callable[[], object]) -> None:
    """Calls `cleanup` if a signal ends the process at once. It runs amid other code, and so must not wait."""
    if _armed:
        _cleanups.append(cleanup)


def finish_first(stop: Callable[[], None]) -> None:
    """The next signal calls `stop`; the one after it ends the process at once."""

    def ask(number: int, _: FrameType | None) -> None:
        global _asked
        _asked = number
        _handle(end)
        stop()

    _handle(ask)


def leave_if_asked() -> None:
    """Leaves by the signal that has asked for it, if one has."""
    global _leaving
    if _asked is not None:
        _leaving = True
        sys.exit(128 + _asked)


@contextmanager
def postponed() -> Iterator[None]:
    """For a block that must not end half-way: a signal ends the process after it."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        end(came[0])


def _leave_at_exit() -> None:
    if _leaving and _asked is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        _die(_asked)


def _die(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container is not ended by its own signals


def _handle(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)
