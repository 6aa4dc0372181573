"""From connectors to sources and sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.connect.decode import output_schema
from kasen.connect.memory.sink import MemorySink
from kasen.connect.memory.source import MemorySource
from kasen.connect.registry import open_sink, open_source
from kasen.connect.sniff import sniffer
from kasen.errors import DataError
from kasen.types import BIGINT, INTEGER, TIMESTAMP, Connector, Type
from tests.connect.reading import schema_of

A = schema_of(a=INTEGER)


def connector(format_: str, **options: str) -> Connector:
    return Connector(format_, tuple(options.items()))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            connector("cvs", path="s.csv"),
            "s: no format 'cvs' to read; there are csv, json, memory, parquet (other formats need Spark)",
        ),
        (
            connector("csv", path="s.csv", delimiter=";"),
            "s: format 'csv' has no option 'delimiter'; its options are: path, diff, multiline",
        ),
        (
            connector("csv", path="hdfs://host:1/s"),
            "s: hdfs://host:1/s is not on this machine; only --engine spark reads addresses",
        ),
        (connector("csv"), "s: format 'csv' needs the option 'path'; its options are: path, diff, multiline"),
        (connector("memory", path="x"), "s: format 'memory' has no option 'path'; its options are: diff"),
        (
            connector("csv", path="s.csv", diff="op"),
            "s: option 'diff' is for a RELATION with TIMESTAMP BY; its rows can leave",
        ),
    ],
)
def test_a_wrong_source_is_named_beside_what_there_is(tmp_path: Path, spec: Connector, message: str) -> None:
    with pytest.raises(DataError) as error:
        open_source(spec, tmp_path, "s", A)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (connector("xml", path="q"), "q: no format 'xml' to write; there are csv, json, memory, parquet"),
        (connector("json"), "q: format 'json' needs the option 'path'; its options are: path"),
        (connector("memory", size="5"), "q: format 'memory' has no option 'size'; its options are: none"),
    ],
)
def test_a_wrong_sink_is_named_beside_what_there_is(tmp_path: Path, spec: Connector, message: str) -> None:
    with pytest.raises(DataError) as error:
        open_sink(spec, tmp_path, "q", output_schema(A, BIGINT))
    assert str(error.value).startswith(message)


def test_formats_that_hold_columns_by_name_refuse_a_name_twice(tmp_path: Path) -> None:
    schema = output_schema(schema_of(TS=BIGINT), BIGINT)
    for format_ in ("json", "parquet"):
        with pytest.raises(DataError, match=f"q: {format_} holds columns by name, and 'ts' is there twice"):
            open_sink(connector(format_, path="q"), tmp_path, "q", schema)
    open_sink(connector("csv", path="q.csv"), tmp_path, "q", schema).close()
    assert (tmp_path / "q.csv").read_text() == "ts,seq,tick,diff,TS\n"


def test_memory_needs_no_options(tmp_path: Path) -> None:
    assert isinstance(open_source(connector("memory"), tmp_path, "s", A), MemorySource)
    assert isinstance(open_sink(connector("memory"), tmp_path, "q", output_schema(A, BIGINT)), MemorySink)


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("a\n1\n")
    source = open_source(connector("csv", path=str(tmp_path / "s.csv")), Path("/nowhere"), "s", A)
    assert [chunk.data[0].tolist() for chunk in source.chunks()] == [[1]]


@pytest.mark.parametrize(
    ("name", "content", "type_"),
    [
        ("s.csv", "ts,a\n5,x\n", BIGINT),
        ("s.csv", "\ufeffTS,a\n5,x\n", BIGINT),
        ("s.csv", "a,ts\nx,2026-01-01 00:00:00\n", TIMESTAMP),
        ("s.csv", "ts,a\n,x\n,y\n 7,z\n", BIGINT),
        ("s.csv", "ts,a\noops,x\n7,z\n", TIMESTAMP),
        ("s.csv", "ts,a\n1,2,3\n2026-01-01,z\n", TIMESTAMP),
        ("s.csv", "ts,a\n", None),
        ("s.csv", "a\n1\n", None),
        ("s.csv", "", None),
        ("s.json", '{"a": 1}\n{"ts": null}\n{"Ts": 5}\n', BIGINT),
        ("s.json", '{"ts": "2026-01-01"}\n', TIMESTAMP),
        ("s.json", "oops\n", None),
        ("gone.csv", None, None),
    ],
)
def test_the_first_value_tells_the_times_type(
    tmp_path: Path, name: str, content: str | None, type_: Type | None
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    format_ = name.rsplit(".")[-1]
    assert sniffer(tmp_path)(connector(format_, path=name, diff="op"), "ts") == type_
    assert sniffer(tmp_path)(connector("kafka", topic="x"), "ts") is None
    assert sniffer(tmp_path)(connector("memory"), "ts") is None
