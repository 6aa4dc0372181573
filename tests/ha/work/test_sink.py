"""The journal of a sink: what it says after a restart, that it stays short, and that older ones are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kasen.ha.config import Neighbour
from kasen.ha.link.wire import BEGIN, LinkPiece, digest, pack, unpack
from kasen.ha.work import sink
from kasen.ha.work.sink import OutputFault, SinkWork

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


def test_a_sink_that_was_killed_before_it_noted_an_answer_begins_anew(tmp_path: Path) -> None:
    SinkWork(tmp_path, LINKS).close()  # and made no file
    work = opened(tmp_path)
    work.process([("s", piece(0))])
    work.close()
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    again = opened(tmp_path)
    again.process([("s", piece(0))])
    again.close()
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 2


def test_a_journal_from_before_checksums_resumes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = opened(tmp_path)
    for ts in range(3):
        work.process([("s", piece(ts))])
    work.close()
    (tmp_path / "t.csv").touch()  # no line tells of it, as nothing came
    journal = tmp_path / "journal.jsonl"
    old = []
    for line in journal.read_bytes().splitlines():
        entry = unpack(line.partition(b"\t")[0])
        del entry["checksum"]
        if entry["length"]:
            old.append(pack(entry) + b"\t" + digest(pack(entry)).encode() + b"\n")
    journal.write_bytes(b"".join(old))
    again = opened(tmp_path)
    assert again.positions == {"s": 3, "t": BEGIN}
    assert f"{tmp_path / 's.csv'} was written before Kasen had checksums" in caplog.text
    again.process([("s", piece(3))])
    again.close()
    content = (tmp_path / "s.csv").read_bytes()
    assert content.splitlines()[1:] == [b",".join([b"%d" % ts] * 5) for ts in range(4)]
    (tmp_path / "s.csv").write_bytes(content.replace(b"0", b"1"))
    with pytest.raises(OutputFault, match=r"s\.csv is damaged"):
        opened(tmp_path)
