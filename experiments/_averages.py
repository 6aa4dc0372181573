"""The test query of [DTS] (figure 7), as a reconstruction: the paper does not print its text.

Averages by id, computed by 1, 2 or 4 sub-queries that share the ids among them. All averages are united and
fed back to the input one tick later (the outer loop: uni_input, avg_k, all_avg_delay), where they are marked,
so that they do not trigger new ones. Each sub-query also feeds its own averages back (the inner loop): it
passes on an average only if it is not the one it passed on last.

Cut open, the loops end in streams that get from outside what would have been fed back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kasen.cql.bind.app import bind_text
from kasen.engine.batch import I64, Batch, Frontier, concat
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.logical import Scan
from kasen.plan.lower.instantiate import Context, instantiate
from kasen.plan.physical import Plan, instant_order, plan_app
from kasen.runtime.graph.graph import Graph
from kasen.runtime.graph.loop import Loop
from kasen.runtime.local import DEFAULT_BATCH

IDS = 4
#: So many tuples are an epoch, as in the local engine.
EPOCH = DEFAULT_BATCH
_STREAM = "REGISTER STREAM {} (id BIGINT, val {}) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 'none.csv');"


def text(subqueries: int, *, cut: bool) -> str:
    """The app. `cut` opens its loops."""
    parts = range(subqueries)
    lines = [_STREAM.format("input", "BIGINT")]
    if cut:
        lines += [_STREAM.format(name, "DOUBLE") for name in ("fed_all", *(f"fed_{k}" for k in parts))]
    fed_all = "fed_all" if cut else "all_avg_delay"
    lines.append(
        "REGISTER QUERY uni_input AS ISTREAM(SELECT id, CAST(val AS DOUBLE) AS val, 0 AS fed FROM input [NOW]"
        f" UNION ALL SELECT id, val, 1 AS fed FROM {fed_all} [NOW]);"
    )
    for k in parts:
        last = f"fed_{k}" if cut else f"avg_{k}"
        lines.append(
            f"REGISTER QUERY avg_{k} AS ISTREAM(SELECT a.id, a.val FROM (SELECT id, AVG(val) AS val"
            f" FROM uni_input [UNBOUNDED] WHERE fed = 0 AND id % {subqueries} = {k} GROUP BY id) AS a"
            f" WHERE NOT EXISTS (SELECT 1 FROM {last} [PARTITION BY id ROWS 1] AS l"
            " WHERE l.id = a.id AND l.val = a.val))<Now>;"
        )
    union = " UNION ALL ".join(f"SELECT id, val FROM avg_{k} [NOW]" for k in parts)
    lines.append(f"REGISTER QUERY all_avg_delay AS ISTREAM({union})<Now>;")
    return "\n".join(lines)


def plan_of(subqueries: int, *, cut: bool) -> Plan:
    return plan_app(bind_text(text(subqueries, cut=cut)))


def tuples(count: int, a_timestamp: int) -> Batch:
    """id cycles, val counts up; so many tuples share a timestamp."""
    number = np.arange(count, dtype=np.int64)
    ts = number // a_timestamp
    return scanned(ts, np.zeros(count, np.int64), np.stack([number % IDS, number + 1]))


def scanned(ts: I64, seq_tick: I64, columns: I64) -> Batch:
    """As an input gives them: the columns, the time, no NULLs."""
    data = np.concatenate([columns, [ts], np.zeros((1, len(ts)), np.int64)])
    return Batch(ts, seq_tick, np.ones(len(ts), np.int64), np.ascontiguousarray(data))


def fed_back(answers: dict[str, Batch]) -> dict[str, Batch]:
    """What the loops of a run fed back, as inputs of the query that is cut open."""
    names = {"all_avg_delay": "fed_all"}
    names |= {name: f"fed_{name[4:]}" for name in answers if name.startswith("avg_")}
    return {
        to: scanned(answers[name].ts, answers[name].seq_tick, answers[name].data[:-1])
        for name, to in names.items()
    }


def epochs(inputs: dict[str, Batch]) -> Iterator[tuple[dict[str, Batch], Frontier]]:
    """The inputs cut as a pipeline takes them in, each part with the frontier up to which it runs."""
    times = inputs["input"].ts
    ends = [*(int(ts) for ts in times[EPOCH::EPOCH]), int(times[-1]) + 1]
    first = dict.fromkeys(inputs, 0)
    for end in ends:
        last = {name: int(np.searchsorted(batch.ts, end)) for name, batch in inputs.items()}
        yield {name: _part(batch, first[name], last[name]) for name, batch in inputs.items()}, Frontier(end)
        first = last


def _part(batch: Batch, first: int, last: int) -> Batch:
    rows = slice(first, last)
    return Batch(
        batch.ts[rows], batch.seq_tick[rows], batch.diff[rows], np.ascontiguousarray(batch.data[:, rows])
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a plan is run: instant by instant through all steps (`split`), or as Kasen does."""

    plan: Plan
    split: bool

    def run(self, inputs: dict[str, Batch]) -> dict[str, Batch]:
        """The answers to all of the input, by fresh operators."""
        answers = list(self.answers(inputs))
        return {
            name: concat([each[name] for each in answers], answers[0][name].columns) for name in answers[0]
        }

    def drain(self, inputs: dict[str, Batch]) -> int:
        """How many answers there are to all of the input: they come epoch by epoch, and go."""
        return sum(len(batch) for each in self.answers(inputs) for batch in each.values())

    def answers(self, inputs: dict[str, Batch]) -> Iterator[dict[str, Batch]]:
        """Epoch by epoch, by fresh operators."""
        context = Context(Dictionary(), Failures())
        if self.split:
            yield from self._split(inputs, context)
            return
        graph = Graph(self.plan, context)
        graph.begin(Frontier(0))
        for sources, end in epochs(inputs):
            yield graph.run(sources, end)

    def _split(self, inputs: dict[str, Batch], context: Context) -> Iterator[dict[str, Batch]]:
        loop = self.loop(context)
        nothing = Batch(*(np.empty(0, np.int64),) * 3, np.empty((1, 0), np.int64))
        for sources, end in epochs(inputs):
            out = [nothing] * len(self.plan.steps)
            for name, batch in sources.items():
                out[self.plan.scans[name]] = batch
            loop.run(out, end)
            yield {name: out[step] for name, step in self.plan.outputs}

    def loop(self, context: Context) -> Loop:
        """All steps of the plan as one loop, whether they are or not."""
        steps = self.plan.steps
        running = tuple(step.id for step in steps if not isinstance(step.node, Scan))
        operators = [instantiate(step.node, context) if step.id in running else None for step in steps]
        stage = instant_order(running, [step.node for step in steps], [step.inputs for step in steps])
        kept = sorted({step for _, step in self.plan.outputs})
        return Loop(dict(enumerate(steps)), stage, operators, context, 1_000_000, kept)
