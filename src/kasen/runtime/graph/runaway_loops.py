"""Loops that go round for ever within one physical instant: what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.connect.decode import decode
from kasen.engine.batch import Batch, Frontier
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import ResourceError
from kasen.types import Schema, Type

_SHOWN = 3

#: The queries of a pipeline: the name of each, its step, and its columns.
Queries = Sequence[tuple[str, int, Schema]]


def loop_error(
    queries: Queries,
    stage: tuple[int, ...],
    below: set[int],
    out: list[Batch],
    at: Frontier,
    most: int,
    dictionary: Dictionary,
    time: Type,
) -> ResourceError:
    """Names the loop and what ends with it, and shows the last tuples that went round."""
    members = set(stage)
    names = [name for name, step, _ in queries if step in members]
    others = [name for name, step, _ in queries if step in below - members]
    fault = [f"the loop of {', '.join(names)} still produces after {most} ticks of ts {at.ts}"]
    fault.append(
        f"  stopped: {', '.join(names + others)}; the other queries go on"
        if len(names + others) < len(queries)
        else f"  stopped: {', '.join(names + others)}"
    )
    for name, step, schema in queries:
        if step in members and len(out[step]):
            fault += [f"  last of {name}: {line}" for line in _last(schema, out[step], dictionary, time)]
    return ResourceError("\n".join([*fault, "help: end the loop with a condition, or raise SET max_ticks"]))


def stopped_before(queries: Queries, steps: set[int]) -> ResourceError:
    """What is said after a restart: the tuples are gone."""
    names = ", ".join(name for name, step, _ in queries if step in steps)
    return ResourceError(
        f"a loop was stopped before the checkpoint that this run went on from: {names}\n"
        "help: end the loop with a condition, or raise SET max_ticks; then start with a new checkpoint folder"
    )


def _last(schema: Schema, batch: Batch, dictionary: Dictionary, time: Type) -> list[str]:
    first = max(0, len(batch) - _SHOWN)
    tail = Batch(batch.ts[first:], batch.seq_tick[first:], batch.diff[first:], batch.data[:, first:].copy())
    columns = [column.to_pylist() for column in decode(tail, schema, dictionary, time).columns]
    lines = []
    for ts, seq, tick, _, *values in zip(*columns, strict=True):
        cells = ", ".join("NULL" if value is None else str(value) for value in values)
        lines.append(f"({cells}) at ts {ts}, seq {seq}, tick {tick}")
    return lines
