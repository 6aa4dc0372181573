"""Answers that wait for their reader: the same changes, in little memory."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.engine.batch import I64, Batch, ones, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection
from kasen.runtime.output.answer_store import AnswerStore

SIZE = 4096


def source() -> RowSelection:
    columns = [np.arange(SIZE) * 3, np.arange(SIZE) * 5, zeros(SIZE)]
    return RowSelection(np.arange(SIZE), zeros(SIZE), ones(SIZE), columns)


def chosen(part: RowSelection, step: int) -> Batch:
    return DeferredBatch([part._replace(rows=np.arange(0, SIZE, step))])


def contents(batch: Batch) -> list[I64]:
    return [batch.ts, batch.seq_tick, batch.diff, *batch.data]


@pytest.mark.parametrize("step", [1, 2, 7, 9, 500])
def test_what_is_kept_stays_though_its_source_changes(step: int) -> None:
    part = source()
    kept = AnswerStore().keep(chosen(part, step))
    expected = [column.copy() for column in contents(chosen(part, step))]
    part.ts[:] = -1
    part.columns[0][:] = -1
    assert len(kept) == len(range(0, SIZE, step))
    assert all(np.array_equal(*pair) for pair in zip(contents(kept.batch()), expected, strict=True))


def test_queries_that_choose_much_keep_their_rows_once() -> None:
    part, keeper = source(), AnswerStore()
    one, other = (keeper.keep(chosen(part, step)).batch() for step in (2, 3))
    assert isinstance(one, DeferredBatch)
    assert isinstance(other, DeferredBatch)
    assert one.parts[0].columns[0] is other.parts[0].columns[0]


def test_a_query_that_chooses_little_does_not_hold_what_it_chose_from() -> None:
    kept = AnswerStore().keep(chosen(source(), 40)).batch()
    assert isinstance(kept, DeferredBatch)
    assert all(column.size <= SIZE // 40 + 1 for column in kept.parts[0].columns)
