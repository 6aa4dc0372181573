"""Work for two cores: both results come back, errors too, whether the other side looks or sleeps."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from kasen.engine import parallel


def fail() -> None:
    raise ValueError("there")


@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_both_come_back_however_long_the_second_core_has_slept(pause: float) -> None:
    for i in range(100):
        assert parallel.both(lambda i=i: 2 * i, lambda i=i: i) == (2 * i, i)  # type: ignore[misc]
        time.sleep(pause)


@pytest.mark.parametrize("slow", ["there", "here"])
def test_a_side_that_is_late_is_waited_for(slow: str) -> None:
    def late() -> str:
        time.sleep(0.05)
        return "late"

    there, here = (late, str) if slow == "there" else (str, late)
    assert set(parallel.both(there, here)) == {"late", ""}


def test_an_error_on_either_side_is_raised_here_and_the_next_work_is_done() -> None:
    with pytest.raises(ValueError, match="there"):
        parallel.both(fail, int)
    with pytest.raises(ValueError, match="there"):
        parallel.both(int, fail)
    assert parallel.both(int, int) == (0, 0)


def test_an_interrupt_waits_for_what_the_second_core_has_begun() -> None:
    ended: list[bool] = []

    def work() -> None:
        timer.start()
        time.sleep(0.3)
        ended.append(True)
        raise ValueError("of the old task")

    here = threading.get_ident()
    timer = threading.Timer(0.1, signal.pthread_kill, (here, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            parallel.both(work, int)
        assert ended
        assert parallel.both(int, str) == (0, "")
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_items_that_are_shared_are_done_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_allowed", True)
    done: list[int] = []
    for rows in (0, 1 << 20):
        done.clear()
        parallel.share(done.extend, range(1000), rows)
        assert sorted(done) == list(range(1000))


def test_threads_that_both_want_the_second_core_get_their_own_results() -> None:
    wrong: list[int] = []

    def asked(number: int, i: int) -> object:
        return parallel.both(lambda: (number, i), lambda: number)

    def work(number: int) -> None:
        wrong.extend(i for i in range(300) if asked(number, i) != ((number, i), number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_a_middle_leaves_something_for_both() -> None:
    assert parallel.middle([5, 5]) == 1
    assert parallel.middle([1, 1, 1, 9]) == 3
    assert parallel.middle([9, 1, 1]) == 1
