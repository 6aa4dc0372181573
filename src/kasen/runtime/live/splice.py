"""What a change of the queries of this process consists of, from plans until it takes effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kasen.engine.batch import Batch
from kasen.plan.build import Names
from kasen.plan.changes import RegisteredQuery
from kasen.plan.keep.kept_windows import KeptWindows, QueryInCatalog, keep
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Node
from kasen.plan.physical import own_nodes
from kasen.runtime.live.shared_steps import StateOrigin

#: How a step that remembers anything began: with a new query, a backfilled one, or one that replaces another.
NEW, BACKFILLED, REPLACED = range(3)
#: From here on: steps that began with the contents of other steps. Each of them is unique.
FIRST_REBUILT = 3
BEGINNING: StateOrigin = (-(2**63), NEW)

#: The tuples that streams have retained, by name, at their own instants.
Retained = Mapping[str, Batch]


@dataclass(slots=True)
class LiveQuery:
    """A query with its steps, inputs first; the last is where its answers come from.

    `since` says for each step since when it remembers (None: it remembers nothing).
    """

    registered: RegisteredQuery
    plan: Node
    steps: dict[Node, int]
    since: dict[Node, StateOrigin | None]
    root: int
    began: StateOrigin
    in_loop: bool = False
    #: Until it has run: what it held before it came, if that does not flow out of its steps by itself.
    initial: Batch | None = None

    @property
    def key(self) -> str:
        """The name in lower case."""
        return self.registered.name.lower()


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that will come: its plan, the plan's own nodes, inputs first, and those that remember.

    `kept` is what it takes from the query that it replaces.
    """

    plan: Node
    nodes: tuple[Node, ...]
    remember: frozenset[Node]
    kept: KeptWindows
    in_loop: bool

    @staticmethod
    def of(
        text: QueryInCatalog, plan: Node, old: LiveQuery | None, before: Names, *, in_loop: bool
    ) -> PlannedQuery:
        """`old` is the query that has its name, as the catalog `before` the change knows it."""
        nodes = own_nodes(plan)
        kept = (
            KeptWindows()
            if old is None
            else keep(QueryInCatalog(old.registered, before), old.plan, text, plan)
        )
        remember = frozenset(node for node in nodes if not is_stateless(node))
        return PlannedQuery(plan, tuple(nodes), remember, kept, in_loop)


@dataclass(slots=True)
class Splice:
    """A change made ready: the queries that come, and what is done when the change takes effect."""

    new_queries: dict[str, LiveQuery] = field(default_factory=dict)
    new_steps: list[int] = field(default_factory=list)
    #: What new steps of relations hold already; their changes begin from there.
    primed: dict[int, Batch] = field(default_factory=dict)
    #: Further input of the next run, by step and position.
    initial_inputs: list[tuple[int, int, Batch]] = field(default_factory=list)
    #: What a query emits at the instant of the change beyond the output of its step.
    transitions: dict[str, Batch] = field(default_factory=dict)
    #: Inputs in loops: the step, the position, and the query that is read, in lower case.
    unresolved: list[tuple[int, int, str]] = field(default_factory=list)
