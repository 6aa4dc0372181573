"""Readers that stall and crawl: no result of an admitted row is lost, and what was refused was counted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kasen
from kasen.runtime.input.pressure import read_log

JOIN = """
SET output_rows = {room};
SET input_rows = {queue};
REGISTER STREAM a (ts BIGINT, k BIGINT, x BIGINT) TIMESTAMP BY ts {policy} FROM 'memory';
REGISTER STREAM b (ts BIGINT, k BIGINT, y BIGINT) TIMESTAMP BY ts {policy} FROM 'memory';
REGISTER QUERY q AS ISTREAM(SELECT a.k, a.x, b.y FROM a [ROWS 50], b [ROWS 50] WHERE a.k = b.k);
"""
ROWS = 6000
Pairs = Counter[tuple[int, int, int, int]]


def pieces(stream: str, seed: int) -> list[tuple[str, pa.Table]]:
    """A stream's rows: its times ascend, keys are few, the last column numbers the rows."""
    random = np.random.default_rng(seed)
    value = {"a": "x", "b": "y"}[stream]
    columns = {"ts": np.arange(ROWS), "k": random.integers(0, 5, ROWS), value: np.arange(ROWS)}
    table = pa.table(columns)
    cuts = [0, *np.sort(random.choice(ROWS, 60, replace=False)).tolist(), ROWS]
    return [(stream, table.slice(i, j - i)) for i, j in pairwise(cuts) if j > i]


def in_turn() -> list[tuple[str, pa.Table]]:
    """Both streams' pieces, by the time they start at."""
    both = pieces("a", 1) + pieces("b", 2)
    return sorted(both, key=lambda piece: (piece[1].column("ts")[0].as_py(), piece[0]))


def pairs(tables: list[pa.Table]) -> Pairs:
    found: Pairs = Counter()
    for table in tables:
        found.update(zip(*(table.column(name).to_pylist() for name in ("ts", "k", "x", "y")), strict=True))
    return found


def expected(refused: dict[str, set[int]]) -> Pairs:
    """The answer for the rows that were admitted, from a pipeline that nothing presses."""
    p = kasen.Pipeline().execute(JOIN.format(room=10**8, queue=10**8, policy=""))
    for stream in ("a", "b"):
        whole = pa.concat_tables([table for name, table in in_turn() if name == stream])
        kept = [row not in refused.get(stream, set()) for row in range(ROWS)]
        p.push(stream, whole.filter(pa.array(kept)))
    p.drain()
    return pairs([p.query("q").to_arrow()])


def run(policy: str, path: Path, most_waiting: list[int]) -> tuple[Pairs, kasen.Pipeline]:
    """Pushes everything while the reader first stalls and then crawls."""
    text = JOIN.format(room=2000, queue=500, policy=policy)
    p = kasen.Pipeline(shed_log=path).execute(text).start()
    tables: list[pa.Table] = []

    def read() -> None:
        for changes in p.query("q"):
            time.sleep(0.0005 if tables else 0.3)
            most_waiting.append(p.query("q").waiting)
            tables.append(changes)

    reader = threading.Thread(target=read)
    reader.start()
    for stream, table in in_turn():
        p.push(stream, table)
    p.drain()
    reader.join(60)
    assert not reader.is_alive()
    tables.append(p.query("q").to_arrow())
    return pairs(tables), p


@pytest.mark.parametrize("policy", ["BLOCK", "SHED NEWEST", "SHED OLDEST", "SHED SAMPLE 0.3"])
def test_a_reader_that_stalls_and_crawls_gets_every_result(policy: str, tmp_path: Path) -> None:
    log = tmp_path / "shed.jsonl"
    most_waiting: list[int] = []
    found, p = run(f"ON PRESSURE {policy}", log, most_waiting)
    refused = {name: set(rows.tolist()) for name, rows in read_log(log).items()}
    for stream, admission in p.pressure.items():
        assert admission.refused == len(refused.get(stream, ()))
        assert admission.admitted + admission.refused == ROWS
        assert admission.waiting == 0
    assert bool(refused) == (policy != "BLOCK")
    assert found == expected(refused)
    # One run may bring more than was foreseen, but not many times the room.
    assert max(most_waiting) < 3 * 2000


def test_a_replay_with_the_log_gives_the_same_answer(tmp_path: Path) -> None:
    log = tmp_path / "shed.jsonl"
    found, _ = run("ON PRESSURE SHED NEWEST", log, [])
    text = JOIN.format(room=10**6, queue=10**6, policy="ON PRESSURE SHED NEWEST")
    p = kasen.Pipeline(replay=log).execute(text)
    for stream, table in in_turn():
        p.push(stream, table)
    p.drain()
    assert pairs([p.query("q").to_arrow()]) == found


def test_a_push_that_waits_in_vain_says_whom_it_waits_for() -> None:
    text = JOIN.format(room=10, queue=10, policy="ON PRESSURE BLOCK")
    p = kasen.Pipeline(patience=0.2).execute(text)

    def push_all() -> None:
        for stream, table in in_turn():
            p.push(stream, table)

    with pytest.raises(kasen.ResourceError, match=r"nobody has read q for 0.2 s.*SET output_rows"):
        push_all()
    told = p.pressure
    assert sum(each.shed["waited in vain"] for each in told.values()) > 0
    # The reader comes after all: nothing of what was admitted is lost.
    before = p.query("q").to_arrow()
    assert len(before) > 0
    p.drain()
    assert sum(each.waiting for each in p.pressure.values()) == 0


def test_a_file_source_waits_for_its_reader(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{i}" for i in range(5000))
    (tmp_path / "s.csv").write_text(f"ts,v\n{rows}\n")
    p = kasen.Pipeline(base=tmp_path, batch=100).execute(
        """
        SET output_rows = 300;
        REGISTER STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
        REGISTER QUERY q AS ISTREAM(SELECT v FROM s [NOW]);
        """
    )
    p.start()
    due = time.monotonic() + 60
    while p.query("q").waiting < 300 and time.monotonic() < due:
        time.sleep(0.01)
    time.sleep(0.5)  # in which a source that does not wait would go on
    assert 300 <= p.query("q").waiting <= 500
    assert sum(len(changes) for changes in p.query("q")) == 5000


def test_a_discarded_query_presses_nobody() -> None:
    p = kasen.Pipeline(patience=0.2).execute(JOIN.format(room=10, queue=10, policy=""))
    p.query("q").discard()
    for stream, table in in_turn():
        p.push(stream, table)
    p.drain()
    assert p.query("q").waiting == 0


def test_a_reader_may_push_what_it_read() -> None:
    p = kasen.Pipeline().execute(
        """
        REGISTER STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';
        REGISTER STREAM back (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';
        REGISTER QUERY q AS ISTREAM(SELECT v FROM s [NOW]);
        REGISTER QUERY r AS ISTREAM(SELECT v FROM back [NOW]);
        """
    )

    def feed_back(_: int, changes: pa.Table) -> None:
        p.push("back", changes.select(["ts", "v"]))

    p.query("q").foreach_batch(feed_back)
    p.advance("back", 0)
    for ts in range(20):
        p.push("s", [{"ts": ts, "v": ts}])
        p.advance("back", ts + 1)
    p.drain()
    assert p.query("r").to_arrow().num_rows + len(p.dead_letters) == 20
