"""Memory and checkpoints follow the texts of live tuples, not all that ever came."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kasen
from kasen.engine.text.dictionary import Dictionary
from kasen.runtime.pipeline import RunningPipeline

STREAM = "REGISTER STREAM s (k VARCHAR, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
JOINED = f"{STREAM} REGISTER STREAM r (k VARCHAR, w BIGINT) TIMESTAMP BY ts FROM 'memory';"

QUERIES = {
    "range": "ISTREAM(SELECT k FROM s [RANGE 10] WHERE v < 0)",
    "rows": "ISTREAM(SELECT UPPER(k) AS k FROM s [ROWS 100] WHERE v < 0)",
    "groups": "SELECT k, COUNT(*) AS n FROM s [RANGE 10] GROUP BY k HAVING COUNT(*) > 1",
    "sliding": "ISTREAM(SELECT k, MAX(v) AS v FROM s [RANGE 10 SLIDE 5] GROUP BY k HAVING MAX(v) < 0)",
    "extremes": "SELECT MIN(k) AS lo, MAX(k) AS hi FROM s [RANGE 10 SLIDE 5]",
    "distinct": "ISTREAM(SELECT DISTINCT k FROM s [RANGE 10] WHERE v < 0)",
    "chosen": "ISTREAM(SELECT k FROM s [NOW] WHERE k LIKE 'nobody%' OR k = 'somebody')",
}
#: Tuples of a time, so that a window of ten units has ten times as many.
A_TIME = 500
PUSH = 50_000


def running(p: kasen.Pipeline) -> RunningPipeline:
    assert p._running is not None
    return p._running


def pushes(count: int, *names: str) -> Iterator[tuple[str, pa.Table]]:
    """Tables for streams, all with texts that never come again."""
    for first in range(0, count, PUSH):
        numbers = np.arange(first, first + PUSH)
        texts = pa.array(numbers).cast(pa.string())
        for name in names:
            column = {"s": "v", "r": "w"}[name]
            yield name, pa.table({"ts": numbers // A_TIME, "k": texts, column: numbers + (1 << 40)})


@pytest.mark.parametrize("name", [*QUERIES, "join"])
def test_the_dictionary_follows_what_windows_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dictionary, "least_new", 10_000)
    p = kasen.Pipeline()
    if name == "join":
        p.execute(f"{JOINED} REGISTER QUERY q AS ISTREAM(SELECT s.k FROM s [RANGE 10], r [RANGE 10] "
                  "WHERE s.k = r.k AND s.v < 0)")  # fmt: skip
    else:
        p.execute(f"{STREAM} REGISTER QUERY q AS {QUERIES[name]}")
    sizes = []
    for stream, table in pushes(500_000, *("sr" if name == "join" else "s")):
        p.push(stream, table)
        sizes.append(len(running(p).dictionary))
    state = running(p).snapshot()
    written = sum(array.nbytes for part in state.values() for array in part.values())
    # A push, what the windows hold, and once more as much before it is looked for.
    assert max(sizes) < 4 * PUSH, sizes
    assert written < 20_000_000, written


def test_long_texts_are_looked_for_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred texts are few, and twenty megabytes."""
    monkeypatch.setattr(Dictionary, "least_new_size", 1 << 20)
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS ISTREAM(SELECT v FROM s [NOW] WHERE k = 'a')")
    sizes = []
    for number in range(200):
        p.push("s", [{"ts": number, "k": f"{number:0100000}", "v": 1}])
        sizes.append(running(p).dictionary.size)
    assert max(sizes) < 3 << 20, sizes


def test_rows_run_in_pieces_if_long_texts_are_made_of_theirs() -> None:
    """Each row makes 100 kB; short texts before them do not tell that."""
    chain = "||".join(["k"] * 100)
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS ISTREAM(SELECT {chain} AS made FROM s [NOW])")
    sizes: list[int] = []
    p.query("q").foreach_batch(lambda _, table: sizes.append(table.nbytes))
    for ts in range(10):
        p.push("s", [{"ts": ts, "k": "a", "v": 1}])
    for first in (10, 2010, 4010, 6010):
        p.push("s", [{"ts": first + n, "k": f"{first + n:01000}", "v": 1} for n in range(2000)])
    p.advance("s", 9000)
    assert sum(sizes) > 8000 * 100_000
    assert max(sizes) < 100_000_000, sizes


@pytest.mark.parametrize("condition", ["k = '{}'", "k LIKE '%{}'", "UPPER(k) <> '{}' || 'x'"])
def test_the_constants_of_queries_that_go_are_forgotten(
    condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dictionary, "is_always_due", True)
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY first AS SELECT v FROM s [NOW] WHERE k = 'b'")
    held = []
    for number in range(30):
        p.execute(f"REGISTER QUERY q AS SELECT v FROM s [NOW] WHERE {condition.format(f'text {number}')}")
        p.push("s", [{"ts": number, "k": "a", "v": 1}])
        p.execute("DROP QUERY q")
        p.push("s", [{"ts": number, "k": "a", "v": 1}])
        held.append(running(p).dictionary.held)
    assert held[-1] <= held[5] + 1, held


def test_a_constant_stays_as_long_as_one_query_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dictionary, "is_always_due", True)
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY own AS SELECT v FROM s [NOW] WHERE k = 'own'")
    for name in ("a", "b", "c"):
        p.execute(
            f"REGISTER QUERY {name} AS ISTREAM(SELECT v FROM s [NOW] WHERE k = 'same' AND v > {ord(name)})"
        )
    for ts, name in enumerate(("a", "b", "own")):
        p.push("s", [{"ts": ts, "k": f"{ts}", "v": 1000}]).execute(f"DROP QUERY {name}")
    p.push("s", [{"ts": 10 + n, "k": f"other {n}", "v": 1000} for n in range(50)])
    p.push("s", [{"ts": 100, "k": "same", "v": 7000}, {"ts": 101, "k": "own", "v": 1}]).advance("s", 200)
    assert p.query("c").to_arrow()["v"].to_pylist() == [7000]
    state = running(p).snapshot()
    resumed = RunningPipeline(running(p)._plan)
    resumed.restore(state)


def test_answers_that_nobody_has_read_keep_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dictionary, "is_always_due", True)
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS ISTREAM(SELECT k FROM s [NOW])")
    for number in range(100):
        p.push("s", [{"ts": number, "k": f"text {number}", "v": 1}])
    first = iter(p.query("q"))
    assert next(first)["k"].to_pylist() == ["text 0"]
    p.advance("s", 1000)
    assert running(p).dictionary.held >= 99
    assert p.query("q").to_arrow()["k"].to_pylist() == [f"text {number}" for number in range(1, 100)]
    p.push("s", [{"ts": 1000, "k": "x", "v": 1}]).advance("s", 1001)
    p.push("s", [{"ts": 1001, "k": "y", "v": 1}]).advance("s", 1002)
    assert running(p).dictionary.held < 5
    assert [change.values for change in p.query("q").changes()] == [("x",), ("y",)]


def test_rows_that_wait_outside_keep_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is thinned out by ON PRESSURE is copied, and waits for a reader."""
    monkeypatch.setattr(Dictionary, "is_always_due", True)
    p = kasen.Pipeline()
    p.execute(
        "SET input_rows = 100; SET output_rows = 20; REGISTER STREAM s (k VARCHAR, v BIGINT) TIMESTAMP BY ts "
        "ON PRESSURE SHED SAMPLE 0.5 FROM 'memory'; REGISTER QUERY q AS ISTREAM(SELECT k, v FROM s [NOW])"
    )
    for first in range(0, 400, 40):
        p.push("s", [{"ts": each, "k": f"text {each}", "v": each} for each in range(first, first + 40)])
    found = []
    p.advance("s", 1000)
    for table in p.query("q"):
        found += list(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
    assert 100 < len(found) < 400
    assert all(text == f"text {number}" for text, number in found)


def test_pushing_and_reading_threads_see_no_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dictionary, "is_always_due", True)
    p = kasen.Pipeline().execute(
        "REGISTER STREAM a (k VARCHAR, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER STREAM b (k VARCHAR, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER QUERY q AS ISTREAM(SELECT k, v FROM a [RANGE 3] UNION ALL SELECT k, v FROM b [RANGE 2])"
    )
    p.start()
    found: list[tuple[str, int]] = []

    def read() -> None:
        for table in p.query("q"):
            found.extend(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))

    def push(name: str, sign: int) -> None:
        for first in range(0, 4000, 20):
            numbers = np.arange(first, first + 20)
            if first % 40:
                p.push(name, [{"ts": int(n), "k": f"{name}{n}", "v": int(n) * sign} for n in numbers])
            else:
                texts = pa.array([f"{name}{n}" for n in numbers])
                p.push(name, pa.table({"ts": numbers, "k": texts, "v": numbers * sign}))

    reader = threading.Thread(target=read)
    pushing = [threading.Thread(target=push, args=each) for each in (("a", 1), ("b", -1))]
    for thread in (reader, *pushing):
        thread.start()
    for thread in pushing:
        thread.join()
    p.drain()
    reader.join()
    rest = p.query("q").to_arrow()
    found += zip(rest["k"].to_pylist(), rest["v"].to_pylist(), strict=True)
    assert len(found) == 8000
    assert all(text == f"{'a' if number > 0 or text == 'a0' else 'b'}{abs(number)}" for text, number in found)


def resident() -> float:
    """The process's memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def slope(seconds: float, warm_up: float) -> tuple[float, int]:
    """By how many MB a minute memory grows under unique texts at full speed, and how many rows came."""
    p = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS ISTREAM(SELECT k FROM s [RANGE 10])")
    p.query("q").foreach_batch(lambda *_: None)
    started, rows = time.monotonic(), 0
    times: list[float] = []
    sizes: list[float] = []
    for _, table in pushes(1 << 50, "s"):
        p.push("s", table)
        rows += len(table)
        now = time.monotonic() - started
        if now > warm_up:
            times.append(now)
            sizes.append(resident())
        if now > seconds:
            break
    return float(np.polyfit(times, sizes, 1)[0]) * 60, rows


@pytest.mark.soak
def test_ten_minutes_of_unique_texts_take_no_more_memory_than_one() -> None:
    grown, rows = slope(600, 60)
    print(f"{rows} rows, {grown:.2f} MB a minute")
    assert grown < 1
