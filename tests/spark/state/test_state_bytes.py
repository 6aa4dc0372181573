"""Bytes of state written in an epoch do not grow with the window. The placement is driven without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kasen.cql.bind.app import bind_text
from kasen.plan.native.lower import lower
from kasen.plan.physical import plan_app
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import RunningPipeline
from kasen.spark.driver import InDriver
from kasen.spark.placement import RunInputs
from kasen.spark.scan.file_names import FileNames, code
from kasen.spark.state.epochs import Store
from kasen.spark.state.state_files import Files

ROWS = 1000
EPOCHS = 150


def micro_batch(first: int, count: int) -> pa.Table:
    """Rows of both streams as scan.union lays them one after the other."""
    number = np.arange(first, first + count)
    text = pa.nulls(count, pa.string())
    columns = {
        "_file": pa.array(np.full(count, code(""))),
        "_bad": text,
        "_raw": text,
        "bigint_0": pa.array(number * 7919 % 65536),
        "bigint_1": pa.array(number),
    }
    streams = [pa.array(np.full(count, own, np.int8)) for own in range(2)]
    return pa.concat_tables([pa.table({"_stream": own, **columns}) for own in streams])


def bytes_an_epoch(window: int, folder: Path) -> float:
    """The bytes that an epoch writes on average, once the window is full, snapshots included."""
    folder.mkdir()
    app = bind_text(
        f"""
        REGISTER STREAM s (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'parquet' OPTIONS (path 's');
        REGISTER STREAM r (k BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'parquet' OPTIONS (path 'r');
        REGISTER QUERY q AS ISTREAM(SELECT s.k FROM s [ROWS {window}], r [ROWS {window}] WHERE s.k = r.k);
        """,
        folder,
    )
    native = lower(plan_app(app))
    plan = native.plan
    pipeline = RunningPipeline(plan)
    outputs = Outputs(plan, pipeline, folder, None, {}, None, lambda _: None)
    store = Store(Files(str(folder / "state")), plan.fingerprint, "the driver")
    store.load()
    inputs = RunInputs(native, lambda *_: [], FileNames(plan.app.inputs, folder))
    placement = InDriver(inputs, pipeline, outputs, store, None)
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
