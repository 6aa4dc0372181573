"""ISTREAM, DSTREAM, RSTREAM and delays on small tables."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.engine import parallel
from kasen.engine.batch import END, ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT, double_bits, ones
from kasen.engine.stream.delay import Delay
from kasen.engine.stream.streamify import IStreamDStream, PeriodicRStream, RStream
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from tests.engine.cuts import Change, all_cuts, batch, changes_of


def integers(columns: int = 1) -> ValueOrder:
    return ValueOrder(np.full(columns, ORDER_INTEGER, np.int64), Dictionary())


CHANGES = batch(
    [
        (1, 0, 1, (5, 0)),
        (2, 0, -1, (5, 0)),
        (2, 0, 1, (5, 0)),
        (3, 0, 1, (4, 0)),
        (3, 0, 2, (3, 0)),
        (4, 0, -1, (5, 0)),
    ],
    1,
)


def test_istream_is_what_entered_after_netting_in_value_order() -> None:
    found = all_cuts(lambda: IStreamDStream(integers(), 1, netted=False), [CHANGES], 6, 0)
    assert found == [(1, 0, 1, (5, 0)), (3, 0, 1, (3, 0)), (3, 0, 1, (3, 0)), (3, 0, 1, (4, 0))]


@pytest.mark.parametrize("cores", [1, 2])
def test_istream_sorts_what_enters_at_an_instant_unless_it_is_sorted(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random batches in which everything enters, some sorted already, against Python's sort."""
    monkeypatch.setattr(parallel, "worth", lambda _: cores == 2)
    texts = ["m", "b", "z", "a", "k"]
    dictionary = Dictionary()
    codes = dictionary.encode(texts).tolist()
    doubles = double_bits(np.array([-2.5, 0.0, 1.5, np.nan])).tolist()
    order = ValueOrder(np.array([ORDER_INTEGER, ORDER_DOUBLE, ORDER_TEXT], np.int64), dictionary)
    for seed in range(60):
        random = np.random.default_rng(seed)
        times = sorted(random.integers(0, 9, 30).tolist())
        values = zip(*(random.choice(each, 30).tolist() for each in ([-1, 1], doubles, codes)), strict=True)
        rows = [(ts, 0, 1, (*row, 0)) for ts, row in zip(times, values, strict=True)]

        def place(change: Change) -> tuple[int, int, int, str]:
            ts, _, _, (whole, double, code, _) = change
            return ts, whole, doubles.index(double), texts[codes.index(code)]

        expected = sorted(rows, key=place)
        given = batch(expected if seed % 2 else rows, 3)
        given.diff = ones(len(rows))
        assert changes_of(IStreamDStream(order, 1, netted=True).process([given], END)) == expected, seed


def test_dstream_is_what_left_as_tuples_of_a_stream() -> None:
    found = all_cuts(lambda: IStreamDStream(integers(), -1, netted=False), [CHANGES], 6, 0)
    assert found == [(4, 0, 1, (5, 0))]


def test_rstream_is_the_whole_bag_whenever_it_is_touched() -> None:
    touches = batch([(2, 0, 1, (0,)), (3, 0, 1, (0,)), (5, 0, 1, (0,))], 0)
    found = all_cuts(lambda: RStream(1, integers()), [CHANGES, touches], 7, 0)
    assert [(ts, row[0]) for ts, _, _, row in found] == [
        (2, 5),
        (3, 3),
        (3, 3),
        (3, 4),
        (3, 5),
        (5, 3),
        (5, 3),
        (5, 4),
    ]


def test_rstream_every_d_fires_at_multiples_of_d_from_the_beginning() -> None:
    found = all_cuts(lambda: PeriodicRStream(1, integers(), 2), [CHANGES], 7, 0)
    assert [(ts, row[0]) for ts, _, _, row in found] == [
        (2, 5),
        (4, 3),
        (4, 3),
        (4, 4),
        (6, 3),
        (6, 3),
        (6, 4),
    ]


def test_a_delay_moves_tuples_by_its_length_or_by_a_tick() -> None:
    stream = batch([(1, 0, 1, (5, 0)), (1, 1, 1, (6, 0)), (3, 0, 1, (7, 0))], 1)
    later = all_cuts(lambda: Delay(1, 4), [stream], 20, 0)
    assert [(ts, seq_tick) for ts, seq_tick, *_ in later] == [(5, 0), (5, 1), (7, 0)]
    ticks = all_cuts(lambda: Delay(1, None), [stream], 20, 0)
    assert [(ts, seq_tick) for ts, seq_tick, *_ in ticks] == [(1, 1), (1, 2), (3, 1)]


def test_value_order_is_null_first_then_by_type() -> None:
    dictionary = Dictionary()
    codes = dictionary.encode(["b", "a", "Z", "é"])
    doubles = double_bits(np.array([1.5, -2.0, np.nan, np.inf]))
    orders = np.array([ORDER_TEXT, ORDER_DOUBLE], np.int64)
    texts = batch([(1, 0, 1, (int(code), 0, 0)) for code in codes] + [(1, 0, 1, (0, 0, 1))], 2)
    found = changes_of(ValueOrder(orders, dictionary).sort(texts))
    assert [None if row[-1] else dictionary.text(row[0]) for *_, row in found] == [None, "Z", "a", "b", "é"]
    numbers = batch([(1, 0, 1, (0, int(bits), 0)) for bits in doubles], 2)
    sorted_ = ValueOrder(orders, dictionary).sort(numbers)
    assert sorted_.data[1].view(np.float64).tolist()[:3] == [-2.0, 1.5, np.inf]


def test_labels_follow_the_order_of_texts_however_they_come() -> None:
    dictionary = Dictionary()
    words = [f"w{i * 7919 % 1000:03}" for i in range(1000)]
    for word in words[:500]:
        dictionary.code(word)
    dictionary.encode(words[500:])
    by_label = np.argsort(dictionary.labels)
    assert [dictionary.text(code) for code in by_label.tolist()] == sorted(words)
    again = Dictionary()
    again.restore(dictionary.snapshot())
    assert again.texts == dictionary.texts


def test_labels_are_dealt_anew_when_there_is_no_room_between_neighbours() -> None:
    dictionary = Dictionary()
    words = ["a", "b"] + ["a" + "a" * i + "b" for i in range(1, 80)]
    for word in words:
        dictionary.code(word)
    by_label = np.argsort(dictionary.labels)
    assert [dictionary.text(code) for code in by_label.tolist()] == sorted(words)
