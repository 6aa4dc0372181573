"""Spark's Python daemon with Kasen loaded, so that the workers it forks need not load the kernels again."""

from __future__ import annotations

from pyspark.daemon import manager

import kasen.spark.scatter  # noqa: F401
from kasen.runtime.memory import keep_freed_memory

if __name__ == "__main__":
    # An epoch takes and frees as much as the one before; what is asked for anew comes a page fault at a time.
    keep_freed_memory()
    manager()
