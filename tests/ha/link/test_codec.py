"""Compressed batches come back as they were, and are smaller than zlib makes them."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from examples.sensors.generate import generate
from kasen.errors import DataError
from kasen.ha.link.codec import expand, squeeze

MOST = 1 << 24


def sensor_batch(rows: int) -> pa.RecordBatch:
    table = generate(rows, 1, 4, 1000)["readings"].sort_by("timestamp")
    return table.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "zlib"])
@pytest.mark.parametrize("rows", [1, 100])
def test_a_batch_comes_back_as_it_was(compression: str, rows: int) -> None:
    batch = sensor_batch(rows)
    texts = pa.array([None if i % 3 == 0 else "text" * i for i in range(rows)], pa.string())
    batch = batch.append_column("text", texts)
    assert expand(squeeze(batch, compression), compression, batch.schema, MOST).equals(batch)


@pytest.mark.parametrize("rows", [100, 500])
def test_sensor_data_gets_at_least_as_small_as_zlib_makes_it(rows: int) -> None:
    batch = sensor_batch(rows)
    columns = [np.frombuffer(column.buffers()[1], np.int64)[:rows] for column in batch.columns]
    by_row, by_column = np.stack(columns, 1).tobytes(), np.stack(columns).tobytes()
    least = min(len(zlib.compress(by_row)), len(zlib.compress(by_column)))
    assert len(squeeze(batch, "zstd")) <= least


def test_a_message_that_says_it_is_too_large_is_not_read() -> None:
    content = (1 << 40).to_bytes(8, "little") + b"rest"
    with pytest.raises(DataError, match="at most"):
        expand(content, "zstd", sensor_batch(1).schema, MOST)
