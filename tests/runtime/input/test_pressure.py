"""The gate in front of a pipeline: what is admitted, what is refused, and that both add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kasen.connect.layout import Layout
from kasen.connect.memory.source import chunk_of
from kasen.errors import DataError
from kasen.runtime.input.feed import InputRows
from kasen.runtime.input.pressure import Gate, Punctuation, PushedRows, ShedLog, chosen, read_log
from kasen.types import BIGINT, Field, OnPressure, Pressure, Schema

LAYOUT = Layout("s", Schema((Field("ts", BIGINT),)), 0)
NEWEST = OnPressure(Pressure.NEWEST)
OLDEST = OnPressure(Pressure.OLDEST)


def pushed(first: int, count: int, stream: str = "s") -> PushedRows:
    positions = np.arange(first, first + count, dtype=np.int64)
    chunk = chunk_of(LAYOUT, {"ts": positions.tolist()}, first)
    data = np.stack([positions, np.zeros_like(positions)])
    return PushedRows(
        stream, InputRows(positions, np.ones_like(positions), data, positions), [], chunk, first
    )


def drained(gate: Gate, most: int = 1000) -> list[int]:
    out: list[int] = []
    while (item := gate.take(most)) is not None:
        if isinstance(item, PushedRows):
            out += item.rows.position.tolist()
    return out


def test_rows_pass_in_order_cut_as_asked() -> None:
    gate = Gate({"s": OnPressure(), "t": OnPressure()}, 100)
    assert gate.admit(pushed(0, 5)) is None
    gate.punctuate("s", 7)
    assert gate.admit(pushed(0, 2, "t")) is None
    first = gate.take(3)
    assert isinstance(first, PushedRows)
    assert first.rows.position.tolist() == [0, 1, 2]
    rest = gate.take(3)
    assert isinstance(rest, PushedRows)
    assert rest.rows.position.tolist() == [3, 4]
    assert gate.take(3) == Punctuation("s", 7)
    last = gate.take(3)
    assert isinstance(last, PushedRows)
    assert (last.stream, len(last)) == ("t", 2)
    assert not gate


def test_block_gives_back_what_finds_no_room() -> None:
    gate = Gate({"s": OnPressure()}, 4)
    rest = gate.admit(pushed(0, 6))
    assert rest is not None
    assert rest.rows.position.tolist() == [4, 5]
    assert drained(gate) == [0, 1, 2, 3]
    assert gate.admit(rest) is None
    assert drained(gate) == [4, 5]
    assert gate.streams["s"].refused == 0
    assert gate.streams["s"].admitted == 6


def test_newest_are_refused_and_counted() -> None:
    gate = Gate({"s": NEWEST}, 4)
    gate.admit(pushed(0, 3))
    assert gate.admit(pushed(3, 3)) is None
    assert drained(gate) == [0, 1, 2, 3]
    assert gate.streams["s"].shed == {"newest": 2}


def test_oldest_make_room() -> None:
    gate = Gate({"s": OLDEST, "t": OnPressure()}, 4)
    gate.admit(pushed(0, 3))
    gate.admit(pushed(0, 2, "t"))
    gate.punctuate("s", 3)
    gate.admit(pushed(3, 3))
    assert [len(item) if isinstance(item, PushedRows) else item.ts for item in list(gate._queue)] == [
        1,
        2,
        3,
        3,
    ]
    assert drained(gate) == [2, 0, 1, 3, 4, 5]
    assert gate.streams["s"].shed == {"oldest": 2}


def test_a_push_larger_than_the_room_keeps_its_newest() -> None:
    gate = Gate({"s": OLDEST}, 4)
    gate.admit(pushed(0, 2))
    gate.admit(pushed(2, 10))
    assert drained(gate) == [8, 9, 10, 11]
    assert gate.streams["s"].shed == {"oldest": 8}
    assert gate.streams["s"].admitted == 4


def test_a_sample_is_a_function_of_stream_position_and_seed() -> None:
    positions = np.arange(100_000, dtype=np.int64)
    kept = chosen("s", positions, 1, 0.1)
    assert abs(kept.mean() - 0.1) < 0.005
    backwards = chosen("s", positions[::-1], 1, 0.1)[::-1]
    assert (kept == backwards).all()
    assert (kept != chosen("s", positions, 2, 0.1)).any()
    assert (kept != chosen("t", positions, 1, 0.1)).any()
    assert chosen("s", positions, 1, 1.0).all()


def test_sampling_begins_when_half_the_room_is_taken() -> None:
    gate = Gate({"s": OnPressure(Pressure.SAMPLE, 0.5)}, 100, seed=3)
    gate.admit(pushed(0, 50))
    assert gate.streams["s"].refused == 0
    gate.admit(pushed(50, 60))
    kept = (np.flatnonzero(chosen("s", np.arange(50, 110), 3, 0.5)) + 50).tolist()
    assert drained(gate) == [*range(50), *kept]
    assert gate.streams["s"].shed == {"sample": 60 - len(kept)}
    gate.admit(pushed(200, 1000))
    assert gate.streams["s"].shed["full"] > 0
    assert gate.streams["s"].waiting == 100


@pytest.mark.parametrize("policy", [NEWEST, OLDEST, OnPressure(Pressure.SAMPLE, 0.3)])
def test_a_replay_refuses_the_same_rows(policy: OnPressure, tmp_path: Path) -> None:
    path = tmp_path / "shed.jsonl"
    random = np.random.default_rng(5)
    log = ShedLog(path)
    gate = Gate({"s": policy}, 50, 9, log)
    sizes = random.integers(1, 40, 60).tolist()
    ran, position = [], 0
    for size in sizes:
        gate.admit(pushed(position, size))
        position += size
        while random.random() < 0.4 and (item := gate.take(17)) is not None:
            assert isinstance(item, PushedRows)
            ran += item.rows.position.tolist()
    ran += drained(gate)
    log.close()
    told = gate.streams["s"]
    assert told.refused > 0
    assert told.admitted + told.refused == position
    assert told.admitted == len(ran)

    again = Gate({"s": policy}, 10**6, replay=read_log(path))
    for first in range(0, position, 7):
        again.admit(pushed(first, min(7, position - first)))
    assert drained(again) == ran
    assert again.streams["s"].refused == told.refused


def test_a_line_cut_off_by_a_crash_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shed.jsonl"
    log = ShedLog(path)
    log.write("s", np.array([1, 2, 3, 7]), "newest")
    log.close()
    with path.open("a") as file:
        file.write('{"stream": "s", "first": 9')
    assert read_log(path)["s"].tolist() == [1, 2, 3, 7]
    path.write_text("nonsense\n")
    with pytest.raises(DataError, match="line 1"):
        read_log(path)
