"""Where operators run on Spark. Needs no Spark itself, so that the command line can speak of it."""

from __future__ import annotations

from enum import StrEnum


class OperatorPlace(StrEnum):
    """In the driver: one job an epoch, no exchange. On executors: sharded, behind an exchange."""

    driver = "driver"
    executors = "executors"
