"""How much a run takes in: a limit for what waits, because one stream is far ahead of another.

Spark's sources cannot be slowed one by one while a query runs. So at half the limit the streaming query is
begun again between two epochs, and from then on reads the least there is of the one ahead: a file an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kasen.errors import ResourceError
from kasen.plan.native.lower import is_foreign
from kasen.plan.physical import App, Input
from kasen.spark.scan.names import FILES_PER_EPOCH

#: What may wait, in bytes as the operators hold it.
MOST_HELD = 1 << 30


@dataclass(slots=True)
class StreamThrottle:
    """Looks after what waits in a run. `slowed` are the streams that are read a file at a time."""

    app: App
    most: int = MOST_HELD
    slowed: list[str] = field(default_factory=list)

    def check(self, waiting: Mapping[str, int]) -> bool:
        """Whether a stream is to be slowed that was not before.

        Refuses to hold more than `most` bytes of tuples that wait for slower inputs.
        """
        held = {
            input_.name: waiting.get(input_.name, 0) * 8 * (len(input_.schema) + 3)
            for input_ in self.app.inputs
        }
        total = sum(held.values())
        if 2 * total <= self.most:
            return False
        ahead = max(held, key=lambda name: held[name])
        if total > self.most:
            raise self._too_much(ahead, waiting, total)
        one = self.app.input(ahead)
        if one is None or is_foreign(one) or ahead in self.slowed:
            return False
        self.slowed.append(ahead)
        return True

    def as_read(self, input_: Input) -> Input:
        """A stream as it is to be read now."""
        if input_.name not in self.slowed:
            return input_
        options = tuple(each for each in input_.connector.options if each[0] != FILES_PER_EPOCH)
        return replace(
            input_, connector=replace(input_.connector, options=(*options, (FILES_PER_EPOCH, "1")))
        )

    def _too_much(self, ahead: str, waiting: Mapping[str, int], total: int) -> ResourceError:
        others = (name for name in waiting if name != ahead and not waiting[name])
        behind = ", ".join(others) or "the other inputs"
        slowed = ", though it is read a file at a time" if ahead in self.slowed else ""
        return ResourceError(
            f"{waiting[ahead]:,} tuples of {ahead} wait for {behind}: {total >> 20:,} MB are held, "
            f"and {self.most >> 20:,} MB are allowed{slowed}\n"
            f"help: read less of {ahead} at once, with OPTIONS (maxFilesPerTrigger '1') or smaller files; "
            "or declare IDLE for what is slow"
        )
