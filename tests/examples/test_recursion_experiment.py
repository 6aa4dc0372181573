"""The query of [DTS] as the experiment runs it: whichever way it is scheduled, the answers are the same."""

from __future__ import annotations

import pytest

from experiments._averages import Schedule, fed_back, plan_of, tuples


@pytest.mark.parametrize("subqueries", [1, 2, 4])
@pytest.mark.parametrize("a_timestamp", [1, 4])
@pytest.mark.parametrize("epoch", [64, 1 << 16])
def test_recursive_and_cut_open_say_the_same(
    subqueries: int, a_timestamp: int, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments._averages.EPOCH", epoch)
    inputs = {"input": tuples(400, a_timestamp)}
    recursive = plan_of(subqueries, cut=False)
    answers = Schedule(recursive, split=True).run(inputs)
    opened = inputs | fed_back(answers)
    others = [Schedule(recursive, split=False).run(inputs)]
    others += [Schedule(plan_of(subqueries, cut=True), split=split).run(opened) for split in (True, False)]
    for other in others:
        for name, batch in answers.items():
            assert (batch.ts.tolist(), batch.seq_tick.tolist()) == (
                other[name].ts.tolist(),
                other[name].seq_tick.tolist(),
            )
            assert batch.data.tolist() == other[name].data.tolist(), name
    # Every tuple makes a new average, which goes once around the outer loop.
    assert len(answers["all_avg_delay"]) == 400
    assert len(answers["uni_input"]) == 800
