"""The steps of a graph that queries share.

A step is found by what it is: its key. It leaves the graph with the last of its users. Both engines keep
this book: for queries of this process a user is a query, on shards it is a generation.
"""

from __future__ import annotations

from collections.abc import Hashable, Set
from typing import Generic, NamedTuple, TypeVar

from kasen.plan.logical import Node
from kasen.runtime.graph.graph import Graph

#: Where a step of a loop reads one that is still to be placed.
UNRESOLVED = -1

#: When a step began to remember, and how: steps that began in different ways are not the same.
StateOrigin = tuple[int, int]

User = TypeVar("User", bound=Hashable)


class StepKey(NamedTuple):
    """What a step is: the plan's node, the steps it reads and, if it remembers anything, since when."""

    node: Node
    inputs: tuple[int, ...]
    since: StateOrigin | None = None


class SharedSteps(Generic[User]):
    """Finds steps by key, and counts who uses each of them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._steps: dict[StepKey, int] = {}
        self._keys: dict[int, StepKey] = {}
        self._users: dict[int, set[User]] = {}

    def clear(self) -> None:
        """Forgets everything: the graph is rebuilt."""
        self._steps, self._keys, self._users = {}, {}, {}

    def find(self, key: StepKey) -> int | None:
        return self._steps.get(key)

    def key(self, step: int) -> StepKey | None:
        """The key by which a step is shared; None if it is not."""
        return self._keys.get(step)

    def share(self, step: int, key: StepKey) -> None:
        """From now on the step is found by this key.

        Equal steps may be two, if one was made before what it reads: then the first of them is found.
        """
        self.unshare(step)
        self._keys[step] = key
        self._steps.setdefault(key, step)

    def unshare(self, step: int) -> None:
        key = self._keys.pop(step, None)
        if key is not None and self._steps.get(key) == step:
            del self._steps[key]

    def users(self, step: int) -> Set[User]:
        return self._users.get(step, set())

    @property
    def used(self) -> list[int]:
        """The steps that somebody uses."""
        return list(self._users)

    def use(self, step: int, user: User) -> None:
        self._users.setdefault(step, set()).add(user)

    def release(self, step: int, user: User) -> bool:
        """Ends the use. The step goes with its last user; returns whether it did."""
        users = self._users[step]
        users.discard(user)
        if users:
            return False
        self.remove(step)
        return True

    def remove(self, step: int) -> None:
        """The step leaves the graph."""
        self._users.pop(step, None)
        self.unshare(step)
        self._graph.remove(step)
