"""Options of the test suite, which of several workers runs what, and how a worker ends."""

from __future__ import annotations

import atexit
import os
import sys
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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: int) -> None:
    """Python ends without taking its modules apart.

    Threads of Spark's and frames of failed tests outlive them, and by way of these DuckDB's objects, of which
    its binding then lists hundreds. There is nothing left to do by then: this runs after all other handlers.
    """
    _status.append(int(exitstatus))


def _leave() -> None:
    if _status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status[-1])


_status: list[int] = []
atexit.register(_leave)  # the handler that is registered first runs last
