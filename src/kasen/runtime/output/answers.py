"""Answers that come in parts as one: of many shards, or of pieces of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kasen.engine.batch import Batch, concat, orderings
from kasen.engine.stream.net import net
from kasen.engine.stream.streamify import units
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.changes import RegisteredQuery
from kasen.runtime.output.pace import Pace
from kasen.runtime.pipeline import Answer, RunningPipeline
from kasen.runtime.shard.shipment import CHANGE, Shipper, unpack_changes

#: So many rows run at once: operators find in the cache what the one before them has left there.
_PIECE = 1 << 19
#: Answers of pieces are joined until they have so many bytes: to join more takes longer than pieces save.
_LITTLE = 1 << 24


class PiecewiseRun:
    """Runs a pipeline's epochs piece by piece.

    How an epoch's answers are cut depends on its rows and on nothing else: an epoch that is done again after
    a crash hands out the same answers under the same numbers.
    """

    def __init__(self, pipeline: RunningPipeline) -> None:
        self._pipeline = pipeline

    def answers(self) -> Iterator[Answer]:
        """Runs every instant that is complete; few answers come as one, up to the next change of queries."""
        pace = Pace()  # what earlier epochs brought must not tell
        parts: list[Answer] = []
        while True:
            answer = self._pipeline.run(min(_PIECE, pace.most(len(self._pipeline.queries))))
            pace.saw(answer.rows, answer.size)
            parts.append(answer)
            if answer.change is not None or not answer.is_cut or sum(part.size for part in parts) >= _LITTLE:
                yield _joined(parts)
                parts = []
            if not answer.is_cut:
                return


def _joined(parts: list[Answer]) -> Answer:
    """Answers that follow one another as one; only after the last of them queries may have changed."""
    if len(parts) == 1:
        return parts[0]
    batches: dict[str, list[Batch]] = {}
    for part in parts:
        for name, batch in part.changes.items():
            batches.setdefault(name, []).append(batch)
    return Answer(
        {name: concat(each, each[0].columns) for name, each in batches.items()},
        sum(part.rows for part in parts),
        parts[-1].is_cut,
        {name: query for part in parts for name, query in part.queries.items()},
        parts[-1].change,
        [each for part in parts for each in part.deletions],
        [each for part in parts for each in part.refused],
    )


class AnswerCollector:
    """Collects packed changes by query; `take` hands an epoch's over."""

    def __init__(self, queries: Mapping[str, RegisteredQuery], dictionary: Dictionary) -> None:
        """`queries` are those whose answers may come, by what these are called on their way."""
        self._queries = queries
        self._dictionary = dictionary
        self._packed: dict[str, list[bytes]] = {}

    def add(self, name: str, packed: bytes) -> None:
        self._packed.setdefault(name, []).append(packed)

    def take(self) -> dict[str, Batch]:
        """Every query's changes in instant order, rows of one instant in the order of values."""
        answers: dict[str, Batch] = {}
        for name, packed in self._packed.items():
            query = self._queries[name]
            batch = unpack_changes(Shipper(query.schema, self._dictionary, CHANGE), packed)
            if not query.is_stream:
                # Rows that cancel may have been on different shards.
                batch = units(net(batch))
            answers[name] = ValueOrder(orderings(query.schema), self._dictionary).sort(batch)
        self._packed = {}
        return answers
