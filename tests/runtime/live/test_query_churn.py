"""Queries that come and go for ever leave nothing behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

import kasen
from kasen.api import queries

STREAM = "REGISTER STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM 'memory';"
KEEP = "REGISTER QUERY other AS ISTREAM(SELECT k FROM s WHERE k < 0);"
Q = "REGISTER QUERY q AS ISTREAM(SELECT k FROM s);"


def started() -> kasen.Pipeline:
    return kasen.Pipeline().execute(STREAM + KEEP).push("s", [{"ts": 0, "k": 0}])


def test_a_query_that_was_dropped_and_read_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_MOST_DROPPED", 0)
    p = started().execute(Q)
    gone = weakref.ref(p.query("q"))
    p.push("s", [{"ts": 1, "k": 1}]).advance("s", 2).execute("DROP QUERY q")
    assert p.query("q").changes() == [(0, 0, 0, 1, (0,)), (1, 0, 0, 1, (1,))]
    p.execute(Q.replace("q AS", "another AS"))
    gc.collect()
    assert gone() is None
    with pytest.raises(kasen.DataError, match="no query 'q'; registered are: other, another"):
        p.query("q")


def test_queries_that_were_dropped_lately_can_be_asked_for_though_they_said_nothing() -> None:
    p = started()
    for number in range(150):
        p.execute(f"REGISTER QUERY q{number} AS SELECT k FROM s [ROWS 1];").execute(f"DROP QUERY q{number}")
    assert all(p.query(f"q{number}").changes() == [] for number in range(50, 150))
    with pytest.raises(kasen.DataError, match="no query 'q49'"):
        p.query("q49")


def test_unread_changes_of_a_dropped_query_stay_however_many_are_dropped_later() -> None:
    p = started().execute(Q).advance("s", 1).execute("DROP QUERY q")
    for number in range(300):
        p.execute(f"REGISTER QUERY q{number} AS SELECT k FROM s [ROWS 1];").execute(f"DROP QUERY q{number}")
    assert p.query("q").changes() == [(0, 0, 0, 1, (0,))]


def test_who_holds_a_query_that_was_dropped_reads_the_next_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "_MOST_DROPPED", 0)
    p = started().execute(Q)
    held = p.query("q")
    p.advance("s", 1).execute("DROP QUERY q")
    assert held.changes() == [(0, 0, 0, 1, (0,))]
    p.execute("REGISTER QUERY third AS ISTREAM(SELECT k FROM s);").execute(Q)
    p.push("s", [{"ts": 7, "k": 7}]).advance("s", 8)
    assert p.query("q") is held
    assert held.changes() == [(7, 0, 0, 1, (7,))]


def test_what_foreach_batch_was_given_hears_of_the_next_query_of_that_name() -> None:
    p, heard = started().execute(Q), []
    p.query("q").foreach_batch(lambda _, table: heard.extend(table["k"].to_pylist()))
    p.advance("s", 1).execute("DROP QUERY q").execute(Q)
    p.push("s", [{"ts": 7, "k": 7}]).advance("s", 8)
    assert heard == [0, 7]


#: Prints how many bytes a cycle of REGISTER and DROP, each of another text, left behind.
CHILD = """
import gc, sys
import kasen

FORMS = [
    "ISTREAM(SELECT k FROM s WHERE k > {i})",
    "SELECT k, SUM(k) + {i} AS x{i} FROM s [RANGE {j}] GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM s [ROWS {j}] GROUP BY k HAVING COUNT(*) > {i}",
    "SELECT a.k FROM s [RANGE {j}] AS a, s [ROWS {j}] AS b WHERE a.k = b.k AND a.k > {i}",
]
cycles = int(sys.argv[1])
p = kasen.Pipeline().execute(
    "REGISTER STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM 'memory';"
    "REGISTER QUERY other AS ISTREAM(SELECT k FROM s WHERE k < 0);"
)

def memory():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def cycle(i):
    query = FORMS[i % len(FORMS)].format(i=i, j=1 + i % 100)
    p.execute(f"REGISTER QUERY q{i} AS {query}")
    p.push("s", [{"ts": i, "k": i}])
    p.execute(f"DROP QUERY q{i}")
    if f"q{i}" in p._queries:
        p.query(f"q{i}").changes()

half = cycles // 2
for i in range(half):
    cycle(i)
before = memory()
for i in range(half, cycles):
    cycle(i)
print((memory() - before) // (cycles - half))
"""


def left_behind(cycles: int, patience: int) -> int:
    command = [sys.executable, "-c", CHILD, str(cycles)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_cycle_of_register_and_drop_leaves_no_memory_behind() -> None:
    assert left_behind(1500, 900) < 2000  # bytes; 6,000 if names are kept


@pytest.mark.soak
def test_thousands_of_cycles_of_register_and_drop_leave_no_memory_behind() -> None:
    assert left_behind(20_000, 1800) < 300
