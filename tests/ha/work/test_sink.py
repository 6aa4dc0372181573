"""The journal of a sink: what it says after a restart, and that it stays short."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kasen.ha.config import Neighbour
from kasen.ha.link.wire import BEGIN, LinkPiece
from kasen.ha.work import sink
from kasen.ha.work.sink import SinkWork

SCHEMA = pa.schema([(name, pa.int64()) for name in ("ts", "seq", "tick", "diff", "a")])
LINKS = tuple(Neighbour("n", "q", stream, ("127.0.0.1:1",)) for stream in ("s", "t"))


def opened(folder: Path) -> SinkWork:
    work = SinkWork(folder, LINKS)
    for link in LINKS:
        work.accept(link, SCHEMA)
    return work


def piece(ts: int) -> LinkPiece:
    batch = pa.record_batch([pa.array([ts], pa.int64())] * 5, schema=SCHEMA)
    return LinkPiece(batch, ts, ts + 1)


def test_a_journal_is_shortened_and_still_tells_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_JOURNAL_BYTES", 1000)
    work = opened(tmp_path)
    for ts in range(100):
        work.process([("s", piece(ts))])
    journal = tmp_path / "journal.jsonl"
    assert journal.stat().st_size < 1200
    work.close()
    with (tmp_path / "s.csv").open("a") as file:
        file.write("half a li")
    again = opened(tmp_path)
    assert again.positions == {"s": 100, "t": BEGIN}
    again.process([("s", piece(100))])
    again.close()
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[1:] == [",".join([str(ts)] * 5) for ts in range(101)]
