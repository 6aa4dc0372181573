"""A text has one code as long as anything holds it, and is forgotten afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np
import pytest

from kasen.engine.batch import I64
from kasen.engine.text.dictionary import FORGOTTEN, Dictionary, NewCodes
from kasen.errors import InternalError


def nothing() -> Iterable[I64]:
    return ()


def test_texts_that_nothing_holds_go_and_their_codes_are_dealt_again() -> None:
    dictionary = Dictionary()
    dictionary.constant("")
    held = dictionary.encode(["a", "b", "c", "d"])[1:3]
    dictionary.forget(lambda: [held])
    assert dictionary.decode(held) == ["b", "c"]
    assert (dictionary.held, len(dictionary)) == (3, 4)
    assert dictionary.text(1) == FORGOTTEN
    assert dictionary.encode(["e", "b", "f", "a"]).tolist() == [1, 2, 4, 5]


def test_constants_stay() -> None:
    dictionary = Dictionary()
    code = dictionary.constant("x")
    other = dictionary.encode(["y", "z"])
    dictionary.make_constant(other[1:])
    dictionary.forget(nothing)
    assert dictionary.text(code) == "x"
    assert dictionary.text(int(other[1])) == "z"
    assert dictionary.held == 2


def test_the_texts_of_an_array_are_held_as_long_as_a_view_of_it_is() -> None:
    dictionary = Dictionary()
    dictionary.constant("")
    whole = dictionary.encode(["a", "b", "c"])
    dictionary.keep(whole[:2])
    view = whole[1:].reshape(-1, 1)
    del whole
    dictionary.forget(nothing)
    assert dictionary.decode(view[:, 0]) == ["b", "c"]
    del view
    dictionary.forget(nothing)
    assert dictionary.held == 1


def test_arrays_that_are_gone_take_no_room() -> None:
    dictionary = Dictionary()
    for number in range(10_000):
        dictionary.keep(dictionary.encode([str(number)]))
    assert len(dictionary._kept) < 200


def test_looking_is_worth_it_when_as_many_came_as_are_held() -> None:
    dictionary = Dictionary()
    dictionary.least_new = 10  # type: ignore[misc]
    dictionary._look_at = 10
    texts = [str(number) for number in range(50)]
    held = dictionary.encode(texts)
    assert dictionary.is_due
    dictionary.forget(lambda: [held])
    dictionary.encode([f"x{number}" for number in range(49)])
    assert not dictionary.is_due
    dictionary.encode(["more"])
    assert dictionary.is_due


def test_looking_waits_longer_where_there_is_much_to_look_at() -> None:
    dictionary = Dictionary()
    dictionary.least_new = 10  # type: ignore[misc]
    dictionary.forget(lambda: [np.zeros(8000, np.int64)])
    dictionary.encode([str(number) for number in range(999)])
    assert not dictionary.is_due
    dictionary.encode(["more"])
    assert dictionary.is_due


@pytest.mark.parametrize("seed", range(5))
def test_labels_and_tables_by_code_follow_what_is_forgotten_and_comes(seed: int) -> None:
    random = Random(seed)
    dictionary = Dictionary()
    dictionary.constant("")
    newcomers, lengths = NewCodes(dictionary), np.zeros(4096, np.int64)
    held: dict[str, int] = {}
    for _ in range(60):
        texts = [f"{random.randrange(400)}" * random.randrange(1, 3) for _ in range(random.choice([1, 40]))]
        held |= zip(texts, dictionary.encode(texts).tolist(), strict=True)
        if random.random() < 0.4:
            held = {text: code for text, code in held.items() if random.random() < 0.5}
            words = [np.array([*held.values()], np.int64)]
            dictionary.forget(words.copy)
        if random.random() < 0.6:
            labels = dictionary.labels
            assert sorted(held) == sorted(held, key=lambda text: labels[held[text]])
            fresh = newcomers.take()
            lengths[fresh] = [len(dictionary.text(code)) for code in fresh]
            assert all(lengths[code] == len(text) for text, code in held.items())
        assert all(dictionary.code(text) == code for text, code in held.items())


def test_a_state_with_forgotten_texts_is_restored_code_by_code() -> None:
    one = Dictionary()
    one.constant("k")
    held = one.encode(["a", "ß", "c"])[1:2]
    one.forget(lambda: [held])
    one.encode(["\ud800"])
    other = Dictionary()
    other.constant("k")
    other.restore(one.snapshot())
    assert other.snapshot()["lengths"].tolist() == one.snapshot()["lengths"].tolist() == [1, 3, 2]
    assert other.decode(held) == ["ß"]
    one.forget(lambda: [held])
    again = Dictionary()
    again.restore(one.snapshot())
    assert one.snapshot()["lengths"].tolist() == [1, -1, 2]
    assert again.encode(["new", "newer"]).tolist() == [1, 3]


@pytest.mark.parametrize("own", [["k", "other"], ["k", "x", "ß"]])
def test_a_state_of_other_texts_is_refused(own: list[str]) -> None:
    one, other = Dictionary(), Dictionary()
    one.constant("k")
    held = one.encode(["a", "ß"])[1:]
    one.forget(lambda: [held])
    other.encode(own)
    with pytest.raises(InternalError):
        other.restore(one.snapshot())
