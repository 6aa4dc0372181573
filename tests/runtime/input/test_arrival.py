"""Streams on arrival time while the wall clock is set back and forward."""

from __future__ import annotations

import time

import pytest

import kasen
from kasen.runtime.input.arrival import ArrivalClock

HOUR = 3_600_000_000


def test_stamps_follow_the_clock_and_never_go_back() -> None:
    times = iter([100, 200, 50, 50, 201, 204, 204 + HOUR, 10, 205 + HOUR])
    clock = ArrivalClock(lambda: next(times))
    found = [clock() for _ in range(9)]
    after = 204 + HOUR
    assert found == [100, 200, 201, 202, 203, 204, after, after + 1, after + 2]


def test_a_clock_that_is_set_back_makes_no_row_late_and_stops_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = kasen.Pipeline().execute(
        "REGISTER STREAM s (k BIGINT) FROM 'memory'; REGISTER QUERY q AS ISTREAM(SELECT k FROM s);"
    )
    start = 1_700_000_000 * 10**9
    answers = []
    for number, hours in enumerate([0, -5, -5, 3, -2]):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: start + hours * HOUR * 1000)
        p.push("s", [{"k": number}])
        answers += [row for *_, (row,) in p.query("q").changes()]
    assert p.dead_letters == []
    assert answers == [0, 1, 2, 3]  # the last one's instant is not over


def test_idle_does_not_go_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    p = kasen.Pipeline().execute(
        "REGISTER STREAM a (ts BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER STREAM b (ts BIGINT) TIMESTAMP BY ts IDLE 60 SECONDS FROM 'memory';"
        "REGISTER QUERY q AS ISTREAM(SELECT ts FROM a);"
    )
    p.push("b", [{"ts": 0}]).push("a", [{"ts": 1}, {"ts": 2}])
    day = time.time_ns() + 24 * HOUR * 1000
    monkeypatch.setattr(time, "time_ns", lambda: day)
    monkeypatch.setattr(time, "time", lambda: day / 1e9)
    p.poll()
    assert p.query("q").changes() == []  # b may still bring something
