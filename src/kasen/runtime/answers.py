"""The answers of many shards as one: net, and in order."""

from __future__ import annotations

from kasen.operators.batch import Batch, orderings
from kasen.operators.dictionary import Dictionary
from kasen.operators.net import net
from kasen.operators.streamify import units
from kasen.operators.value_order import ValueOrder
from kasen.plan.physical import Plan
from kasen.runtime.shipment import CHANGE, Shipper, unpack_changes


class Gathered:
    """Collects packed changes by query; `take` hands an epoch's over."""

    def __init__(self, plan: Plan, dictionary: Dictionary) -> None:
        self.queries = {query.name: query for query in plan.app.queries}
        self._shippers = {query.name: Shipper(query.schema, dictionary, CHANGE) for query in plan.app.queries}
        self._orders = {
            query.name: ValueOrder(orderings(query.schema), dictionary) for query in plan.app.queries
        }
        self._packed: dict[str, list[bytes]] = {}

    def add(self, name: str, packed: bytes) -> None:
        self._packed.setdefault(name, []).append(packed)

    def take(self) -> dict[str, Batch]:
        """Every query's changes in instant order, rows of one instant in the order of values."""
        answers: dict[str, Batch] = {}
        for name, packed in self._packed.items():
            batch = unpack_changes(self._shippers[name], packed)
            if not self.queries[name].is_stream:
                # Rows that cancel may have been on different shards.
                batch = units(net(batch))
            answers[name] = self._orders[name].sort(batch)
        self._packed = {}
        return answers
