"""Every case on a real Spark: in the driver, and on executors with 1 and 3 shards, in small micro-batches."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kasen.errors import QueryError
from kasen.plan.lower.joins import METHODS
from kasen.plan.shard.fragments import plan_shards
from kasen.spark.executors.placement import InExecutors, RemotePipeline
from kasen.spark.session import session
from tests.cases_format import Case, all_cases, expected_rows, query_schema, shown
from tests.oracle import Result
from tests.spark.executors.fleet import PARTS, Member, run_together
from tests.test_cases import bind, check_dead_letters, compare

pytestmark = pytest.mark.spark

ALL = [case for case in all_cases() if case.section("error") is None]
#: Queries that come and go at instants.
LIVE = [case for case in ALL if case.name.startswith("live/")]
CASES = [case for case in ALL if case not in LIVE]
#: Those with loops, which are sharded by their keys if they hand one on.
LOOPS = [case for case in CASES if "loop" in case.name or case.name.startswith("papers/e_")]
JOINS = [case for case in CASES if "join" in case.name or case.name.startswith(("papers/a_", "papers/d_"))]
GROUPS = 8
PLACES = {"driver": None, "1 shard": 1, "3 shards": 3}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session("local[2]")


def parts(case: Case) -> int:
    """Dead letters tell lines of whole files, so such cases are read in one piece."""
    return 1 if case.section("dead_letter") is not None else PARTS


@pytest.mark.parametrize(
    "group", [0, *(pytest.param(group, marks=pytest.mark.soak) for group in range(1, GROUPS))]
)
@pytest.mark.parametrize("place", PLACES)
def test_cases_have_the_same_answers_on_spark(
    place: str, group: int, spark: SparkSession, tmp_path: Path
) -> None:
    check_together(CASES[group::GROUPS], place, spark, tmp_path, all_by_files=bool(group % 2))


@pytest.mark.parametrize(
    "place", ["3 shards", *(pytest.param(place, marks=pytest.mark.soak) for place in ("driver", "1 shard"))]
)
def test_loops_have_the_same_answers_on_spark(place: str, spark: SparkSession, tmp_path: Path) -> None:
    assert "delay/loop_by_account" in [case.name for case in LOOPS]
    check_together(LOOPS, place, spark, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["driver", "3 shards"])
@pytest.mark.parametrize("joins", METHODS)
def test_joins_have_the_same_answers_by_every_method(
    joins: str, place: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert len(JOINS) >= 20
    check_together(JOINS, place, spark, tmp_path, joins=joins)


def test_queries_that_come_and_go_have_the_same_answers_in_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert len(LIVE) >= 11
    check_together(LIVE, "driver", spark, tmp_path)


def test_queries_that_come_and_go_have_the_same_answers_on_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    refused = {case.name: refusal(case, tmp_path) for case in LIVE}
    assert all("--place driver" in error for error in refused.values() if error)
    cases = [case for case in LIVE if not refused[case.name]]
    assert len(cases) >= 4
    check_together(cases, "3 shards", spark, tmp_path)


def refusal(case: Case, folder: Path) -> str:
    """Why executors refuse the changes of a case, before anything runs; empty if they do not."""
    try:
        RemotePipeline(plan_shards(bind(case, folder)))
    except QueryError as error:
        return str(error)
    return ""


def check_together(
    cases: list[Case],
    place: str,
    spark: SparkSession,
    tmp_path: Path,
    *,
    all_by_files: bool = False,
    joins: str = "",
) -> None:
    members: list[Member] = []
    for number, case in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        members.append(Member(bind(case, folder), folder, spark, PLACES[place], parts(case), joins))
    for member in members:
        if isinstance(member.placement, InExecutors) and all_by_files:
            member.placement.large = 100  # nearly every answer comes by a file
    failed = []
    for case, member, result in zip(cases, members, run_together(members), strict=True):
        try:
            check_result(case, member, result)
        except AssertionError:
            failed.append(f"{case.name} {traceback.format_exc(limit=0)}")
    assert not failed, "\n".join(failed)


def check_result(case: Case, member: Member, result: Result) -> None:
    time = member.app.time
    for name in case.queries:
        schema = query_schema(member.app, name)
        expected = expected_rows(case.section(name) or "", schema, time)
        compare(name, shown(expected, schema, time), shown(result.queries[name], schema, time))
    check_dead_letters(case, result)


def test_all_cases_are_run() -> None:
    assert sum(len(CASES[group::GROUPS]) for group in range(GROUPS)) == len(CASES) >= 200
