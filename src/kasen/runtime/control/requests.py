"""What `kasen ctl` asks of a running pipeline, and what is answered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kasen.connect.decode import decode
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError, KasenError
from kasen.plan.changes import CatalogChange, Drop
from kasen.plan.explain.explain import explain_forest
from kasen.plan.explain.show import show_instant
from kasen.plan.explain.tree import Forest
from kasen.runtime.control.socket import Control
from kasen.runtime.live.remote_queries import RemoteQueries
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import Answer, RunningPipeline
from kasen.types import Type


@dataclass(slots=True)
class Meter:
    """What `ps` tells of rates: rows since it was last asked, or since the beginning."""

    asked: float = field(default_factory=time.monotonic)
    rows: dict[str, int] = field(default_factory=dict)

    def rates(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Rows a second, of counts by name."""
        now = time.monotonic()
        passed = max(now - self.asked, 1e-9)
        found = {name: (count - self.rows.get(name, 0)) / passed for name, count in counts.items()}
        self.asked, self.rows = now, dict(counts)
        return found


class ChangeablePipeline(Protocol):
    """A pipeline whose queries can be changed, here or on shards."""

    dictionary: Dictionary

    def execute(self, text: str) -> tuple[CatalogChange, ...]: ...

    @property
    def pending(self) -> list[CatalogChange]: ...


class _RequestHandler:
    """Answers requests between epochs, as far as they are the same wherever operators run."""

    def __init__(
        self, pipeline: ChangeablePipeline, outputs: Outputs, time: Type, keep: Callable[[str], None]
    ) -> None:
        """`keep` makes a text that has changed queries durable, before its change is answered."""
        self._keep = keep
        self._changing = pipeline
        self._outputs = outputs
        self._time = time
        self._said = Meter(rows=dict(outputs.progress.results))

    def handle(self, body: dict[str, Any]) -> dict[str, Any]:
        match body.get("verb"):
            case "ps":
                return {"queries": self._ps()}
            case "execute":
                return {"done": self._execute(str(body.get("text", "")))}
            case "explain":
                return {"text": self._explain(str(body.get("query", "")))}
        raise DataError(f"no request {body.get('verb')!r}")

    def _ps(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _explain(self, name: str) -> str:
        raise NotImplementedError

    def _execute(self, text: str) -> list[str]:
        changes = self._changing.execute(text)
        for change in changes:
            if change not in self._changing.pending:
                self._outputs.follow(change)
        try:
            self._keep(text)
        except (KasenError, OSError) as error:
            raise DataError(f"the change has taken effect, but could not be made durable: {error}") from error
        return [line for change in changes for line in _told(change)]

    def tell(self, answer: Answer, control: Control) -> None:
        """Rows for those who follow queries."""
        for name, batch in answer.changes.items():
            if control.wants_tail(name):
                table = decode(batch, answer.queries[name].schema, self._changing.dictionary, self._time)
                control.tell(name, _lines([column.to_pylist() for column in table.columns]))


class RequestHandler(_RequestHandler):
    """Of a pipeline in this process."""

    def __init__(
        self, pipeline: RunningPipeline, outputs: Outputs, time: Type, keep: Callable[[str], None]
    ) -> None:
        super().__init__(pipeline, outputs, time, keep)
        self._pipeline = pipeline
        self._heard = Meter()

    def _explain(self, name: str) -> str:
        return explain_live(self._pipeline, name)

    def _ps(self) -> list[dict[str, Any]]:
        progress, live = self._outputs.progress, self._pipeline.live
        said, heard = self._said.rates(progress.results), self._heard.rates(self._pipeline.rows_in)
        found = []
        for query in live.queries.values():
            name = query.registered.name
            shared = sorted(live.queries[each].registered.name for each in live.shared_with(name))
            found.append(
                {
                    "query": name,
                    "since": "the beginning" if query.began[0] == -(2**63) else query.began[0],
                    "rows in/s": round(sum((heard | said).get(each, 0.0) for each in live.reads(name)), 1),
                    "rows out/s": round(said.get(name, 0.0), 1),
                    "rows out": progress.results.get(name, 0),
                    "delay": self._pipeline.lag,
                    "state bytes": live.state_bytes(name),
                    "shared with": ", ".join(shared[:5]) + (", ..." if len(shared) > 5 else ""),
                }
            )
        return found


class ShardedPipeline(ChangeablePipeline, Protocol):
    """A pipeline on shards, as far as it is known here."""

    live: RemoteQueries

    @property
    def lag(self) -> int: ...


class ShardRequestHandler(_RequestHandler):
    """Of a pipeline on shards: what steps remember and share there is not told by query."""

    def __init__(
        self, pipeline: ShardedPipeline, outputs: Outputs, time: Type, keep: Callable[[str], None]
    ) -> None:
        super().__init__(pipeline, outputs, time, keep)
        self._pipeline = pipeline

    def _ps(self) -> list[dict[str, Any]]:
        progress = self._outputs.progress
        said = self._said.rates(progress.results)
        return [
            {
                "query": name,
                "since": "the beginning" if since is None else since,
                "rows out/s": round(said.get(name, 0.0), 1),
                "rows out": progress.results.get(name, 0),
                "delay": self._pipeline.lag,
            }
            for name, since in self._pipeline.live.since.items()
        ]

    def _explain(self, name: str) -> str:
        return self._pipeline.live.explain(name)


def _lines(columns: list[list[Any]]) -> Iterator[str]:
    for row in zip(*columns, strict=True):
        cells = ", ".join("" if value is None else str(value) for value in row)
        yield json.dumps({"row": cells})


def _told(change: CatalogChange) -> Iterator[str]:
    at = "at the beginning" if change.at is None else f"at {change.at}"
    for action in change.actions:
        if isinstance(action, Drop):
            yield f"{action.name} goes {at}"
        else:
            yield f"{action.query.name} {'is replaced' if action.replaces else 'comes'} {at}"
    for one in change.prepared:
        yield f"{one.query.name} is prepared"


def explain_live(pipeline: RunningPipeline, name: str) -> str:
    """The steps of a live query as they run, and the configuration tuples that set up its conditions.

    What it reads of other queries is theirs.
    """
    query = pipeline.live.queries.get(name.lower())
    if query is None:
        known = ", ".join(pipeline.queries) or "none"
        raise DataError(f"no query {name!r}; live are: {known}")
    time, operators = pipeline.app.time, pipeline.graph.operators
    since = {step: query.since[node] for node, step in query.steps.items()}

    def remembers(step: int) -> list[str]:
        begun = since.get(step)
        if begun is None:
            return []
        return [f"since: {'the beginning' if begun[0] == -(2**63) else show_instant(begun[0], time)}"]

    forest = _forest(pipeline, notes=remembers, numbered=True)
    lines = [query.registered.text, *forest.query(query.registered.name, query.registered.schema)]
    for step in sorted(forest.printed):
        operator = operators[step]
        if operator is not None:
            lines += [f"step {step}: {target} <- {_listed(words)}" for target, words in operator.config()]
    return "\n".join(lines)


def explain_running(pipeline: RunningPipeline) -> str:
    """The graph of a pipeline in this process, with the queries that are live now."""
    schemas = {query.registered.name: query.registered.schema for query in pipeline.live.queries.values()}
    return explain_forest(replace(pipeline.app, changes=()), _forest(pipeline), schemas)


def _forest(pipeline: RunningPipeline, **options: Any) -> Forest:
    graph = pipeline.graph
    steps = set(graph.steps)
    every = range(max(steps, default=-1) + 1)
    nodes = [graph.node(step) if step in steps else None for step in every]
    return Forest(nodes, [graph.inputs(step) for step in every], graph.outputs, pipeline.app.time, **options)


def _listed(words: tuple[int, ...]) -> str:
    return ", ".join(map(str, words)) or "nothing"
