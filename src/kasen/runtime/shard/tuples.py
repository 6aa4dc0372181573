"""An input's tuples on their way: sent to the shards that need them, and held there until the clock says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, Columns, empty, matrix, ones
from kasen.engine.operator import State
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.logical import Scan
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragment_use import fragment_use
from kasen.plan.shard.generations import Generation
from kasen.runtime.shard.clock import Orders
from kasen.runtime.shard.shipment import KeyHash, Shipper

#: What travels before the columns of an input's tuple.
PLACED = ("position",)


class PendingTuples:
    """Tuples of an input that have come to this shard and wait for the clock, by place in the source."""

    def __init__(self, columns: int, shipper: Shipper) -> None:
        self._shipper = shipper
        self._position: I64 = np.empty(0, np.int64)
        self._data: I64 = np.empty((columns + 1, 0), np.int64)

    def add(self, packed: Sequence[bytes], runs: I64 | None) -> None:
        """Takes tuples in; `runs` tells their positions if they carry the places that Spark gave them."""
        if not packed:
            return
        (position,), data = self._shipper.unpack(packed)
        if runs is not None:
            run = np.searchsorted(runs[0], position, "right") - 1
            position = runs[1][run] + position - runs[0][run]
        self._position = np.concatenate([self._position, position])
        self._data = np.concatenate([self._data, data], axis=1)

    def release(self, orders: Orders, name: str, *, ordinals: bool) -> Batch:
        """What is to run now, in order; what is late is dropped."""
        late = orders.late.get(name)
        if late is not None:
            self._keep(~np.isin(self._position, late))
        released = orders.released.get(name)
        width = len(self._data) - 1 + ordinals
        if released is None or not len(self._position):
            return empty(width)
        # Where each held tuple stands among those that run.
        by_position = np.argsort(released.position, kind="stable")
        found = np.searchsorted(released.position, self._position, sorter=by_position)
        found = np.minimum(found, len(by_position) - 1)
        places = by_position[found]
        runs = released.position[places] == self._position
        mine = np.nonzero(runs)[0]
        mine = mine[np.argsort(places[mine], kind="stable")]
        where = places[mine]
        data = self._data[:, mine]
        if ordinals:
            numbers = where + released.first
            data = np.concatenate([data[:-1], numbers[np.newaxis], data[-1:]])
        self._keep(~runs)
        count = len(where)
        return Batch(released.ts[where], released.seq_tick[where], ones(count), np.ascontiguousarray(data))

    def _keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        self._position = self._position[chosen]
        self._data = np.ascontiguousarray(self._data[:, chosen])

    def snapshot(self) -> State:
        return {"position": self._position, "data": self._data}

    def restore(self, state: State) -> None:
        self._position = state["position"]
        self._data = np.ascontiguousarray(state["data"], np.int64)


class Scatter:
    """Sends an input's tuples to the shards that need them."""

    def __init__(
        self,
        generations: Iterable[tuple[Generation, Collection[str], Collection[str]]],
        shards: int,
        dictionary: Dictionary,
    ) -> None:
        """For the queries of each generation that are there or will come; and those that were replaced."""
        self._shards = shards
        self._ways: dict[str, list[tuple[Exchange, KeyHash | None, Shipper]]] = {}
        seen: set[str] = set()
        for generation, live, moved in generations:
            cut = generation.cut
            for edge in cut.scanned:
                node = cut.plan.steps[edge.source].node
                if (
                    edge.name in seen
                    or edge.name not in fragment_use(generation, live, edge.level, moved).inputs
                ):
                    continue
                seen.add(edge.name)
                if isinstance(node, Scan) and not node.relation and not edge.instants:
                    keys = KeyHash(edge.keys, dictionary) if edge.to is Destination.KEY else None
                    shipper = Shipper(node.schema, dictionary, PLACED)
                    self._ways.setdefault(node.name, []).append((edge, keys, shipper))

    def send(self, name: str, position: I64, columns: Columns) -> list[tuple[Exchange, int, bytes]]:
        """Tuples with their positions in the source, or the places that Spark gave them."""
        count = len(position)
        sent: list[tuple[Exchange, int, bytes]] = []
        if not count:
            return sent
        data = matrix(columns)
        batch = Batch(position, position, ones(count), data)
        for edge, keys, shipper in self._ways.get(name, []):
            if keys is None or self._shards == 1:
                sent.append((edge, 0, shipper.pack((position,), data)))
                continue
            shards = keys.shards(batch, self._shards)
            for shard in np.unique(shards).tolist():
                mine = np.nonzero(shards == shard)[0]
                sent.append((edge, shard, shipper.pack((position[mine],), data[:, mine])))
        return sent
