"""Files that are small and stand for much: they end in an answer or an error, in little memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.connect.registry import open_source
from kasen.errors import DataError
from kasen.types import BIGINT, VARCHAR, Connector
from tests.connect.reading import read_path, schema_of

SCHEMA = schema_of(ts=BIGINT, a=VARCHAR)


def chunks_of(path: Path) -> list[int]:
    source = open_source(Connector("parquet", (("path", path.name),)), path.parent, "s", SCHEMA, 0)
    return [len(chunk) for chunk in source.chunks()]


def test_a_long_text_that_is_repeated_takes_the_memory_of_one(tmp_path: Path) -> None:
    """200,000 times a megabyte: more than any machine holds, if each were made."""
    n = 200_000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"ts": np.arange(n), "a": texts}), tmp_path / "s.parquet")
    before = pa.total_allocated_bytes()
    assert sum(chunks_of(tmp_path / "s.parquet")) == n
    assert pa.default_memory_pool().max_memory() - before < 200 << 20


def test_rows_of_long_texts_are_read_a_few_at_once(tmp_path: Path) -> None:
    texts = [f"{number:06}" + "x" * 1_000_000 for number in range(150)]
    table = pa.table({"ts": np.arange(150), "a": texts})
    pq.write_table(table, tmp_path / "s.parquet", use_dictionary=False, compression="zstd")
    chunks = chunks_of(tmp_path / "s.parquet")
    assert sum(chunks) == 150
    assert max(chunks) <= 70


@pytest.mark.parametrize("cut", [4, 100, 300])
def test_a_parquet_file_that_is_damaged_is_named_with_the_row(tmp_path: Path, cut: int) -> None:
    table = pa.table({"ts": np.arange(5000), "a": [f"text {number}" for number in range(5000)]})
    pq.write_table(table, tmp_path / "s.parquet", compression="snappy", row_group_size=1000)
    data = bytearray((tmp_path / "s.parquet").read_bytes())
    data[cut : cut + 60] = b"\xff" * 60
    (tmp_path / "s.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"s: .*s\.parquet cannot be read beyond row \d+: "):
        read_path(tmp_path / "s.parquet", SCHEMA, timestamp=0)


@pytest.mark.parametrize(("format_", "name"), [("csv", "s.csv.gz"), ("json", "s.json.GZ"), ("csv", "s.zst")])
def test_compressed_text_is_refused_by_its_name(tmp_path: Path, format_: str, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"ts,a\n" + b"1,x\n" * 100_000))
    with pytest.raises(DataError, match=rf"s: {name} is compressed; .*: unpack it"):
        read_path(tmp_path / name, SCHEMA, timestamp=0, format=format_)
