"""Functions on texts. Characters are Unicode's code points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kasen.engine.expr.scalar.like import like
from kasen.engine.expr.scalar.memo import Memo, Result, row_by_row
from kasen.engine.expr.vector import BOOL, Operation, Vector, dtype_of
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type, byte_length


def upper(text: str) -> str:
    """Each character's upper case, one for one."""
    return text.upper() if text.isascii() else "".join(map(_upper, text))


def _upper(character: str) -> str:
    """Python spells some out ('ß' as 'SS'); of those, the Greek with iota have a single title case."""
    if character == "ß":
        return "ẞ"
    for case in (character.upper(), character.title()):
        if len(case) == 1:
            return case
    return character


def lower(text: str) -> str:
    """Each character's lower case, one for one, whatever stands beside it (Python minds final sigmas)."""
    return text.lower() if text.isascii() else "".join(character.lower()[0] for character in text)


def substring(text: str, start: int, length: int | None = None) -> str:
    """The characters start ... start + length - 1, of which 1 ... n exist."""
    begin = max(start, 1) - 1
    if length is None:
        return text[begin:]
    return text[begin : max(start + max(length, 0), 1) - 1]


def replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def concat(*texts: str) -> str:
    return "".join(texts)


FUNCTIONS: dict[str, Callable[..., Result]] = {
    "length": len,
    "upper": upper,
    "lower": lower,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "substring": substring,
    "concat": concat,
    "replace": replace,
    "starts_with": str.startswith,
    "contains": str.__contains__,
    "strpos": lambda text, part: text.find(part) + 1,
    "like": like,
}


#: Functions whose result may have more bytes than their arguments. They fail if it has too many.
LENGTHENING = frozenset({"concat", "replace", "upper", "lower"})


def _bounded(op: str, most: int) -> Callable[..., Result]:
    """The function, which fails instead of making a text of more than `most` bytes."""
    function = FUNCTIONS[op]
    if op not in LENGTHENING:
        return function

    def bounded(*texts: str) -> Result:
        return function(*texts) if _size(op, texts) <= most else None

    return bounded


def _size(op: str, texts: Sequence[str]) -> int:
    """The bytes of the result, without making it: a few long texts may make one that fills the memory."""
    match op:
        case "concat":
            return sum(map(byte_length, texts))
        case "replace":
            text, old, new = texts
            more = byte_length(new) - byte_length(old)
            return byte_length(text) + (text.count(old) * more if old else 0)
    (text,) = texts
    return len(text) if text.isascii() else byte_length(str(FUNCTIONS[op](text)))


def text_function(
    op: str,
    result: Type,
    args: Sequence[Type],
    constants: Sequence[Vector | None],
    dictionary: Dictionary,
    failures: Failures,
) -> Operation:
    """The operation `op`; `constants` has those arguments that are the same for every row."""
    function = _bounded(op, dictionary.max_text_bytes)
    if any(constant is not None and constant[1] is not None for constant in constants):
        null = np.zeros(1, dtype_of(result)), np.ones(1, BOOL)
        return lambda *_: null
    varying = [index for index, constant in enumerate(constants) if constant is None]
    if len(varying) != 1 or args[varying[0]].kind is not Kind.VARCHAR:
        return row_by_row(function, args, result, dictionary, failures)
    place = varying[0]
    fixed = [_value(constant, type_, dictionary) for constant, type_ in zip(constants, args, strict=True)]
    before, after = fixed[:place], fixed[place + 1 :]
    memo = Memo(lambda text: function(*before, text, *after), result, dictionary, failures)
    return lambda *vectors: memo(vectors[place])


def _value(constant: Vector | None, type_: Type, dictionary: Dictionary) -> object:
    """What a constant argument holds; None in the varying argument's place."""
    if constant is None:
        return None
    value = constant[0].item()
    return dictionary.text(value) if type_.kind is Kind.VARCHAR else value
