"""One fragment of the plan on one shard: rows and orders in, rows for other shards and answers out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kasen.errors import ResourceError
from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound, Columns, concat, empty, matrix, ones, orderings
from kasen.operators.dictionary import Dictionary
from kasen.operators.failures import Failures
from kasen.operators.net import net
from kasen.operators.value_order import ValueOrder
from kasen.plan.exchange import Exchange, To
from kasen.plan.fragments import Cut, Fragment, travelling
from kasen.plan.generations import Generation, Use, steps_of, use
from kasen.plan.instantiate import Context
from kasen.plan.keep import is_stateless
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.lower import is_net
from kasen.plan.physical import Plan
from kasen.runtime.clock import Orders, Splice
from kasen.runtime.contents import Contents, at
from kasen.runtime.graph import Graph, below
from kasen.runtime.shipment import CHANGE, Keys, Shipper, pack_changes, unpack_changes

#: So many changes at most are packed together.
_PIECE = 1 << 17
#: What travels before the columns of an input's tuple.
PLACED = ("position",)
#: Where a step of a loop reads one that is still to be placed.
_UNKNOWN = -1

#: What a step is, and the steps that it reads.
_Key = tuple[Node, tuple[int, ...]]


@dataclass(slots=True)
class Sent:
    """What a shard did in an epoch: packed changes for (exchange, shard), and packed answers by query."""

    exchanged: list[tuple[Exchange, int, bytes]] = field(default_factory=list)
    answers: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """What a generation does here: its fragment, the steps that it has in the graph, and for which queries.

    `steps` has the graph's step for each of the fragment's; it is empty until the generation comes. `counts`
    are the tuples that streams had before: ROWS windows count from there.
    """

    generation: Generation
    fragment: Fragment
    plan: Plan
    live: frozenset[str]
    outgoing: list[tuple[Exchange, Shipper]]
    answers: list[tuple[str, str, Shipper, bool]]
    has_come: bool = False
    since: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def use(self, level: int) -> Use:
        return use(self.generation, self.live, level)


class Shard:
    """Runs epoch after epoch; every epoch's orders come exactly once."""

    def __init__(
        self, cut: Cut, level: int, shard: int, shards: int, generations: Sequence[Generation] = ()
    ) -> None:
        """`generations` are those of queries that came later or will; see `announce`."""
        self._level = level
        self._shard = shard
        self._shards = shards
        app = cut.plan.app
        self.dictionary = Dictionary()
        self.failures = Failures()
        max_ticks = int(app.setting("max_ticks", "1000000"))
        fragment = cut.fragments[level - 1] if level <= len(cut.fragments) else None
        plan = Plan(app, (), ()) if fragment is None else fragment.plan(shard)
        context = Context(self.dictionary, self.failures)
        self._graph = Graph(plan, context, max_ticks)
        self._splicing: Splice | None = None
        self._contents = Contents(self._graph, context, self._table)
        self._parts: dict[int, _Part] = {}
        #: Every exchange that comes here, by name: with its source, and the part that it is for.
        self._sources: dict[str, tuple[Exchange, Node, _Part]] = {}
        self._held: dict[str, _Held] = {}
        self._shippers: dict[str, Shipper] = {}
        self._orders: dict[str, ValueOrder] = {}
        self._keys: dict[str, Keys] = {}
        #: The steps that generations may share, by what they are, and the other way round.
        self._shared: dict[_Key, int] = {}
        self._keys_of: dict[int, _Key] = {}
        #: The generations that have a step.
        self._users: dict[int, set[int]] = {}
        self._has_changed = False
        self._gone: set[int] = set()
        self.announce([Generation(0, cut), *generations])
        if fragment is not None:
            self._adopt(self._parts[0])

    def _adopt(self, part: _Part) -> None:
        """The generation that the graph was made with."""
        part.has_come = True
        part.steps = {step.id: step.id for step in part.plan.steps}
        for stage in part.plan.stages():
            for step in stage:
                node, inputs = part.plan.steps[step].node, part.plan.steps[step].inputs
                self._users[step] = {0}
                if self._can_share(node, inputs):
                    self._share((node, inputs), step)

    def announce(self, generations: Iterable[Generation]) -> None:
        """Queries will come: from now on the tuples that they need are kept."""
        for each in generations:
            fragment = each.fragment(self._level)
            if each.number in self._parts or each.number in self._gone or fragment is None:
                continue
            plan = fragment.plan(self._shard)
            nodes = [step.node for step in each.cut.plan.steps]
            here, names = dict(plan.outputs), {edge.name for edge in fragment.outputs}
            outgoing = [
                (edge, Shipper(travelling(nodes[edge.source].schema, edge), self.dictionary, CHANGE))
                for edge in fragment.outputs
                if edge.name in here
            ]
            answers = [
                (
                    each.answer(name),
                    name,
                    Shipper(node.schema, self.dictionary, CHANGE),
                    not node.is_stream and not is_net(node),
                )
                for name, node in ((name, plan.steps[step].node) for name, step in here.items())
                if name not in names
            ]
            live = frozenset(query.name for query in each.queries)
            part = _Part(each, fragment, plan, live, outgoing, answers)
            self._parts[each.number] = part
            for edge in fragment.inputs:
                self._open(edge, nodes[edge.source], part)
            for edge in (*fragment.inputs, *fragment.outputs):
                if edge.to is To.KEY and edge.name not in self._keys:
                    self._keys[edge.name] = Keys(edge.keys, self.dictionary)

    def _open(self, edge: Exchange, node: Node, part: _Part) -> None:
        """What it takes to read one of the exchanges that come here."""
        if edge.name in self._sources:
            return
        self._sources[edge.name] = (edge, node, part)
        if not isinstance(node, Scan):
            schema = travelling(node.schema, edge)
            self._shippers[edge.name] = Shipper(schema, self.dictionary, CHANGE)
            if node.is_stream and not edge.instants:
                # A query's tuples are in the order of values within an instant, wherever they come from.
                self._orders[edge.name] = ValueOrder(orderings(schema), self.dictionary)
        elif node.relation:
            self._shippers[edge.name] = Shipper(node.schema, self.dictionary, CHANGE)
        elif not edge.instants:
            self._held[edge.name] = _Held(len(node.schema), Shipper(node.schema, self.dictionary, PLACED))

    # ------------------------------------------------------------ running

    def run(self, orders: Orders, received: Mapping[str, Sequence[bytes]]) -> Sent:
        """One epoch. `received` has by exchange what came for this shard."""
        if orders.closing:
            self._graph.close_delays()
        sources = {name: self._source(*each, orders, received) for name, each in self._sources.items()}
        begin = orders.begin
        said: list[dict[str, Batch]] = []
        for splice in orders.splices:
            if begin is not None and splice.begun:
                self._graph.begin(begin)
                begin = None
            if self._graph.begun:
                before = {name: below(batch, Bound(splice.at)) for name, batch in sources.items()}
                said.append(self._graph.run(before, Bound(splice.at)))
            # What is not there yet sees nothing of what was before it.
            sources = {name: _since(batch, splice.at) for name, batch in sources.items()}
            said.append(self._splice(splice, sources))
        if begin is not None:
            self._graph.begin(begin)
        if self._graph.begun:
            said.append(self._graph.run(sources, orders.upto))
        sent = self._sent(said)
        if orders.splices:
            self._gone |= {number for number, part in self._parts.items() if number and not part.live}
            self._parts = {number: part for number, part in self._parts.items() if number not in self._gone}
        return sent

    def _sent(self, said: list[dict[str, Batch]]) -> Sent:
        sent = Sent()
        for part in self._parts.values():
            everywhere = part.fragment.everywhere
            for edge, shipper in part.outgoing:
                # Of what every shard has, the first one's is sent; but what stays on its shard, by each.
                if edge.to is To.SAME or not (edge.name in everywhere and self._shard):
                    self._send(edge, shipper, _all(said, edge.name), sent)
            for answer, name, shipper, nets in part.answers:
                batch = _all(said, answer)
                if batch is not None and len(batch) and not (name in everywhere and self._shard):
                    for piece in _pieces(net(batch) if nets else batch):
                        sent.answers.append((answer, pack_changes(shipper, piece)))
        return sent

    # ------------------------------------------------------------ queries that come and go

    def _splice(self, splice: Splice, sources: dict[str, Batch]) -> dict[str, Batch]:
        """A change takes effect, between two instants. What relations hold then enters among the sources.

        Returns what is put out besides.
        """
        self._graph.save_loops()
        self._splicing = splice
        said: dict[str, Batch] = {}
        for number in splice.comes:
            if number in self._parts:
                self._come(self._parts[number], splice, sources, said)
        for number, name in splice.goes:
            part = self._parts.get(number)
            if part is not None and name in part.live:
                part.live -= {name}
                self._prune(part)
        self._graph.settle()
        self._has_changed = True
        return said

    def _come(self, part: _Part, splice: Splice, sources: dict[str, Batch], said: dict[str, Batch]) -> None:
        part.has_come, part.counts, part.since = True, splice.counts, splice.at
        held = {
            step.id: self._holds(part, step.node, splice)
            for step in part.plan.steps
            if splice.begun and isinstance(step.node, Ref) and not step.node.is_stream
        }
        fresh = [step for stage in part.plan.stages() for step in self._place(part, stage)]
        self._name_outputs(part)
        self._graph.settle()
        if not splice.begun:
            return
        for edge in part.fragment.inputs:
            node = self._sources[edge.name][1]
            if not isinstance(node, Scan):
                continue
            if node.relation and node.name in splice.contents:
                holds = self._of_relation(edge, node, splice.contents[node.name])
                sources[edge.name] = concat((holds, sources[edge.name]), holds.columns)
            elif edge.ordinals:
                sources[edge.name] = _recounted(sources[edge.name], part.counts.get(node.name, 0))
        self._enter(part, held, said)
        if not self._graph.begun:
            self._graph.begin(Bound(splice.at))
            return
        self._graph.begin_steps(fresh, Bound(splice.at))
        self._graph.share(fresh, Bound(splice.at))

    def _enter(self, part: _Part, held: dict[int, Batch], said: dict[str, Batch]) -> None:
        """What older queries hold enters the steps that read them, here and elsewhere."""
        for step in part.plan.steps:
            for position, source in enumerate(step.inputs):
                if source in held:
                    self._graph.bear(part.steps[step.id], position, held[source])
        said |= {name: held[step] for name, step in part.plan.outputs if step in held}

    def _holds(self, part: _Part, ref: Ref, splice: Splice) -> Batch:
        """What an older relation query holds, as insertions at the change, unless they come by themselves."""
        older, _ = part.generation.reads[ref.name.lower()]
        if self._parts[older].since == splice.at:
            return empty(len(ref.schema))
        return at(self._contents.of(self._root(part, ref)), Bound(splice.at))

    def _root(self, part: _Part, ref: Ref) -> int:
        """The step of an older query."""
        older, name = part.generation.reads[ref.name.lower()]
        found = self._parts[older]
        return found.steps[dict(found.plan.outputs)[name]]

    def _table(self, name: str) -> Batch:
        """What an outside relation holds of this shard's rows, now that a change takes effect."""
        assert self._splicing is not None
        edge, node, _ = self._sources.get(name, (None, None, None))
        if edge is not None and isinstance(node, Scan) and node.name in self._splicing.contents:
            return self._of_relation(edge, node, self._splicing.contents[node.name])
        step = self._graph.scan(name)
        assert step is not None
        return empty(len(self._graph.node(step).schema))

    def _place(self, part: _Part, stage: tuple[int, ...]) -> list[int]:
        """The steps of a stage: those that are there already, or new ones, which are returned."""
        fresh: list[int] = []
        for step in stage:
            node, inputs = part.plan.steps[step].node, part.plan.steps[step].inputs
            if isinstance(node, Ref):
                part.steps[step] = self._root(part, node)
                continue
            reads = tuple(part.steps.get(source, _UNKNOWN) for source in inputs)
            is_shared = len(stage) == 1 and self._can_share(node, reads)
            found = self._shared.get((node, reads)) if is_shared else None
            if found is None:
                found = self._graph.add(node, reads)
                fresh.append(found)
                if is_shared:
                    self._share((node, reads), found)
            part.steps[step] = found
            self._users.setdefault(found, set()).add(part.generation.number)
        for step in stage if len(stage) > 1 or stage[0] in part.plan.steps[stage[0]].inputs else ():
            reads = tuple(part.steps[source] for source in part.plan.steps[step].inputs)
            self._graph.point(part.steps[step], reads)
        return fresh

    def _can_share(self, node: Node, inputs: tuple[int, ...]) -> bool:
        """Whether a step remembers nothing, and neither does what it reads, down to a stream from outside."""
        if isinstance(node, Scan):
            return node.name in self._held and not self._sources[node.name][0].ordinals
        return is_stateless(node) and all(source in self._keys_of for source in inputs)

    def _share(self, key: _Key, step: int) -> None:
        self._shared[key] = step
        self._keys_of[step] = key

    def _name_outputs(self, part: _Part) -> None:
        """The outputs that are needed, under the names by which they leave."""
        needed = part.use(self._level).outputs
        exchanges = {edge.name for edge in part.fragment.outputs}
        for name, step in part.plan.outputs:
            key = name if name in exchanges else part.generation.answer(name)
            if name in needed:
                self._graph.outputs[key] = part.steps[step]
            else:
                self._graph.outputs.pop(key, None)

    def _prune(self, part: _Part) -> None:
        """Frees what only queries had that went."""
        self._name_outputs(part)
        needed = steps_of(part.plan, part.use(self._level).outputs)
        number = part.generation.number
        for step in [each for each in part.steps if each not in needed]:
            place = part.steps.pop(step)
            if isinstance(part.plan.steps[step].node, Ref):
                continue
            self._users[place].discard(number)
            if not self._users[place]:
                del self._users[place]
                if place in self._keys_of:
                    del self._shared[self._keys_of.pop(place)]
                self._graph.remove(place)
        used = {name for each in self._parts.values() for name in each.use(self._level).inputs}
        for name in self._sources.keys() - used:
            del self._sources[name]
            self._held.pop(name, None)

    # ------------------------------------------------------------ what comes in

    def _source(
        self,
        edge: Exchange,
        node: Node,
        part: _Part,
        orders: Orders,
        received: Mapping[str, Sequence[bytes]],
    ) -> Batch:
        if not isinstance(node, Scan):
            shipper = self._shippers[edge.name]
            batch = unpack_changes(shipper, received.get(edge.name, ()))
            order = self._orders.get(edge.name)
            return batch if order is None else order.sort(batch)
        if node.relation:
            return self._relation(edge, node, orders)
        released = orders.released.get(node.name)
        if edge.instants:
            if released is None:
                return empty(0)
            count = len(released.ts)
            return Batch(released.ts, released.sub, ones(count), np.zeros((1, count), np.int64))
        held = self._held[edge.name]
        held.add(received.get(edge.name, ()), orders.runs.get(node.name))
        batch = held.release(orders, node.name, ordinals=edge.ordinals)
        return _recounted(batch, part.counts.get(node.name, 0)) if edge.ordinals else batch

    def _relation(self, edge: Exchange, node: Scan, orders: Orders) -> Batch:
        """An outside relation's changes: every shard gets all of them and takes its own."""
        packed = orders.changes.get(node.name)
        if packed is None:
            return empty(0 if edge.instants else len(node.schema))
        return self._of_relation(edge, node, packed)

    def _of_relation(self, edge: Exchange, node: Scan, packed: bytes) -> Batch:
        if edge.to is To.ONE and self._shard:
            return empty(0 if edge.instants else len(node.schema))
        batch = unpack_changes(self._shippers[edge.name], [packed])
        if edge.instants:
            return Batch(batch.ts, batch.sub, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        if edge.to is To.KEY:
            batch = batch.where(self._keys[edge.name].shards(batch, self._shards) == self._shard)
        return batch

    def _send(self, edge: Exchange, shipper: Shipper, batch: Batch | None, sent: Sent) -> None:
        if batch is None or not len(batch):
            return
        if edge.instants:
            batch = Batch(batch.ts, batch.sub, ones(len(batch)), np.zeros((1, len(batch)), np.int64))
        match edge.to:
            case To.ONE:
                sent.exchanged.append((edge, 0, pack_changes(shipper, batch)))
            case To.SAME:
                sent.exchanged.append((edge, self._shard, pack_changes(shipper, batch)))
            case To.ALL:
                packed = pack_changes(shipper, batch)
                sent.exchanged += [(edge, shard, packed) for shard in range(self._shards)]
            case To.KEY:
                shards = self._keys[edge.name].shards(batch, self._shards)
                for shard in np.unique(shards).tolist():
                    mine = batch.where(shards == shard)
                    sent.exchanged.append((edge, shard, pack_changes(shipper, mine)))

    @property
    def stopped(self) -> list[ResourceError]:
        """Why loops were stopped, if any were."""
        return self._graph.stopped

    def last_instant(self) -> Bound | None:
        """When what windows hold now will have left them."""
        return self._graph.last_instant()

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, State]:
        marks = [int(self._graph.begun), self.failures.count]
        state: dict[str, State] = {
            "shard": {"marks": np.array(marks, np.int64)},
            "dictionary": self.dictionary.snapshot(),
            **{f"held.{name}": held.snapshot() for name, held in self._held.items()},
            **{f"step.{step}": each for step, each in self._graph.snapshot().items()},
        }
        if self._has_changed:
            state["live"] = {"json": np.frombuffer(json.dumps(self._saved()).encode(), np.uint8)}
        return state

    def restore(self, state: dict[str, State]) -> None:
        begun, self.failures.count = state["shard"]["marks"].tolist()
        self.dictionary.restore(state["dictionary"])
        if "live" in state:
            self._rebuild(json.loads(state["live"]["json"].tobytes()))
        for name, held in self._held.items():
            if f"held.{name}" in state:
                held.restore(state[f"held.{name}"])
        prefix = "step."
        steps = {int(key[len(prefix) :]): each for key, each in state.items() if key.startswith(prefix)}
        self._graph.restore(steps, bool(begun))

    def _saved(self) -> list[dict[str, Any]]:
        """The generations that have come, with the numbers of their steps."""
        return [
            {
                "generation": number,
                "live": sorted(part.live),
                "steps": list(part.steps.items()),
                "counts": part.counts,
                "since": part.since,
            }
            for number, part in self._parts.items()
            if part.has_come
        ]

    def _rebuild(self, saved: list[dict[str, Any]]) -> None:
        """The generations as they were when a state was saved."""
        self._has_changed = True
        placed: dict[int, tuple[Node, tuple[int, ...]]] = {}
        self._users, self._shared, self._keys_of = {}, {}, {}
        for one in saved:
            part = self._parts[one["generation"]]
            part.has_come, part.live, part.counts = True, frozenset(one["live"]), one["counts"]
            part.since, part.steps = one["since"], dict(one["steps"])
            for step, place in part.steps.items():
                node, inputs = part.plan.steps[step].node, part.plan.steps[step].inputs
                if isinstance(node, Ref):
                    continue
                placed[place] = (node, tuple(part.steps[source] for source in inputs))
                self._users.setdefault(place, set()).add(part.generation.number)
        self._graph.rebuild(placed)
        for number in (one["generation"] for one in saved):
            part = self._parts[number]
            self._name_outputs(part)
            for stage in part.plan.stages():
                for step in stage:
                    is_ref = isinstance(part.plan.steps[step].node, Ref)
                    if step in part.steps and len(stage) == 1 and not is_ref:
                        node, reads = placed[part.steps[step]]
                        if self._can_share(node, reads):
                            self._share((node, reads), part.steps[step])
            self._prune(part)
        self._graph.settle()


def _all(said: list[dict[str, Batch]], name: str) -> Batch | None:
    """All that was put out under a name."""
    found = [each[name] for each in said if name in each]
    return None if not found else found[0] if len(found) == 1 else concat(found, found[0].columns)


def _since(batch: Batch, ts: int) -> Batch:
    """The changes from a time on."""
    return batch if not len(batch) or batch.ts[0] >= ts else batch.where(batch.ts >= ts)


def _recounted(batch: Batch, before: int) -> Batch:
    """Tuples with ordinals from those on that were before."""
    if not before or not len(batch):
        return batch
    data = batch.data.copy()
    data[-2] -= before
    return Batch(batch.ts, batch.sub, batch.diff, data)


def _pieces(batch: Batch) -> Iterator[Batch]:
    """A batch in pieces that are good to carry."""
    if len(batch) <= _PIECE:
        yield batch
        return
    for first in range(0, len(batch), _PIECE):
        yield batch.take(np.arange(first, min(first + _PIECE, len(batch)), dtype=np.int64))


class _Held:
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
        return Batch(released.ts[where], released.sub[where], ones(count), np.ascontiguousarray(data))

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
        self, generations: Iterable[tuple[Generation, Collection[str]]], shards: int, dictionary: Dictionary
    ) -> None:
        """For the queries of each generation that are there or will come."""
        self._shards = shards
        self._ways: dict[str, list[tuple[Exchange, Keys | None, Shipper]]] = {}
        seen: set[str] = set()
        for generation, live in generations:
            cut = generation.cut
            for edge in cut.scanned:
                node = cut.plan.steps[edge.source].node
                if edge.name in seen or edge.name not in use(generation, live, edge.level).inputs:
                    continue
                seen.add(edge.name)
                if isinstance(node, Scan) and not node.relation and not edge.instants:
                    keys = Keys(edge.keys, dictionary) if edge.to is To.KEY else None
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
