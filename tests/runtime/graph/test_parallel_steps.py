"""Steps that keep to themselves run on two cores; nothing of that shows in answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kasen.cql.bind.app import bind_text
from kasen.engine import parallel
from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate
from kasen.engine.batch import Batch, Frontier, ones, zeros
from kasen.engine.select.network import NetworkFilter
from kasen.engine.sets.union import Union
from kasen.plan.physical import Plan, plan_app
from kasen.runtime.graph.graph import Graph
from kasen.runtime.graph.parallel_steps import ParallelStepRunner, StepSequence
from kasen.runtime.local import LocalRun, Options
from tests.engines import Collected

STREAM = (
    "REGISTER STREAM s (k INTEGER, v INTEGER, w INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');"
)
SLIDES = "".join(
    f"REGISTER QUERY q{n} AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s [RANGE {4 + n} SLIDE 2]"
    f" WHERE v >= {n * 10} GROUP BY k;"
    for n in range(10)
)
SHARED = "".join(
    f"REGISTER QUERY r{n} AS SELECT k, MAX(v) AS m FROM s [RANGE {4 + 2 * n} SLIDE 2] GROUP BY k;"
    for n in range(3)
)
#: Sequences that read expressions that read sequences.
MIXED = """
REGISTER QUERY sums AS SELECT k, SUM(v) AS total FROM s [RANGE 9] GROUP BY k;
REGISTER QUERY halves AS SELECT k, total / 2 AS half FROM sums;
REGISTER QUERY many AS SELECT half, COUNT(*) AS n FROM halves GROUP BY half;
REGISTER QUERY rows AS ISTREAM(SELECT k, v FROM s [ROWS 5]);
REGISTER QUERY pairs AS ISTREAM(SELECT a.v, b.w FROM s [ROWS 5] AS a, s [ROWS 3] AS b WHERE a.k = b.k);
"""


def planned(text: str, folder: Path) -> Plan:
    random = Random(1)
    rows = [
        f"{at // 4},{random.randrange(6)},{random.randrange(100)},{random.randrange(9)}" for at in range(400)
    ]
    (folder / "s.csv").write_text("\n".join(["ts,k,v,w", *rows]) + "\n")
    return plan_app(bind_text(STREAM + text, folder))


def graph_of(plan: Plan, folder: Path) -> Graph:
    return LocalRun(plan, Options(folder)).pipeline._graph


def rounds(graph: Graph) -> list[tuple[list[int], list[StepSequence]]]:
    """The rounds of a run in which every step has something to do: steps one by one, and sequences."""
    stages = {step: stage for step, stage in graph._stages.items() if stage is not None}
    one_by_one: list[int] = []
    out = [Batch(ones(1), zeros(1), ones(1), np.zeros((4, 1), np.int64))] * (max(graph.steps) + 1)
    run = ParallelStepRunner(
        stages, graph._readers, graph.outputs.values(), out, lambda step, _: one_by_one.append(step)
    )
    todo, found = list(stages), []
    while todo:
        sequences, todo = run.next_round(todo)
        found.append((one_by_one.copy(), sequences))
        one_by_one.clear()
    return found


@pytest.mark.parametrize("text", [SLIDES, SHARED, MIXED, SLIDES + SHARED + MIXED])
def test_each_step_is_in_one_place_behind_all_that_it_reads(text: str, tmp_path: Path) -> None:
    graph = graph_of(planned(text, tmp_path), tmp_path)
    answers = set(graph.outputs.values())
    done = {step for step in graph.steps if graph.operators[step] is None}
    for one_by_one, sequences in rounds(graph):
        for step in one_by_one:
            assert not graph.operator(step).is_independent
            assert done.issuperset(graph.inputs(step))
            done.add(step)
        before = frozenset(done)
        for sequence in sequences:
            mine: set[int] = set()
            for step in sequence.steps:
                assert graph.operator(step).is_independent
                assert step not in done
                assert (before | mine).issuperset(graph.inputs(step)), "reads another sequence"
                mine.add(step)
            done |= mine
            for step in sequence.inner:
                readers = {each for each in graph.steps if step in graph.inputs(each)}
                assert readers <= mine, "forgotten before it is read"
                assert step not in answers
    assert done == set(graph.steps)


def test_queries_behind_conditions_of_their_own_are_sequences_of_their_own(tmp_path: Path) -> None:
    graph = graph_of(planned(SLIDES, tmp_path), tmp_path)
    ((one_by_one, sequences),) = rounds(graph)
    assert [type(graph.operator(step)) for step in one_by_one] == [NetworkFilter] * 10
    assert len(sequences) == 10


def test_queries_over_one_window_are_sequences_of_their_own(tmp_path: Path) -> None:
    text = "REGISTER QUERY last AS SELECT * FROM s [RANGE 5];"
    for by in "kvw":
        text += f"REGISTER QUERY q{by} AS SELECT {by}, COUNT(*) AS n FROM last GROUP BY {by};"
    (_, window), (_, aggregates) = rounds(graph_of(planned(text, tmp_path), tmp_path))
    assert len(window) == 1
    assert len(aggregates) == 3


def test_aggregates_that_share_windows_are_one_sequence(tmp_path: Path) -> None:
    graph = graph_of(planned(SHARED, tmp_path), tmp_path)
    *_, (_, sequences) = rounds(graph)
    members = [step for step in graph.steps if isinstance(graph.operators[step], SharableSlidingAggregate)]
    assert len(members) == 3
    assert len([one for one in sequences if set(members) & set(one.steps)]) == 1


def test_what_reads_two_sequences_makes_them_one(tmp_path: Path) -> None:
    text = "REGISTER QUERY both AS SELECT k FROM s [RANGE 5] UNION ALL SELECT w FROM s [ROWS 3];"
    graph = graph_of(planned(text, tmp_path), tmp_path)
    ((_, sequences),) = rounds(graph)
    assert len(sequences) == 1
    assert graph.operator(sequences[0].steps[-1]).__class__ is Union


def test_readers_are_counted_as_steps_come_and_go(tmp_path: Path) -> None:
    run = LocalRun(planned(SLIDES + SHARED, tmp_path), Options(tmp_path))
    graph = run.pipeline._graph
    for change in (
        "REGISTER QUERY more AS SELECT w, COUNT(*) AS n FROM s [RANGE 8 SLIDE 2] GROUP BY w;",
        "REPLACE QUERY q1 AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s [RANGE 6] GROUP BY k;",
        "DROP QUERY more;",
        "DROP QUERY r1;",
    ):
        run.pipeline.execute(change)
        readers = [step for reader in graph.steps for step in set(graph.inputs(reader))]
        assert {step: graph._readers[step] for step in graph.steps} == {
            step: readers.count(step) for step in graph.steps
        }


def answers(text: str, folder: Path) -> dict[str, list[object]]:
    plan = planned(text, folder)
    collected = Collected(plan)
    run = collected.run = LocalRun(plan, Options(folder, batch=1 << 16), on_answer=collected.add)
    run.run()
    return {name: list(rows) for name, rows in collected.rows.items()}


@pytest.mark.parametrize("slow", ["first", "second"])
def test_answers_are_the_same_whichever_core_is_ahead(
    slow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(SLIDES + SHARED + MIXED, tmp_path)
    seen = [threading.Event(), threading.Event()]
    process = SharableSlidingAggregate.process

    def hold(member: SharableSlidingAggregate, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        is_second = threading.current_thread().name == "kasen-second-core"
        seen[is_second].set()
        assert seen[not is_second].wait(60), "the other core has nothing to do"
        if is_second == (slow == "second"):
            time.sleep(0.005)
        return process(member, inputs, upto)

    monkeypatch.setattr(SharableSlidingAggregate, "process", hold)
    monkeypatch.setattr(parallel, "_WORTH", 1)
    monkeypatch.setattr("kasen.runtime.graph.graph.ROWS_PER_STEP", 0)
    monkeypatch.setattr(parallel, "_allowed", True)
    assert answers(SLIDES + SHARED + MIXED, tmp_path) == expected


def test_what_fails_on_the_second_core_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    fails = threading.Event()

    def fail(member: SharableSlidingAggregate, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        if threading.current_thread().name == "kasen-second-core":
            fails.set()
            raise Broken
        assert fails.wait(60), "the second core has nothing to do"
        return inputs[0]

    plan = planned(SLIDES, tmp_path)
    monkeypatch.setattr(SharableSlidingAggregate, "process", fail)
    monkeypatch.setattr(parallel, "_WORTH", 1)
    monkeypatch.setattr("kasen.runtime.graph.graph.ROWS_PER_STEP", 0)
    monkeypatch.setattr(parallel, "_allowed", True)
    with pytest.raises(Broken):
        LocalRun(plan, Options(tmp_path, batch=1 << 16)).run()
