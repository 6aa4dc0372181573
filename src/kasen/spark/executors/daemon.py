"""Spark's Python daemon with Kasen loaded, so that the workers it forks need not load the kernels again."""

from __future__ import annotations

from pyspark.daemon import manager

import kasen.spark.executors.scatter  # noqa: F401
from kasen.runtime.memory import own_process

if __name__ == "__main__":
    own_process()
    manager()
