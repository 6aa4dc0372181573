"""Chains of nodes over the sensors' readings: source -> n -> d -> out, with every kind of operator at n."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.csv

from examples.sensors.generate import generate
from tests.ha import reference
from tests.ha.warm import load_plan

COLUMNS = """id BIGINT, timestamp TIMESTAMP, temperature DOUBLE, illuminance DOUBLE,
             x DOUBLE, y DOUBLE, z DOUBLE"""
SOURCE = f"""
REGISTER STREAM readings ({COLUMNS}) TIMESTAMP BY timestamp FROM 'csv' OPTIONS (path 'readings.csv');
REGISTER QUERY sent AS ISTREAM(SELECT * FROM readings [NOW]);
"""
READINGS = f"REGISTER STREAM readings ({COLUMNS}) TIMESTAMP BY timestamp FROM 'link';\n"
#: The document's two operators first.
OPERATORS = {
    "selection": """ISTREAM(SELECT id, temperature AS v FROM readings [ROWS 100 SLIDE 10]
                    WHERE temperature > 0.0)""",
    "aggregation": """RSTREAM(SELECT MIN(id) AS id, SUM(temperature) + SUM(illuminance) + SUM(x) AS v
                      FROM readings [ROWS 100 SLIDE 10])""",
    "filter": "ISTREAM(SELECT id, temperature AS v FROM readings [NOW] WHERE id <> 2)",
    "range": "SELECT id, AVG(x) AS v FROM readings [RANGE 200 MILLISECONDS] GROUP BY id",
    "slide": """RSTREAM(SELECT id, MAX(temperature) AS v
                FROM readings [RANGE 300 MILLISECONDS SLIDE 50 MILLISECONDS] GROUP BY id)""",
    "join": """ISTREAM(SELECT a.id, b.temperature AS v FROM readings [ROWS 5] AS a, readings [ROWS 7] AS b
               WHERE a.illuminance = b.illuminance)""",
    "rows": "SELECT COUNT(*) AS id, AVG(temperature) AS v FROM readings [ROWS 333]",
    "delay": "ISTREAM(SELECT id, temperature AS v FROM readings [NOW])<70 milliseconds>",
}
#: These remember everything, so their copies are kept by snapshots.
WITH_HISTORY = {
    "total": "SELECT id, SUM(temperature) AS v FROM readings GROUP BY id",
    "latest": "SELECT id, temperature AS v FROM readings [PARTITION BY id ROWS 1]",
}
DOWNSTREAM = """
REGISTER {kind} answers (id BIGINT, v DOUBLE) TIMESTAMP BY ts FROM 'link';
REGISTER QUERY counted AS SELECT COUNT(*) AS n, SUM(v) AS v FROM answers {window};
"""


def make_chain(folder: Path, operator: str, rows: int, rate: int = 1000) -> None:
    """The apps and the data of a chain, with `rate` readings a second in the readings' own time."""
    query = {**OPERATORS, **WITH_HISTORY}[operator]
    table = generate(rows, 1, 4, rate)["readings"].sort_by("timestamp")
    options = pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
    pyarrow.csv.write_csv(table, folder / "readings.csv", options)
    (folder / "source.cql").write_text(SOURCE)
    (folder / "n.cql").write_text(f"{READINGS}REGISTER QUERY answers AS {query};\n")
    is_stream = query.startswith(("ISTREAM", "RSTREAM"))
    kind, window = ("STREAM", "[ROWS 50 SLIDE 7]") if is_stream else ("RELATION", "")
    (folder / "d.cql").write_text(DOWNSTREAM.format(kind=kind, window=window))


def chain(*, copies: int = 2, rate: float | None = 1000, **defaults: Any) -> dict[str, Any]:
    """cluster.toml of the chain."""
    source: dict[str, Any] = {"name": "source", "app": "source.cql"}
    if rate is not None:
        source["rate"] = rate
    nodes = [
        source,
        {"name": "n", "app": "n.cql", "copies": copies, "inputs": {"readings": "source.sent"}},
        {"name": "d", "app": "d.cql", "copies": copies, "inputs": {"answers": "n.answers"}},
        {"name": "out", "sink": "out", "inputs": {"counted": "d.counted"}},
    ]
    return {"defaults": defaults, "node": nodes}


def expected(folder: Path) -> str:
    """The file that the chain writes when nothing happens to it."""
    sent = reference.edge(folder / "source.cql")["sent"]
    answers = reference.node(folder / "n.cql", {"readings": sent})["answers"]
    counted = reference.node(folder / "d.cql", {"answers": answers})["counted"]
    schema = reference.output_schemas(load_plan(folder / "d.cql"))["counted"]
    text = reference.csv(counted, schema, folder / "expected" / "counted.csv")
    shutil.rmtree(folder / "expected")
    return text


def written(folder: Path) -> str:
    return (folder / "out" / "counted.csv").read_text()
