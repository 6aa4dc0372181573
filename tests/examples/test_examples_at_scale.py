"""The examples over many rows, run by the command as a user would, beside others who compute the same.

What an answer says is computed here from the definitions, by DuckDB or numpy, over the whole data at once:
too long for the oracle, and nothing of it shared with the engine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from numba import njit

from tests.paths import EXAMPLES

I64 = npt.NDArray[np.int64]
Rows = list[tuple[object, ...]]

SIZES = [20_000, pytest.param(10_000_000, marks=pytest.mark.soak)]


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("SET threads = 2")
    return made


def run_example(name: str, rows: int, where: Path) -> Path:
    """Generates the data, runs the app; where its answers are."""
    app = where / name
    app.mkdir()
    shutil.copy(EXAMPLES / name / f"{name}.cql", app)
    data = str(app / "data")
    generate = [sys.executable, str(EXAMPLES / name / "generate.py"), "--rows", str(rows), "--out", data]
    subprocess.run(generate, check=True, capture_output=True)
    command = [sys.executable, "-m", "kasen", "run", str(app / f"{name}.cql"), "--engine", "local"]
    command += ["--out", str(app / "out")]
    subprocess.run(command, check=True, capture_output=True)
    return app


def differ(connection: duckdb.DuckDBPyConnection, found: str, right: str) -> Rows:
    """Some of the rows of one SELECT that are not in the other, as often."""
    one, other = f"(({found}) EXCEPT ALL ({right}))", f"(({right}) EXCEPT ALL ({found}))"
    return connection.sql(f"FROM {one} UNION ALL FROM {other} LIMIT 5").fetchall()


# ---------------------------------------------------------------- auction


@pytest.mark.parametrize("rows", SIZES)
def test_auction(rows: int, tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    app = run_example("auction", rows, tmp_path)
    for name in ("bids", "items"):
        connection.execute(f"CREATE TABLE {name} AS FROM '{app}/data/{name}.csv'")

    def found(query: str, columns: str, diff: int = 1) -> str:
        return f"SELECT ts, {columns} FROM '{app}/out/{query}.csv' WHERE diff = {diff}"

    bid = "item_id, bid_price, bidder"
    conditions = {
        "q1": "item_id = 1",
        "q2": "item_id = 1 AND bid_price > 1500",
        "q3": "(item_id = 1 OR bid_price > 1500) AND bidder < 30",
    }
    # At one instant equal bids are one change each: ISTREAM of a bag.
    for name, condition in conditions.items():
        right = f"SELECT timestamp, {bid} FROM bids WHERE {condition}"
        assert not differ(connection, found(name, bid), right), name
    right = (
        "SELECT timestamp, title, bid_price, bid_price - reserve, bidder "
        "FROM bids JOIN items USING (item_id) WHERE bid_price >= reserve"
    )
    would_sell = found("would_sell", "title, bid_price, above_reserve, bidder")
    assert not differ(connection, would_sell, right)

    # q4 at every minute b: what came in [b - 4 minutes, b).
    connection.execute("""
        CREATE TABLE best AS
        SELECT end_, item_id, MAX(bid_price) AS best FROM (
            SELECT time_bucket(INTERVAL 1 MINUTE, timestamp) + to_minutes(k) AS end_, item_id, bid_price
            FROM bids, range(1, 5) AS later(k) WHERE item_id BETWEEN 1 AND 10)
        GROUP BY ALL""")
    last = "(SELECT MAX(timestamp) FROM bids)"
    entered = f"SELECT end_, item_id, best, end_ FROM best WHERE end_ <= {last}"
    assert not differ(connection, found("q4", "item_id, best, timestamp"), entered)
    later = "end_ + INTERVAL 1 MINUTE"
    left = f"SELECT {later}, item_id, best, end_ FROM best WHERE {later} <= {last}"
    assert not differ(connection, found("q4", "item_id, best, timestamp", -1), left)

    # lively at every minute t: what came in [t - 5 minutes, t].
    recent = f"""
        SELECT t, category, COUNT(*), COUNT(DISTINCT bidder) FROM (
            SELECT time_bucket(INTERVAL 1 MINUTE, timestamp + INTERVAL '59.999999' SECOND)
                       + to_minutes(k) AS t, timestamp, category, bidder
            FROM bids JOIN items USING (item_id), range(0, 6) AS later(k))
        WHERE t - INTERVAL 5 MINUTE <= timestamp AND t <= {last}
        GROUP BY ALL"""
    assert not differ(connection, found("lively", "category, bids, bidders"), recent)


# ---------------------------------------------------------------- dos


@njit(nogil=True)
def pairs_by_port(site: I64, port: I64, ports: int, length: int) -> I64:
    """Every change of a port's number of pairs: at which arrival, the port, the old number, the new one."""
    counts = np.zeros((2, ports), np.int64)
    held = np.zeros((2, length), np.int64)
    seen = np.zeros(2, np.int64)
    found = np.empty((4, 2 * len(site)), np.int64)
    n = 0
    for i in range(len(site)):
        mine, there = site[i], 1 - site[i]
        place = seen[mine] % length
        touched = (port[i], held[mine, place] if seen[mine] >= length else port[i])
        before = (
            counts[0, touched[0]] * counts[1, touched[0]],
            counts[0, touched[1]] * counts[1, touched[1]],
        )
        if seen[mine] >= length:
            counts[mine, held[mine, place]] -= 1
        counts[mine, port[i]] += 1
        held[mine, place] = port[i]
        seen[mine] += 1
        for k in range(2 if touched[0] != touched[1] else 1):
            after = counts[mine, touched[k]] * counts[there, touched[k]]
            if after != before[k]:
                found[0, n], found[1, n], found[2, n], found[3, n] = i, touched[k], before[k], after
                n += 1
    return found[:, :n]


@pytest.mark.parametrize("rows", SIZES)
def test_dos(rows: int, tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    app = run_example("dos", rows // 2, tmp_path)
    # Arrivals by time; at the same time those of the stream declared first come first, and seq counts them.
    connection.execute(f"""
        CREATE TABLE arrivals AS
        SELECT *, row_number() OVER (PARTITION BY ts ORDER BY site, line) - 1 AS seq FROM (
            SELECT 0 AS site, row_number() OVER () AS line, * FROM '{app}/data/tsukuba.csv' UNION ALL
            SELECT 1 AS site, row_number() OVER () AS line, * FROM '{app}/data/uec.csv')
        ORDER BY ts, seq""")
    arrived = connection.sql("SELECT site, dstport FROM arrivals ORDER BY ts, seq").fetchnumpy()
    ports, port = np.unique(arrived["dstport"], return_inverse=True)
    pairs: I64 = pairs_by_port(arrived["site"].astype(np.int64), port, len(ports), 100)
    given = pa.table({"arrival": pairs[0], "dstport": ports[pairs[1]], "old": pairs[2], "new": pairs[3]})
    connection.register("given", given)
    numbered = "SELECT ts, seq, row_number() OVER (ORDER BY ts, seq) - 1 AS arrival FROM arrivals"
    connection.execute(f"""
        CREATE TABLE changes AS
        SELECT ts, seq, dstport, old, new FROM given JOIN ({numbered}) USING (arrival)""")

    def found(query: str, columns: str, diff: int = 1) -> str:
        return f"SELECT ts, seq, {columns} FROM '{app}/out/{query}.csv' WHERE diff = {diff}"

    for column, diff in (("new", 1), ("old", -1)):
        right = f"SELECT ts, seq, dstport, {column} FROM changes WHERE {column} > 0"
        assert not differ(connection, found("same_port", "dstport, pairs", diff), right), column
    begun = "SELECT ts, seq, dstport FROM changes WHERE old < 1500 AND new >= 1500"
    assert not differ(connection, found("alarm", "dstport"), begun)
    over = "SELECT ts, seq, dstport FROM changes WHERE new < 1500 AND old >= 1500"
    assert not differ(connection, found("all_clear", "dstport"), over)
    assert_busy_ports(app, connection)


def assert_busy_ports(app: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """At some arrivals, the busy ports are those of the last second."""
    packets = connection.sql(
        "SELECT epoch_us(ts) AS ts, seq, dstport, srcip FROM arrivals WHERE site = 0 ORDER BY ts, seq"
    ).fetchnumpy()
    said = connection.sql(
        f"SELECT epoch_us(ts) AS ts, seq, diff, dstport, packets, sources FROM '{app}/out/busy_ports.csv'"
    ).fetchnumpy()
    coded = (said["dstport"].astype(np.int64) * 1_000_000 + said["packets"]) * 1_000_000 + said["sources"]
    busy: Counter[int] = Counter()
    done = 0
    sampled = np.unique(np.random.default_rng(5).integers(0, len(packets["ts"]), 300))
    some = 0
    for i in sampled.tolist():
        ts, seq = packets["ts"][i], packets["seq"][i]
        end = int(np.searchsorted(said["ts"], ts, "right"))
        while end > done and said["ts"][end - 1] == ts and said["seq"][end - 1] > seq:
            end -= 1
        for code, diff in zip(coded[done:end].tolist(), said["diff"][done:end].tolist(), strict=True):
            busy[code] += diff
        done = end
        first = int(np.searchsorted(packets["ts"], ts - 1_000_000, "left"))
        last = packets["dstport"][first : i + 1], packets["srcip"][first : i + 1]
        right: Counter[int] = Counter()
        for port, count in Counter(last[0].tolist()).items():
            if count >= 30:
                sources = len(set(last[1][last[0] == port].tolist()))
                right[(port * 1_000_000 + count) * 1_000_000 + sources] = 1
        assert +busy == right, ts
        some += len(right)
    assert some > 0


# ---------------------------------------------------------------- sensors


@pytest.mark.parametrize("rows", SIZES)
def test_sensors(rows: int, tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    app = run_example("sensors", rows, tmp_path)
    connection.execute(f"CREATE TABLE readings AS FROM '{app}/data/readings.csv' ORDER BY timestamp")
    assert len((app / "out" / "dead_letter.csv").read_text().splitlines()) == 1  # none came too late

    def found(query: str, columns: str, diff: int = 1) -> str:
        return f"SELECT ts, {columns} FROM '{app}/out/{query}.csv' WHERE diff = {diff}"

    warm = "SELECT timestamp, id, temperature FROM readings WHERE temperature > 26.0"
    assert not differ(connection, found("warm", "id, temperature"), warm)
    shaken = "SELECT timestamp, id, x, y, z FROM readings WHERE x * x + y * y + z * z > 2.0"
    assert not differ(connection, found("shaken", "id, x, y, z"), shaken)

    # Sums of these values are exact, whatever their order.
    smoothed = """
        SELECT timestamp, n, temperature, brightest FROM (
            SELECT timestamp, row_number() OVER (ORDER BY timestamp) AS number, COUNT(*) OVER w AS n,
                   SUM(temperature) OVER w / COUNT(*) OVER w AS temperature,
                   MAX(illuminance) OVER w AS brightest
            FROM readings WINDOW w AS (ORDER BY timestamp ROWS 99 PRECEDING))
        WHERE number % 10 = 0"""
    assert not differ(connection, found("smoothed", "readings, temperature, brightest"), smoothed)

    per_sensor = """
        SELECT end_, id, end_, COUNT(*), SUM(temperature) / COUNT(*), MAX(temperature) - MIN(temperature)
        FROM (
            SELECT time_bucket(INTERVAL 1 SECOND, timestamp) + to_seconds(k) AS end_, id, temperature
            FROM readings, range(1, 6) AS later(k))
        WHERE end_ <= (SELECT MAX(timestamp) FROM readings) GROUP BY ALL"""
    columns = "id, until, readings, temperature, spread"
    assert not differ(connection, found("per_sensor", columns), per_sensor)

    present = "SELECT id, timestamp, temperature, illuminance FROM readings"
    before = """
        SELECT *, lag(temperature) OVER w AS was, lag(illuminance) OVER w AS was_lit FROM readings
        WINDOW w AS (PARTITION BY id ORDER BY timestamp)"""
    changed = (
        f"FROM ({before}) WHERE was IS DISTINCT FROM temperature OR was_lit IS DISTINCT FROM illuminance"
    )
    latest = f"SELECT timestamp, id, temperature, illuminance {changed}"
    assert not differ(connection, found("latest", "id, temperature, illuminance"), latest)

    # One reading an instant: the latest of each sensor, carried on, and what is greatest and least of them.
    sensors = [each for (each,) in connection.sql("SELECT DISTINCT id FROM readings ORDER BY id").fetchall()]
    carried = ", ".join(
        f"last_value(CASE WHEN id = {each} THEN temperature END IGNORE NULLS) OVER w" for each in sensors
    )
    warmest = f"""
        SELECT timestamp, top, top - low FROM (
            SELECT *, lag(top) OVER old AS old_top, lag(low) OVER old AS old_low
            FROM (SELECT timestamp, greatest({carried}) AS top, least({carried}) AS low FROM ({present})
                  WINDOW w AS (ORDER BY timestamp ROWS UNBOUNDED PRECEDING))
            WINDOW old AS (ORDER BY timestamp))
        WHERE old_top IS DISTINCT FROM top OR old_top - old_low IS DISTINCT FROM top - low"""
    assert not differ(connection, found("warmest", "temperature, difference"), warmest)
