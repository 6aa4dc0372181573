"""The answers of many shards as one: net, and in order."""

from __future__ import annotations

from collections.abc import Mapping

from kasen.operators.batch import Batch, orderings
from kasen.operators.dictionary import Dictionary
from kasen.operators.net import net
from kasen.operators.streamify import units
from kasen.operators.value_order import ValueOrder
from kasen.plan.changes import RegisteredQuery
from kasen.runtime.shipment import CHANGE, Shipper, unpack_changes


class Gathered:
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
