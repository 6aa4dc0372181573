"""SET max_text_bytes on Spark: what is refused or NULL is what is refused or NULL on the local engine."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kasen.spark.session import session
from tests.cases_format import all_cases
from tests.spark.scan.test_reading import agree
from tests.spark.test_cases_on_spark import check_together

pytestmark = pytest.mark.spark

CASES = [case for case in all_cases() if "longer_than_the_limit" in case.name]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session("local[2]")


@pytest.mark.parametrize("place", ["driver", "3 shards"])
def test_cases_with_long_texts_have_the_same_answers(place: str, spark: SparkSession, tmp_path: Path) -> None:
    assert len(CASES) == 2
    check_together(CASES, place, spark, tmp_path)


def test_a_row_of_parquet_with_a_long_text_is_refused(tmp_path: Path) -> None:
    """Beside a row without its time, which is refused, too."""
    text = """
        SET max_text_bytes = 64;
        REGISTER STREAM s (ts BIGINT, v VARCHAR, w VARCHAR) TIMESTAMP BY ts
          FROM 'parquet' OPTIONS (path 's.parquet');
        REGISTER QUERY q AS ISTREAM (SELECT LENGTH(v) AS n FROM s [NOW]);
    """
    rows = [(1, "a", "b"), (2, "a" * 65, "b"), (None, "c", "b"), (3, "d", "ä" * 33), (4, "e" * 64, None)]
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=["ts", "v", "w"]), tmp_path / "s.parquet")
    found = agree(text, tmp_path)
    assert found["q"].splitlines()[1:] == ["1,0,0,1,1", "4,0,0,1,64"]
    assert found["refused"] == "s,2\ns,3\ns,4"
