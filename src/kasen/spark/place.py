"""Where operators run on Spark. Needs no Spark itself, so that the command line can speak of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kasen.plan.physical import App


class OperatorPlace(StrEnum):
    """In the driver: one job an epoch, no exchange. On executors: sharded, behind an exchange."""

    driver = "driver"
    executors = "executors"


def reduces_panes(app: App, *, is_local: bool) -> bool:
    """Whether Spark reduces rows to panes before they cross to the driver.

    Their times cross anyway, in a job of their own: on one machine whole rows cross in less time.
    """
    return {"on": True, "off": False}.get(app.setting("native_panes"), not is_local)
