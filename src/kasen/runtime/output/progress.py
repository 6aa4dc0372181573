"""How far a run has got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """What a run has done so far; told after every epoch.

    All instants below `frontier` are answered. `waiting` rows have been read and wait for it to move on; it
    is `lag` behind the latest of them, in the app's unit of time. On Spark: how long the last epoch took, and
    how many bytes of state the checkpoint holds, and which streams are read slowly, as they are far ahead.
    """

    rows: int = 0
    dead: int = 0
    epochs: int = 0
    results: dict[str, int] = field(default_factory=dict)
    frontier: int | None = None
    waiting: int = 0
    lag: int = 0
    seconds: float = 0.0
    epoch_seconds: float | None = None
    state_bytes: int | None = None
    slowed: tuple[str, ...] = ()
    done: bool = False
    #: A checkpoint of a run that got to the end of its input: nothing is read any more.
    had_ended: bool = False


OnProgress = Callable[[Progress], None]
