"""What upstream may forget: the level-1 acknowledgement, as the downstream nodes' own ones allow.

A node whose state follows from recent input tells how to start behind what is forgotten. One whose state does
not is kept by snapshots, and forgets what a confirmed snapshot covers; without another copy, it can only
forget input once its answers have arrived.
"""

from __future__ import annotations

from collections import deque

from kasen.ha.link.wire import Json
from kasen.ha.node_state import OutputLink
from kasen.runtime.history import History, Restart


class Releases:
    """Of one copy of a node. Not thread-safe: the node's lock guards it.

    `confirm` and `follow` return whether there is news for an acknowledgement. `alone` is true while there is
    no other copy to keep snapshots for.
    """

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self._restart: Restart | None = None
        self._positions: dict[str, int] = {}
        self._passed: deque[tuple[int, dict[str, int]]] = deque()

    def note(self, upto: int, positions: dict[str, int]) -> None:
        """The answers below `upto` are out, of input below these positions."""
        if not self._passed or upto > self._passed[-1][0]:
            self._passed.append((upto, dict(positions)))

    def confirm(self, positions: dict[str, int]) -> bool:
        """The other copy has a snapshot of the state at these positions."""
        self.alone = False
        return self._move(positions)

    def follow(self, done: int, history: History | None, *, leads: bool) -> bool:
        """Downstream, nobody asks for answers below `done` again.

        A secondary only forgets what it would never tell any more.
        """
        if history is not None:
            found = history.restart(done)
            if not leads or found is None or (self._restart is not None and found.at <= self._restart.at):
                return False
            self._restart = found
            return True
        passed = None
        while self._passed and self._passed[0][0] <= done:
            passed = self._passed.popleft()[1]
        return passed is not None and self.alone and self._move(passed)

    def _move(self, positions: dict[str, int]) -> bool:
        if positions == self._positions:
            return False
        self._positions = positions
        return True

    def told(self, stream: str, outputs: list[OutputLink]) -> Json:
        """What an acknowledgement says of an input."""
        if self._restart is not None:
            # With how the downstream nodes' copies may start: whoever starts from this must be able to tell.
            starts = [_without_outputs(output.queue.restart) for output in outputs]
            restart = {**self._restart.as_json(), "outputs": starts}
            return {"release": self._restart.of(stream), "restart": restart}
        return {"release": self._positions[stream]} if stream in self._positions else {}


def _without_outputs(restart: Json | None) -> Json | None:
    """A release without those that came with it, or they would pile up along a chain."""
    return None if restart is None else {key: value for key, value in restart.items() if key != "outputs"}
