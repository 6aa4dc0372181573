"""Bytes of state written in an epoch do not grow with the window. The placement is driven without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kasen.cql.bind import bind_text
from kasen.plan.physical import plan_app
from kasen.runtime.outputs import Outputs
from kasen.runtime.pipeline import Pipeline
from kasen.spark.epochs import Store
from kasen.spark.placement import InDriver

ROWS = 1000
EPOCHS = 150


def micro_batch(first: int, count: int) -> pa.Table:
    """Rows of both streams as frames.union lays them side by side."""
    number = np.arange(first, first + count)
    none = pa.nulls(count, pa.int64())
    text = pa.nulls(count, pa.string())
    parts = []
    for own in range(2):
        columns: dict[str, object] = {"stream": ["s" if own == 0 else "r"] * count}
        for index in range(2):
            mine = index == own
            columns[f"{index}.k"] = pa.array(number * 7919 % 65536) if mine else none
            columns[f"{index}.ts"] = pa.array(number) if mine else none
            columns[f"{index}._diff"] = pa.array(np.ones(count, np.int64)) if mine else none
            columns[f"{index}._bad"] = columns[f"{index}._raw"] = text
            columns[f"{index}._file"] = pa.array(["f"] * count) if mine else text
            columns[f"{index}._block"] = pa.array(np.zeros(count, np.int64)) if mine else none
        parts.append(pa.table({**columns, "_place": pa.array(number)}))
    return pa.concat_tables(parts)


def bytes_an_epoch(window: int, folder: Path) -> float:
    """The bytes that an epoch writes on average, once the window is full, snapshots included."""
    folder.mkdir()
    app = bind_text(
        f"""
        REGISTER STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
        REGISTER STREAM r (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
        REGISTER QUERY q AS ISTREAM(SELECT s.k FROM s [ROWS {window}], r [ROWS {window}] WHERE s.k = r.k);
        """,
        folder,
    )
    plan = plan_app(app)
    pipeline = Pipeline(plan)
    outputs = Outputs(plan, pipeline, folder, None, {}, None, lambda _: None)
    store = Store(str(folder / "state"), plan.fingerprint, "the driver")
    store.load()
    placement = InDriver(plan, pipeline, outputs, store, None)
    written: list[int] = []
    for method in ("write",):
        original = getattr(store.files, method)

        def counted(name: str, content: bytes, original: object = original) -> object:
            written.append(len(content))
            return original(name, content)  # type: ignore[operator]

        setattr(store.files, method, counted)
    filled = max(window, ROWS)
    placement.take(micro_batch(0, filled))
    store.commit({**placement.save(0), "epoch": 0, "notes": {}})
    written.clear()
    for epoch in range(1, EPOCHS):
        placement.take(micro_batch(filled + epoch * ROWS, ROWS))
        store.commit({**placement.save(epoch), "epoch": epoch, "notes": {}})
    return sum(written) / (EPOCHS - 1)


@pytest.mark.parametrize("small", [1 << 10])
def test_bytes_of_state_an_epoch_do_not_grow_with_the_window(small: int, tmp_path: Path) -> None:
    one = bytes_an_epoch(small, tmp_path / "small")
    other = bytes_an_epoch(1 << 20, tmp_path / "large")
    assert other <= 1.2 * one, (one, other)
