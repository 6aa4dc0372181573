"""Labels compare as texts do, whenever they are asked for."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

from kasen.engine.text.dictionary import Dictionary

LETTERS = "aZ é河\U0001f600\ue000"


def check(dictionary: Dictionary) -> None:
    labels = dictionary.labels.tolist()
    assert len(labels) == len(dictionary)
    by_label = sorted(range(len(labels)), key=labels.__getitem__)
    by_text = sorted(range(len(labels)), key=lambda code: dictionary.text(code).encode())
    assert by_label == by_text
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("seed", range(10))
def test_texts_met_one_by_one_and_in_bulk(seed: int) -> None:
    rng = random.Random(seed)
    dictionary = Dictionary()
    for _ in range(60):
        count = rng.choice([1, 2, 300])
        dictionary.encode(["".join(rng.choices(LETTERS, k=rng.randint(0, 6))) for _ in range(count)])
        if rng.random() < 0.7:
            check(dictionary)
    check(dictionary)


def test_always_between_the_same_two_until_there_is_no_room() -> None:
    dictionary = Dictionary()
    dictionary.encode(["a", *(f"z{each:05}" for each in range(3000))])
    check(dictionary)
    for count in range(100):
        dictionary.code("b" * (200 - count))
        check(dictionary)


def test_ascending_and_descending_texts() -> None:
    for step in (1, -1):
        dictionary = Dictionary()
        numbers = list(range(10_000, 12_500))[::step]
        for at in range(0, len(numbers), 7):
            dictionary.encode([str(number) for number in numbers[at : at + 7]])
            dictionary.labels  # noqa: B018
        check(dictionary)


def test_labels_that_were_handed_out_stay_as_they_are() -> None:
    dictionary = Dictionary()
    dictionary.encode([f"m{each:03}" for each in range(100)])
    held = dictionary.labels
    before = held.copy()
    for more in (["a"], [f"b{each:03}" for each in range(50)], ["m000a"]):  # find their place; all dealt anew
        dictionary.encode(more)
        check(dictionary)
        assert np.array_equal(held, before)


def test_a_text_that_comes_while_labels_are_made_is_in_the_next_ones() -> None:
    class Slow(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            begun.set()
            goes_on.wait(0.2)
            return str.__lt__(self, other)

    begun, goes_on = threading.Event(), threading.Event()
    dictionary = Dictionary()
    dictionary.encode([Slow("b"), Slow("a")])
    made: list[int] = []
    asking = threading.Thread(target=lambda: made.extend(dictionary.labels.tolist()))
    asking.start()
    assert begun.wait(60)
    pushing = threading.Thread(target=dictionary.encode, args=(["d", "c"],))
    pushing.start()
    pushing.join(0.1)
    goes_on.set()
    asking.join(60)
    pushing.join(60)
    assert made[1] < made[0]
    check(dictionary)


def test_texts_that_come_at_once_get_codes_of_their_own() -> None:
    class Slow(dict[str, int]):
        def __setitem__(self, text: str, code: int) -> None:
            time.sleep(0.05)
            super().__setitem__(text, code)

    dictionary = Dictionary()
    dictionary._codes = Slow()
    threads = [threading.Thread(target=dictionary.code, args=(text,)) for text in "abab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert sorted(dictionary.texts) == ["a", "b"]
    assert [dictionary.code(text) for text in dictionary.texts] == [0, 1]
