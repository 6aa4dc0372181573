"""Apps of tests/cases, mutated, and run: bound, planned, explained, fed with rows, changed while data flows.

An outcome is fine if it is an answer or a KasenError, and a wrong text is told with its place. Run it in a
process of its own (`python -m tests.fuzz.queries SEED SECONDS NOTES`): it limits its memory, and notes each
text before it tries it, so that whoever waits knows which one a dead process had in hand.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import kasen
from kasen.cql.bound import Input
from kasen.errors import InternalError, KasenError, QueryError
from kasen.types import Kind
from tests.cases_format import CASES
from tests.cql.test_fuzz import MUTATIONS, Tokens, pieces

#: So many texts are tried at least, however slow the machine is.
LEAST = 200
#: What one text may take; a kernel that is not in the cache is compiled first, which takes its time.
SECONDS = 90
MEMORY = 12 << 30
#: A join of everything with everything is slow by right: few rows, and few at a time.
_ROWS = 4

_FROM_FILE = re.compile(r"FROM\s+'(?:csv|json|parquet)'\s*(?:OPTIONS\s*\([^)]*\))?", re.IGNORECASE)
_TEXTS = ["", "a", "b", "é", "x" * 50, "5", "2026-01-01", "%", "\ud800", "\0"]


class _TooLong(BaseException):
    """The time of one text is over; no `except Exception` may take it for a fault of its own."""


def apps() -> list[str]:
    """The apps of the cases, with inputs that can be pushed."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(CASES.rglob("*.cql"))]
    return [_FROM_FILE.sub("FROM 'memory'", text.partition("/*#")[0]) for text in texts]


def mutated(rng: random.Random, app: str) -> str:
    tokens: Tokens = pieces(app)
    kinds, weights = zip(*MUTATIONS, strict=True)
    for kind in rng.choices(kinds, weights, k=rng.choice((0, 1, 1, 2))):
        # What is not a mutation of these tokens is a query of its own: it reads the streams it finds.
        tokens = kind(rng, tokens or [" "])
    return "".join(tokens)


def _value(rng: random.Random, kind: Kind) -> object:
    if rng.random() < 0.1:
        return rng.choice([None, "odd", -1, 2**63, 1e308, True, "\ud800"])
    match kind:
        case Kind.VARCHAR:
            return rng.choice(_TEXTS)
        case Kind.BOOLEAN:
            return rng.random() < 0.5
        case Kind.DOUBLE:
            return rng.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), 1e308])
        case Kind.TIMESTAMP:
            return rng.choice(["2026-01-01 00:00:00", "1970-01-01", "9999-12-31 23:59:59"])
    return rng.choice([0, 1, 2, 3, -1, 2**31 - 1, 2**31, 2**63 - 1])


def _rows(rng: random.Random, input_: Input, ts: int) -> list[dict[str, object]]:
    rows = []
    for number in range(rng.randint(0, _ROWS)):
        row = {field.name: _value(rng, field.type.kind) for field in input_.schema}
        if input_.timestamp is not None:
            row[input_.schema[input_.timestamp].name] = ts + number
        rows.append(row)
    return rows


def _feed(rng: random.Random, p: kasen.Pipeline, ts: int) -> None:
    for one in p.app.inputs:
        p.push(one.name, _rows(rng, one, ts))
    for one in p.app.inputs:
        if one.timestamp is not None:
            p.advance(one.name, ts + 2 * _ROWS)


def _is_pushed(p: kasen.Pipeline) -> bool:
    return all(one.connector.format == "memory" for one in p.app.inputs)


def run(rng: random.Random, texts: list[str]) -> bool:
    """The first text as an app, the others as changes while data flows. Whether the app was right."""
    p = kasen.Pipeline()
    try:
        p.execute(texts[0])
        p.explain()
        if not _is_pushed(p):
            return True
        _feed(rng, p, 1)
    except KasenError as error:
        check(error)
        return False
    for number, text in enumerate(texts[1:], 1):
        try:
            p.execute(text)
        except KasenError as error:
            check(error)
        if not _is_pushed(p):
            return True  # no row had come, so that the text could still add to the app
        _feed(rng, p, 1 + 100 * number)  # whatever was asked for, the run goes on
    for query in p.app.queries:
        if query.name.lower() in p._queries:
            p.query(query.name).changes()
    try:
        p.drain()
    except KasenError as error:
        check(error)
    return True


def check(error: KasenError) -> None:
    assert not isinstance(error, InternalError), error
    str(error).encode()  # it can be printed
    if isinstance(error, QueryError) and error.text:
        assert error.place is not None, error


def main(seed: int, seconds: float, notes: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _stop)
    everything = apps()
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    tried = right = 0
    while time.monotonic() < end or tried < LEAST:
        texts = [mutated(rng, rng.choice(everything)) for _ in range(rng.choice((1, 1, 2, 3)))]
        notes.write_text(repr(texts), encoding="utf-8", errors="backslashreplace")
        signal.alarm(SECONDS)
        right += run(random.Random(rng.random()), texts)
        signal.alarm(0)
        tried += len(texts)
    print(f"{tried} texts, {right} apps ran")


def _stop(_: int, __: FrameType | None) -> None:
    raise _TooLong(f"a text took more than {SECONDS} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
