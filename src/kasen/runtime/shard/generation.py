"""A generation of queries on one shard: its fragment, its steps in the graph, and what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kasen.engine.batch import Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.logical import Node, Ref
from kasen.plan.lower.lower import is_net
from kasen.plan.physical import Plan
from kasen.plan.shard.exchange import Exchange
from kasen.plan.shard.fragment_use import FragmentUse, carried_query, fragment_use, steps_behind
from kasen.plan.shard.fragments import Fragment, travelling
from kasen.plan.shard.generations import Generation
from kasen.runtime.shard.shipment import CHANGE, Shipper


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The answer of a query on its way: `label` tells it from those of other generations."""

    label: str
    query: str
    shipper: Shipper
    is_netted: bool


@dataclass(slots=True)
class SpliceOutput:
    """Extra output of a splice, beyond the graph's own.

    `outputs` are by the names of the graph's. `contents_before` goes along exchanges to new steps of other
    shards. `transitions` are what replaced queries retract and what those in their place emit.
    """

    outputs: dict[str, Batch] = field(default_factory=dict)
    contents_before: list[tuple[Exchange, Shipper, Batch]] = field(default_factory=list)
    transitions: list[tuple[str, Shipper, Batch]] = field(default_factory=list)


@dataclass(slots=True)
class PlacedGeneration:
    """What a generation does on one shard: its fragment, the steps of the graph that it has, and for whom.

    `steps` has the graph's step for each of the fragment's; it is empty until the generation comes. `live`
    are its live and pending queries. `reads` tells where the older queries are that it reads: these may be
    replaced.
    """

    generation: Generation
    fragment: Fragment
    plan: Plan
    live: frozenset[str]
    outgoing: list[tuple[Exchange, Shipper]]
    answers: list[QueryAnswer]
    reads: dict[str, tuple[int, str]]
    has_come: bool = False
    since: int | None = None
    steps: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(
        generation: Generation, fragment: Fragment, shard: int, dictionary: Dictionary
    ) -> PlacedGeneration:
        plan = fragment.plan(shard)
        nodes = [step.node for step in generation.cut.plan.steps]
        here, exchanges = dict(plan.outputs), {edge.name for edge in fragment.outputs}
        outgoing = [
            (edge, Shipper(travelling(nodes[edge.source].schema, edge), dictionary, CHANGE))
            for edge in fragment.outputs
            if edge.name in here
        ]
        answers = [
            QueryAnswer(
                generation.answer(name),
                name,
                Shipper(node.schema, dictionary, CHANGE),
                not node.is_stream and not is_net(node),
            )
            for name, node in ((name, plan.steps[step].node) for name, step in here.items())
            if name not in exchanges
        ]
        live = frozenset(query.name for query in generation.queries)
        return PlacedGeneration(generation, fragment, plan, live, outgoing, answers, dict(generation.reads))

    @property
    def number(self) -> int:
        return self.generation.number

    @property
    def outputs(self) -> dict[str, int]:
        """The plan's steps by the names of queries and exchanges."""
        return dict(self.plan.outputs)

    @property
    def exchanges(self) -> set[str]:
        """The names of the exchanges that leave it."""
        return {edge.name for edge in self.fragment.outputs}

    @property
    def replaced(self) -> frozenset[str]:
        """Its own queries that were replaced: those that read them read the new ones."""
        return frozenset(self.reads.keys() - self.generation.reads.keys())

    def node(self, step: int) -> Node:
        return self.plan.steps[step].node

    def root(self, query: str) -> int:
        """The graph's step of a query's answers."""
        return self.steps[self.outputs[query]]

    @property
    def own_steps(self) -> dict[int, int]:
        """Its steps without those of older queries that it reads."""
        return {step: place for step, place in self.steps.items() if not isinstance(self.node(step), Ref)}

    def shipper(self, query: str) -> Shipper:
        return next(answer.shipper for answer in self.answers if answer.query == query)

    def emits(self, name: str, shard: int) -> bool:
        """Whether an output counts on a shard: of what every shard has, only the first one's does."""
        return not (name in self.fragment.everywhere and shard)

    @property
    def use(self) -> FragmentUse:
        """What of the fragment its live queries need."""
        return fragment_use(self.generation, self.live, self.fragment.level, self.replaced)

    @property
    def needed(self) -> set[int]:
        """The steps of the plan that somebody reads on this shard, or whose answers are wanted."""
        made = {
            name
            for name in self.use.outputs
            if name not in self.exchanges or carried_query(self.generation, name) not in self.replaced
        }
        return steps_behind(self.plan, made, self.replaced)
