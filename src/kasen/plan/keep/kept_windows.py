"""What a replaced query keeps: how its new plan gets what the windows of its old one hold.

Which windows are kept is a matter of the two texts (`window_identity`). For each step of the new plan that
remembers something of a kept window there are three ways:

- the old plan has the very same step, over steps that are kept, too: it goes on;
- the old plan has a step that holds the window's tuples with all that is needed of them: they are replayed;
- both steps aggregate the same tuples by the same keys: the new one takes over the groups.

Otherwise the replacement is refused. All of this is a function of the two texts, so it is the same on every
engine and after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from kasen.cql.bound import RegisteredQuery
from kasen.cql.expr import Cast, Column, Expr, conjunction, map_children
from kasen.errors import QueryError
from kasen.plan import logical
from kasen.plan.build import Names
from kasen.plan.explain.show import show
from kasen.plan.keep.memories import Memory, is_stateless, kept_nowhere, memories, passing
from kasen.plan.keep.regroup import Regroup, regrouped
from kasen.plan.keep.window_identity import WindowIdentity, windows_below, windows_of
from kasen.plan.logical import Node, Streamify, WindowActivity
from kasen.types import Kind, Type


@dataclass(frozen=True, slots=True)
class Replay:
    """An input of a new step gets the tuples that `source` of the old plan holds.

    Of these, those that satisfy the condition, as `items`: both are over the source's columns.
    """

    source: Node
    position: int
    condition: Expr | None
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class KeptWindows:
    """What of the old plan the new one goes on with.

    `steps` go on as they are. `replays` are by step and input; steps in `regroups` take over groups.
    `refusal` says what is missing, if something is: nothing can be kept then.
    """

    steps: frozenset[Node] = frozenset()
    replays: Mapping[tuple[Node, int], Replay] = field(default_factory=dict)
    regroups: Mapping[Node, Regroup] = field(default_factory=dict)
    refusal: QueryError | None = None

    @property
    def rebuilt(self) -> frozenset[Node]:
        """The steps that begin with what others held."""
        return frozenset(self.regroups) | {node for node, _ in self.replays}


@dataclass(frozen=True, slots=True)
class QueryInCatalog:
    """A query with the catalog that it is read against."""

    query: RegisteredQuery
    names: Names


class _Refused(Exception):
    """What the old plan does not remember."""


def keep(old: QueryInCatalog, old_plan: Node, new: QueryInCatalog, new_plan: Node) -> KeptWindows:
    """What goes on if a query gets a new text."""
    try:
        return _Keeping(old, old_plan, new, new_plan).found()
    except _Refused as missing:
        name = new.query.name
        fault = f"{name} cannot be replaced: {missing}"
        remedy = (
            f"DROP QUERY {name}, and register it in a second change, with BACKFILL if the stream has RETAIN"
        )
        return KeptWindows(refusal=QueryError(fault, remedy=remedy))


class _Keeping:
    def __init__(self, old: QueryInCatalog, old_plan: Node, new: QueryInCatalog, new_plan: Node) -> None:
        self._plan = new_plan
        goes_over = not (old_plan.is_stream or new_plan.is_stream)
        #: The relations whose rows it takes to go over from one answer to the other.
        self._told = [old_plan] if goes_over and old.query.schema.types == new.query.schema.types else []
        self._had = set(logical.walk(old_plan))
        self._held = memories(old_plan)
        self._needs = memories(new_plan)
        self._old = windows_of(old.query.query)
        self._new = windows_of(new.query.query)
        self._moving = windows_below(old.query.query, old.names) & windows_below(new.query.query, new.names)
        self._replays: dict[tuple[Node, int], Replay] = {}
        self._regroups: dict[Node, Regroup] = {}

    def found(self) -> KeptWindows:
        for memory in passing(self._plan):
            if self._is_kept(memory):
                raise _Refused(f"the rows so far of {memory.name} are kept nowhere")
        steps: dict[Node, bool] = {}
        # Nodes that a stream is behind which the query itself makes: what remembers it starts anew.
        made_within: set[Node] = set()
        for node in _inputs_first(self._plan):
            if isinstance(node, Streamify | logical.Delay):
                made_within.add(node)
            is_new = any(child in made_within for child in node.children)
            below = all(steps[child] for child in node.children)
            if is_stateless(node):
                steps[node] = below
                made_within |= {node} if is_new else set()
                continue
            steps[node] = below and not is_new and self._goes_on(node)
            if not steps[node]:
                self._rebuild(node)
        kept = frozenset(node for node, goes_on in steps.items() if goes_on and not is_stateless(node))
        new = [node for node, goes_on in steps.items() if not goes_on and not is_stateless(node)]
        todo = [child for node in new for child in node.children]
        todo += [] if self._plan.is_stream else [self._plan]
        while todo:
            node = todo.pop()
            self._told += [node] if node in kept else []
            todo += node.children if is_stateless(node) else ()
        for node in self._told:
            if (stream := kept_nowhere(node)) is not None:
                raise _Refused(f"the rows so far of {stream} are kept nowhere")
        return KeptWindows(kept, self._replays, self._regroups)

    def _goes_on(self, node: Node) -> bool:
        """Whether a step over steps that are kept is in the old plan, too, with the same windows."""
        # What a delay holds is on its way, and is not delivered under another text.
        if node not in self._had or isinstance(node, logical.Delay):
            return False
        return all(map(self._is_kept, self._needs[node]))

    def _is_kept(self, memory: Memory) -> bool:
        """Whether the window that a step of the new plan remembers is one that the old text has, too."""
        if isinstance(memory.node, WindowActivity):
            # It moves whenever one of several windows does that differ in their filters.
            return any(_is_over(memory, each) for each in self._moving)
        candidates = [each for each in self._new if _is_over(memory, each)]
        kept = [each for each in candidates if each in self._old]
        if len(kept) in (0, len(candidates)):
            return bool(kept)
        return self._identity(memory, self._new) in self._old

    def _identity(self, memory: Memory, among: Set[WindowIdentity]) -> WindowIdentity:
        """The window of the text that a step remembers."""
        candidates = [each for each in among if _is_over(memory, each)]
        if len(candidates) > 1:
            # Moved conditions may make it more than the text's filter; then nobody knows whose it was.
            candidates = [each for each in candidates if each.filter == memory.filter]
        if len(candidates) != 1:
            raise _Refused(f"it has several windows {memory.name}, which differ in their conditions only")
        return candidates[0]

    # ------------------------------------------------------------ steps that are new

    def _rebuild(self, node: Node) -> None:
        needs = [one for one in self._needs[node] if one.needs_past and self._is_kept(one)]
        if not needs:
            return
        regroup = self._regrouped(node)
        if regroup is not None:
            self._regroups[node] = regroup
            return
        for memory in needs:
            self._replays[node, memory.position] = self._replay(memory)

    def _holders(self, memory: Memory) -> list[Memory]:
        """The steps of the old plan that remember the same window."""
        found = [
            each
            for several in self._held.values()
            for each in several
            if each.window == memory.window and each.stream == memory.stream
            if not isinstance(each.node, WindowActivity)
        ]
        if isinstance(memory.node, WindowActivity):
            return found
        wanted = self._identity(memory, self._new)
        return [each for each in found if self._identity(each, self._old) == wanted]

    def _regrouped(self, node: Node) -> Regroup | None:
        if len(self._needs[node]) != 1 or self._needs[node][0].is_merged:
            return None
        (need,) = self._needs[node]
        for holder in self._holders(need):
            if holder.filter == need.filter and not holder.is_merged:
                found = regrouped(holder.node, holder.items, node, need.items)
                if found is not None:
                    return found
        return None

    def _replay(self, memory: Memory) -> Replay:
        if memory.is_merged:
            raise _Refused(f"tuples of {memory.name} come to one step together with others")
        if isinstance(memory.node, logical.WindowReports):
            raise _Refused(f"the bounds of the last report of {memory.name} are not known")
        reasons: list[str] = []
        for holder in self._holders(memory):
            found = self._from(holder, memory)
            if isinstance(found, Replay):
                return found
            reasons.append(found)
        raise _Refused(min(reasons, default=f"the rows so far of {memory.name} are kept nowhere"))

    def _from(self, holder: Memory, memory: Memory) -> Replay | str:
        """How a step gets its tuples from another, or why it cannot."""
        if not holder.holds_rows:
            return f"what its old text keeps of {memory.name} is not its rows"
        missing = holder.filter - memory.filter
        if missing:
            shown = " and ".join(sorted(map(show, missing)))
            why = (
                "RSTREAM fires when any tuple leaves, and " if isinstance(memory.node, WindowActivity) else ""
            )
            return f"{why}its old text keeps only those tuples of {memory.name} for which {shown}"
        try:
            wanted = () if isinstance(memory.node, WindowActivity) else memory.items
            items = tuple(_over(each, holder.items) for each in wanted)
            more = sorted(memory.filter - holder.filter, key=show)
            condition = conjunction(tuple(_over(each, holder.items) for each in more))
            return Replay(holder.node, holder.position, condition, items)
        except KeyError as column:
            return f"its old text does not keep {column.args[0]} of {memory.name}"


def _is_over(memory: Memory, window: WindowIdentity) -> bool:
    """Whether a step may remember this window."""
    return memory.stream.name.lower() == window.stream and memory.window == window.window


def _over(expr: Expr, items: tuple[Expr, ...]) -> Expr:
    """An expression over a stream as one over some items; KeyError with the column that is missing."""
    if expr in items:
        return Column(expr.type, 0, items.index(expr), show(expr))
    if isinstance(expr, Column):
        for index, item in enumerate(items):
            if isinstance(item, Cast) and item.arg == expr and _is_widened(expr.type, item.type):
                return Cast(expr.type, Column(item.type, 0, index, show(item)))
        raise KeyError(show(expr))
    return map_children(expr, lambda part: _over(part, items))


def _is_widened(narrow: Type, wide: Type) -> bool:
    """Whether a value that was cast to another type, as SUM does, can be cast back."""
    return narrow.kind is Kind.INTEGER and wide.kind in (Kind.BIGINT, Kind.DOUBLE)


def _inputs_first(plan: Node) -> list[Node]:
    """The nodes of a plan, each once."""
    found: dict[Node, None] = {}
    todo = [(plan, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            found.setdefault(node)
        elif node not in found:
            todo.append((node, True))
            todo += [(child, False) for child in reversed(node.children)]
    return list(found)


def carried(plan: Node, had: Set[Node], kept: Set[Node]) -> frozenset[Node]:
    """The nodes of a plan that are in another one, too, over nothing that would not be kept."""
    found: dict[Node, bool] = {}
    for node in _inputs_first(plan):
        below = all(found[child] for child in node.children)
        found[node] = below and node in had and (is_stateless(node) or node in kept)
    return frozenset(node for node, is_there in found.items() if is_there)
