"""Spark's Python daemon with Kasen loaded, so that the workers it forks need not load the kernels again."""

from __future__ import annotations

from pyspark.daemon import manager

import kasen.spark.fragment  # noqa: F401

if __name__ == "__main__":
    manager()
