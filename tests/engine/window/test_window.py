"""Windows against their definitions, at every instant and every way of cutting time into calls."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kasen.cql import bound
from kasen.engine.batch import TICK_BITS, unpack_seq_tick
from kasen.engine.operator import Operator
from kasen.engine.window import window as windows
from kasen.engine.window.activity import WindowActivity, WindowReports
from kasen.engine.window.partition import PartitionWindow
from tests.engine.cuts import Change, all_cuts, batch, netted
from tests.oracle.instants import Instant
from tests.oracle.windows import Arrival, contents, latest_bounds, slide_reports

END = 40

WINDOWS: list[bound.Window] = [
    bound.Unbounded(),
    bound.Now(),
    bound.Range(0),
    bound.Range(3),
    bound.Range(100),
    bound.Slide(3, 1),
    bound.Slide(4, 2),
    bound.Slide(5, 3),
    bound.Slide(2, 5),
    bound.Rows(1),
    bound.Rows(3),
    bound.Rows(100),
    bound.Rows(5, 2),
    bound.Rows(2, 5),
    bound.Rows(3, 3),
    bound.PartitionRows((0,), 1),
    bound.PartitionRows((0,), 2),
    bound.PartitionRows((0, 1), 2),
]


def operator(window: bound.Window) -> Operator:
    match window:
        case bound.Unbounded():
            return windows.UnboundedWindow()
        case bound.Now():
            return windows.NowWindow(2)
        case bound.Range(length):
            return windows.RangeWindow(2, length)
        case bound.Slide(length, slide):
            return windows.SlideWindow(2, length, slide)
        case bound.Rows(count, slide):
            return windows.RowsWindow(2, count, slide)
        case bound.PartitionRows(keys, count):
            return PartitionWindow(2, keys, count)


def arrivals(seed: int) -> list[Change]:
    """A stream of two small columns, some NULL, with ties and gaps in time."""
    random_ = random.Random(seed)
    times = sorted(random_.choices(range(END - 8), k=random_.randrange(0, 30)))
    found: list[Change] = []
    for ts in times:
        seq = found[-1][1] + random_.randrange(2) * (1 << TICK_BITS) if found and found[-1][0] == ts else 0
        null = random_.choice([0, 0, 0, 1, 2])
        row = (0 if null == 1 else random_.randrange(3), 0 if null == 2 else random_.randrange(2), null)
        found.append((ts, seq, 1, row))
    return found


def instants(changes: list[Change]) -> list[Instant]:
    """Every instant worth looking at: those of tuples, a tick later, and the starts of all times."""
    found = {Instant(ts) for ts in range(END)}
    for ts, seq_tick, *_ in changes:
        for tick in (0, 1, 2):
            found.add(Instant(ts, seq_tick >> TICK_BITS, tick))
    return sorted(found)


def row_values(row: tuple[int, ...]) -> tuple[int | None, ...]:
    return tuple(None if row[-1] >> i & 1 else value for i, value in enumerate(row[:-1]))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_a_window_holds_what_its_definition_says_at_every_instant(window: bound.Window, seed: int) -> None:
    stream = arrivals(seed)
    found = netted(all_cuts(lambda: operator(window), [batch(stream, 2)], END, seed))
    held: Counter[tuple[int, ...]] = Counter()
    changes = {
        Instant(ts, seq_tick >> TICK_BITS, seq_tick & 0xFFFFFF): rows
        for (ts, seq_tick), rows in found.items()
    }
    assert set(changes) <= set(instants(stream))
    for now in instants(stream):
        for row, count in changes.get(now, Counter()).items():
            held[row] += count
        seen = [each for each in stream if Instant(each[0], each[1] >> TICK_BITS) <= now]
        history = [
            Arrival(Instant(ts, seq_tick >> TICK_BITS), row_values(row)) for ts, seq_tick, _, row in seen
        ]
        expected = Counter(seen[index][3] for index in contents(window, history, now))
        assert +held == expected, f"{window} at {now}, seed {seed}"


@pytest.mark.parametrize("window", [w for w in WINDOWS if isinstance(w, bound.Slide)], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_reports_come_when_the_window_is_not_empty_and_once_after(window: bound.Slide, seed: int) -> None:
    stream = arrivals(seed)
    source = batch(stream, 2)
    history = [Arrival(Instant(ts), (0,)) for ts, *_ in stream]

    def upto(ts: int) -> list[Arrival]:
        return [each for each in history if each.instant.ts <= ts]

    expected = [ts for ts in range(END) if slide_reports(window, upto(ts), Instant(ts))]
    touches = all_cuts(
        lambda: WindowReports(window.length, window.slide, with_bounds=False), [source], END, seed
    )
    assert [change[0] for change in touches] == expected
    rows = netted(
        all_cuts(lambda: WindowReports(window.length, window.slide, with_bounds=True), [source], END, seed)
    )
    shown: Counter[tuple[int, ...]] = Counter()
    for ts in range(stream[0][0] if stream else END, END):
        shown.update(rows.get((ts, 0), Counter()))
        bounds = latest_bounds(window, upto(ts), Instant(ts))
        assert +shown == Counter([(*bounds, 0) if bounds is not None else (0, 0, 3)])


def test_a_row_window_touches_only_when_a_slide_is_full() -> None:
    stream = batch([(ts, 0, 1, (ts, 0)) for ts in range(1, 8)], 1)
    found = all_cuts(lambda: WindowActivity(windows.RowsWindow(0, 3, 3)), [stream], 10, 1)
    assert [change[0] for change in found] == [3, 6]


def test_touches_of_a_range_are_its_arrivals_and_expiries_before_netting() -> None:
    # 1 leaves at 4, just when an equal one enters: the bag is the same, yet the window moved.
    stream = batch([(1, 0, 1, (7, 0)), (4, 0, 1, (7, 0))], 1)
    found = all_cuts(lambda: WindowActivity(windows.RangeWindow(0, 2)), [stream], 10, 1)
    assert [change[0] for change in found] == [1, 4, 7]


def test_sub_holds_seq_and_tick() -> None:
    seq, tick = unpack_seq_tick(batch([(1, (3 << TICK_BITS) | 2, 1, (0,))], 0).seq_tick)
    assert (seq.tolist(), tick.tolist()) == ([3], [2])
