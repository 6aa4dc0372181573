"""Spark's Python daemon with Kasen loaded, so that the workers it forks need not load the kernels again.

Users name this module in `spark.python.daemon.module` (docs/spark.md), so it stays at this place.
"""

from __future__ import annotations

from pyspark.daemon import manager

import kasen.spark.executors.scatter  # noqa: F401
from kasen.runtime.memory import own_process

if __name__ == "__main__":
    own_process()
    manager()
