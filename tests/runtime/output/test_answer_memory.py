"""Memory while many queries answer one push: it follows a limit and what waits for readers, not the epoch."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Prints how many answers there were, and by how many MB the peak of memory rose.
CHILD = """
import resource, sys
import numpy as np, pyarrow as pa
import kasen

way, queries, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(1)
text = "REGISTER STREAM s (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
bounds = [1000 - 720 * number // queries for number in range(queries)]
for number, bound in enumerate(bounds):
    text += f"REGISTER QUERY q{number} AS SELECT k, v FROM s WHERE v >= {bound};"

def table(first, count):
    times = np.arange(first, first + count)
    return pa.table({"ts": times, "k": rng.integers(0, 1000, count), "v": rng.integers(0, 1000, count)})

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

p = kasen.Pipeline().execute(text)
found = [0] * queries
def counter(number):
    def count(epoch, table):
        found[number] += len(table)
    return count
if way == "foreach_batch":
    for number in range(queries):
        p.query(f"q{number}").foreach_batch(counter(number))
first, pushed = table(0, 100), table(100, rows)
p.push("s", first)
before = peak()
p.push("s", pushed).advance("s", 10**9)
for number in range(queries):
    if way == "to_arrow":
        found[number] += len(p.query(f"q{number}").to_arrow())
    elif way == "iteration":
        found[number] += sum(len(each) for each in p.query(f"q{number}"))
v = np.sort(np.concatenate([first["v"], pushed["v"]]))
assert found == [len(v) - int(np.searchsorted(v, bound)) for bound in bounds]
print(sum(found), peak() - before, peak())
"""


def run(way: str, queries: int, rows: int, patience: int) -> tuple[int, int, int]:
    command = [sys.executable, "-c", CHILD, way, str(queries), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 0, done.stderr
    answers, rise, peak = map(int, done.stdout.split())
    return answers, rise, peak


@pytest.mark.parametrize("way", ["foreach_batch", "to_arrow"])
def test_answers_of_many_queries_to_one_push_do_not_exist_all_at_once(way: str) -> None:
    answers, rise, _ = run(way, 300, 131_072, 600)
    assert answers > 14_000_000
    assert rise < 450  # MB; about 1,000 if they do


@pytest.mark.soak
@pytest.mark.parametrize("way", ["foreach_batch", "to_arrow", "iteration"])
def test_a_thousand_filters_over_half_a_million_rows_stay_below_2_gb(way: str) -> None:
    answers, _, peak = run(way, 1000, 524_288, 1200)
    assert answers > 185_000_000
    assert peak < 2000
