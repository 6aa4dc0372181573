"""Loops that go round for ever within one physical instant: what is said of them."""

from __future__ import annotations

from kasen.connect.decode import decode
from kasen.errors import ResourceError
from kasen.operators.batch import Batch, Bound
from kasen.operators.dictionary import Dictionary
from kasen.plan.physical import Plan

_SHOWN = 3


def loop_error(
    plan: Plan, stage: tuple[int, ...], out: list[Batch], at: Bound, most: int, dictionary: Dictionary
) -> ResourceError:
    """Names the loop and what ends with it, and shows the last tuples that went round."""
    members, below = set(stage), set(plan.downstream(stage))
    names = [name for name, step in plan.outputs if step in members]
    others = [name for name, step in plan.outputs if step in below - members]
    fault = [f"the loop of {', '.join(names)} still produces after {most} ticks of ts {at.ts}"]
    fault.append(
        f"  stopped: {', '.join(names + others)}; the other queries go on"
        if len(names + others) < len(plan.outputs)
        else f"  stopped: {', '.join(names + others)}"
    )
    for name, step in plan.outputs:
        if step in members and len(out[step]):
            fault += [f"  last of {name}: {line}" for line in _last(plan, name, out[step], dictionary)]
    return ResourceError("\n".join([*fault, "help: end the loop with a condition, or raise SET max_ticks"]))


def stopped_before(plan: Plan, steps: set[int]) -> ResourceError:
    """What is said after a restart: the tuples are gone."""
    names = ", ".join(name for name, step in plan.outputs if step in steps)
    return ResourceError(
        f"a loop was stopped before the checkpoint that this run went on from: {names}\n"
        "help: end the loop with a condition, or raise SET max_ticks; then start with a new checkpoint folder"
    )


def _last(plan: Plan, name: str, batch: Batch, dictionary: Dictionary) -> list[str]:
    query = plan.app.query(name)
    assert query is not None
    first = max(0, len(batch) - _SHOWN)
    tail = Batch(batch.ts[first:], batch.sub[first:], batch.diff[first:], batch.data[:, first:].copy())
    columns = [column.to_pylist() for column in decode(tail, query.schema, dictionary, plan.app.time).columns]
    lines = []
    for ts, seq, tick, _, *values in zip(*columns, strict=True):
        cells = ", ".join("NULL" if value is None else str(value) for value in values)
        lines.append(f"({cells}) at ts {ts}, seq {seq}, tick {tick}")
    return lines
