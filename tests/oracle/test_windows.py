"""The oracle's windows: what each holds at an instant, and when it acts by itself."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.cql.bound import Now, PartitionRows, Range, Rows, Slide, Unbounded, Window
from tests.oracle.instants import Instant
from tests.oracle.windows import Arrival, contents, latest_bounds, next_event, reports


def history(*stamped: tuple[int, str] | tuple[Instant, str]) -> list[Arrival]:
    return [Arrival(at if isinstance(at, Instant) else Instant(at), (value,)) for at, value in stamped]


def held(window: Window, past: Sequence[Arrival], now: Instant | int) -> str:
    instant = now if isinstance(now, Instant) else Instant(now)
    known = [one for one in past if one.instant <= instant]
    return "".join(str(known[index].row[0]) for index in contents(window, known, instant))


ABC = history((1, "a"), (2, "b"), (4, "c"))


def test_unbounded_holds_every_tuple_so_far() -> None:
    assert [held(Unbounded(), ABC, now) for now in (0, 1, 3, 9)] == ["", "a", "ab", "abc"]


def test_now_holds_the_tuples_of_this_very_instant_which_leave_one_tick_later() -> None:
    past = history((Instant(1, 0, 0), "a"), (Instant(1, 0, 0), "b"), (Instant(1, 1, 0), "c"))
    assert held(Now(), past, Instant(1, 0, 0)) == "ab"
    assert held(Now(), past, Instant(1, 0, 1)) == ""
    assert held(Now(), past, Instant(1, 1, 0)) == "c"
    assert next_event(Now(), past[:2], Instant(1, 0, 0)) == Instant(1, 0, 1)
    assert next_event(Now(), past[:2], Instant(1, 0, 1)) is None


def test_range_is_inclusive_and_leaves_one_unit_later() -> None:
    assert [held(Range(2), ABC, now) for now in (1, 2, 3, 4, 5, 6, 7)] == [
        "a",
        "ab",
        "ab",
        "bc",
        "c",
        "c",
        "",
    ]
    assert next_event(Range(2), ABC[:2], Instant(2)) == Instant(4, 0, 0)
    assert next_event(Range(2), history((Instant(5, 3, 2), "x")), Instant(5, 3, 2)) == Instant(8, 0, 0)
    assert next_event(Range(2), ABC[:1], Instant(4)) is None


def test_slide_holds_the_half_open_window_before_the_latest_boundary() -> None:
    window = Slide(length=4, slide=2)  # [k*2 - 4, k*2)
    past = history((1, "a"), (2, "b"), (5, "c"))
    assert [held(window, past, now) for now in range(1, 11)] == (
        ["", "a", "a", "ab", "ab", "bc", "bc", "c", "c", ""]
    )


def test_slide_is_aligned_to_zero_also_below_it() -> None:
    assert [held(Slide(5, 5), history((-7, "a")), now) for now in (-6, -5, -1, 0)] == ["", "a", "a", ""]


def test_slide_reports_while_it_holds_something_and_once_when_it_became_empty() -> None:
    window = Slide(length=4, slide=2)
    past = history((1, "a"))
    reported = [
        now
        for now in range(12)
        if reports(window, [one for one in past if one.instant.ts <= now], Instant(now))
    ]
    assert reported == [2, 4, 6]
    assert not reports(window, past, Instant(2, 0, 1))
    assert next_event(window, past, Instant(1)) == Instant(2)
    assert next_event(window, past, Instant(5)) == Instant(6)
    assert next_event(window, past, Instant(6)) is None


def test_slide_skips_tuples_between_windows_that_are_shorter_than_the_slide() -> None:
    window = Slide(length=2, slide=5)  # [3, 5), [8, 10), ...
    assert held(window, history((2, "a"), (3, "b")), 5) == "b"
    assert next_event(window, history((2, "a")), Instant(2)) is None


def test_the_bounds_of_a_slide_are_those_of_its_latest_report() -> None:
    window = Slide(length=4, slide=2)
    past = history((1, "a"))
    bounds = [latest_bounds(window, past, Instant(now)) for now in (1, 2, 3, 4, 6, 8, 99)]
    assert bounds == [None, (-2, 2), (-2, 2), (0, 4), (2, 6), (2, 6), (2, 6)]
    assert latest_bounds(window, history((1, "a"), (99, "b")), Instant(100)) == (96, 100)


def test_rows_holds_the_last_n_and_with_a_slide_changes_at_its_multiples() -> None:
    past = history((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"))
    assert [held(Rows(2), past, now) for now in range(1, 6)] == ["a", "ab", "bc", "cd", "de"]
    assert [held(Rows(3, 2), past, now) for now in range(1, 6)] == ["", "ab", "ab", "bcd", "bcd"]


def test_tuples_overtaken_within_one_instant_are_never_in_the_window() -> None:
    assert held(Rows(1), history((1, "a"), (1, "b"), (1, "c")), 1) == "c"


def test_partition_by_holds_the_last_n_of_each_key_and_null_is_a_key() -> None:
    past = [
        Arrival(Instant(ts), (value, key))
        for ts, value, key in [(1, "a", 1), (2, "b", None), (3, "c", 1), (4, "d", None), (5, "e", 1)]
    ]
    assert held(PartitionRows((1,), 1), past, 4) == "cd"
    assert held(PartitionRows((1,), 2), past, 5) == "bcde"
