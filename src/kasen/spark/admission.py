"""How much a run takes in: a limit for what waits, because one stream is far ahead of another."""

from __future__ import annotations

from collections.abc import Mapping

from kasen.errors import ResourceError
from kasen.plan.physical import App

#: What may wait, in bytes as the operators hold it.
MOST_HELD = 1 << 30


def check_held(app: App, waiting: Mapping[str, int], most: int = MOST_HELD) -> None:
    """Refuses to hold more than `most` bytes of tuples that wait for slower inputs.

    Spark's sources cannot be slowed one by one while a query runs, so this is an error, and its remedy is a
    smaller share of the one ahead in each epoch.
    """
    held = {one.name: waiting.get(one.name, 0) * 8 * (len(one.schema) + 3) for one in app.inputs}
    total = sum(held.values())
    if total <= most:
        return
    ahead = max(held, key=lambda name: held[name])
    behind = ", ".join(name for name in waiting if name != ahead and not waiting[name]) or "the other inputs"
    raise ResourceError(
        f"{waiting[ahead]:,} tuples of {ahead} wait for {behind}: {total >> 20:,} MB are held, "
        f"and {most >> 20:,} MB are allowed\n"
        f"help: read less of {ahead} at once, with OPTIONS (maxFilesPerTrigger '1') or smaller files; "
        "or declare IDLE for what is slow"
    )
