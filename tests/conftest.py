"""Options of the test suite, which of several workers runs what, and how a worker ends."""

from __future__ import annotations

import gc
import sys
import warnings
from collections import Counter

import pytest

#: Tests that one worker runs one after the other; those of any other file are a group of their own.
GROUPS = {
    # One Java and one Spark session serve all of them.
    "a Spark session": (
        "tests/plan/native/test_lower.py",
        "tests/plan/native/test_sql.py",
        "tests/spark/scan/",
        "tests/spark/state/",
        "tests/spark/test_cases_on_spark.py",
        "tests/spark/test_pipeline.py",
    ),
    # These wait for their processes most of the time, and choose ports that nobody else may take.
    "clusters": ("tests/ha/",),
}
#: Groups that take long begin first: one that begins last keeps a single worker busy at the end.
LONG = (
    *GROUPS,
    "tests/test_cases.py",
    "tests/spark/",
    "tests/cli/",
    "tests/docs/test_spark_doc.py",
    "tests/examples/",
    "tests/random_apps/",
    "tests/fuzz/",
    "tests/engine/join/",
    "tests/runtime/live/",
)


def group_of(nodeid: str) -> str:
    file = nodeid.split("::")[0]
    return next((name for name, paths in GROUPS.items() if file.startswith(paths)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Gives whole groups to workers, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long groups first, then those with most tests."""
    tests = Counter(group_of(item.nodeid) for item in items)

    def place(item: pytest.Item) -> tuple[int, int, str]:
        group = group_of(item.nodeid)
        long = (rank for rank, prefix in enumerate(LONG) if group.startswith(prefix))
        return next(long, len(LONG)), -tests[group], group

    items.sort(key=place)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate", action="store_true", help="rewrite the golden files of tests/plans (then review them)"
    )


def pytest_sessionfinish() -> None:
    """Ends Spark's threads. Frames of threads that outlive Python are never freed, nor is what they refer to:
    by way of the answers' receivers, the modules of tests, and with them DuckDB, which lists all of its
    functions as leaked."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    with warnings.catch_warnings():
        # A run without a checkpoint has a folder until it is forgotten, and Spark has remembered all runs.
        warnings.simplefilter("ignore", ResourceWarning)
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(300)
        gc.collect()
