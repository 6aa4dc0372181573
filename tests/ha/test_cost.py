"""The cost model's predictions, and batch sizes that follow the load."""

from __future__ import annotations

import pytest

from kasen.ha.cost import TAKEOVER_SECONDS, CostModel


def test_a_batch_that_never_fills_costs_nothing() -> None:
    model = CostModel()
    for _ in range(10):
        model.saw_peak(400, 200)
    assert [model.overhead(batch) for batch in (1, 400, 401, None)] == [1.0, 1.0, 0.0, 0.0]


def test_recovery_grows_with_the_batch_up_to_what_is_unreleased() -> None:
    model = CostModel()
    model.saw_peak(400, 200)
    times = [model.recovery(batch) for batch in (1, 100, 400, 800, None)]
    assert times == sorted(times)
    assert times[2] == times[3] == times[4]


def test_the_batch_follows_a_load_that_doubles() -> None:
    model = CostModel()
    for _ in range(32):
        model.saw_peak(200, 100)
    before, _ = model.batch_for_overhead(0.3)
    for _ in range(32):
        model.saw_peak(400, 200)
    after, _ = model.batch_for_overhead(0.3)
    assert 200 < before < 400 < after
    assert model.overhead(after) <= 0.3


def test_slower_work_makes_the_batch_smaller() -> None:
    model = CostModel()
    fast, _ = model.batch_for_recovery(0.2)
    for _ in range(50):
        model.saw_service(1e-3)
    slow, kept = model.batch_for_recovery(0.2)
    assert kept
    assert slow < fast
    assert model.recovery(slow) <= 0.2


def test_a_bound_below_what_a_takeover_costs_cannot_be_kept() -> None:
    assert CostModel().batch_for_recovery(TAKEOVER_SECONDS) == (1, False)


@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_a_loose_bound_on_overhead_is_active_standby(bound: float) -> None:
    model = CostModel()
    model.saw_peak(100, 50)
    assert model.batch_for_overhead(bound) == (1, True)
