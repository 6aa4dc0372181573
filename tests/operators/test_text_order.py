"""Labels compare as texts do, whenever they are asked for."""

from __future__ import annotations

import random

import pytest

from kasen.operators.dictionary import Dictionary

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
