"""The queries of a pipeline whose operators are on shards: which are there, and which come and go when.

A change is scheduled at once, and takes effect when the clock passes its time. Between deciding and that, the
shards keep the tuples that the queries to come will need. So without AT, a change takes effect at the first
time of which nothing has come: what came before has gone to shards only where others needed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kasen.engine.batch import Batch
from kasen.errors import DataError, QueryError, ResourceError
from kasen.plan.changes import (
    CatalogChange,
    Drop,
    LiveCatalog,
    Register,
    RegisteredQuery,
    StreamKind,
    statement_of,
)
from kasen.plan.explain.fragments import explain_fragments
from kasen.plan.keep.pinned import replacement_of, replacement_to_json
from kasen.plan.logical import Ref, Streamify, walk
from kasen.plan.physical import App
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import EarlierQueries, Generation, check_whole, later, lies_alike, replacing
from kasen.runtime.live.dry_run import dry_run
from kasen.runtime.pipeline import Answer
from kasen.runtime.shard.clock import Clock, SplicePoint

#: Below all times: changes before the beginning.
_BEFORE = -(2**62)
_IN_DRIVER = "or run it with --place driver"


@dataclass(slots=True)
class ScheduledChange:
    """A change whose time is known, and the generation of each query that comes with it."""

    change: CatalogChange
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def at(self) -> int:
        return _BEFORE if self.change.at is None else self.change.at


@dataclass(slots=True)
class LiveGeneration:
    """A generation, which of its queries are there or will come, and the epoch in which the last one went."""

    generation: Generation
    live: set[str] = field(default_factory=set)
    #: Since when its queries are there; None: the beginning.
    since: int | None = None
    gone: int | None = None
    #: Where the older queries are that it reads: those may have been replaced since it came.
    reads: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: The same when all that is scheduled has taken effect.
    reads_later: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def replaced(self) -> frozenset[str]:
        """Its own queries that were replaced."""
        return frozenset(self.reads.keys() - self.generation.reads.keys())


@dataclass(frozen=True, slots=True)
class StateSize:
    """What shards remember, as they have told last."""

    groups: int = 0
    bytes: int = 0


class RemoteQueries:
    """What the driver knows of queries on shards."""

    def __init__(self, cut: FragmentPlan, clock: Clock) -> None:
        self._app = app = cut.plan.app
        self._cut = cut
        self._clock = clock
        self._catalog = LiveCatalog.of(replace(app, changes=()))
        self._generations = {0: LiveGeneration(Generation(0, cut), {query.name for query in app.queries})}
        self._next = 1
        self._generation_of: dict[str, int] = {query.name: 0 for query in app.queries}
        self._scheduled: list[ScheduledChange] = []
        self.queries: dict[str, RegisteredQuery] = {query.name: query for query in app.queries}
        #: Whoever writes answers may refuse a change.
        self.on_check: Callable[[CatalogChange], None] = lambda _: None
        self.state_size: Callable[[], StateSize] = StateSize
        for change in app.changes:
            self._schedule(change)

    # ------------------------------------------------------------ what is there

    @property
    def pending(self) -> list[CatalogChange]:
        """The changes that have not taken effect."""
        return [each.change for each in self._scheduled]

    @property
    def is_live(self) -> bool:
        """Whether queries have changed, or will."""
        return bool(self._scheduled) or self._next > 1 or len(self.queries) < len(self._app.queries)

    @property
    def generations(self) -> list[tuple[Generation, frozenset[str], frozenset[str]]]:
        """Those that shards may need; with their queries that are there or will come, and that went over."""
        return [(each.generation, frozenset(each.live), each.replaced) for each in self._generations.values()]

    @property
    def _plans(self) -> dict[int, Generation]:
        """The generations, with what they read where it will be."""
        return {
            number: replace(
                each.generation, reads={name: each.reads_later[name] for name in each.generation.reads}
            )
            for number, each in self._generations.items()
        }

    @property
    def since(self) -> dict[str, int | None]:
        """Since when each query is there; None: the beginning."""
        return {name: self._generations[number].since for name, number in self._generation_of.items()}

    def explain(self, name: str) -> str:
        """How the queries that came together with this one run on shards."""
        found = {each.lower(): number for each, number in self._generation_of.items()}.get(name.lower())
        if found is None:
            known = ", ".join(self.queries) or "none"
            raise DataError(f"no query {name!r}; live are: {known}")
        return explain_fragments(self._generations[found].generation.cut)

    @property
    def levels(self) -> int:
        return max(each.generation.levels for each in self._generations.values())

    # ------------------------------------------------------------ changing

    def execute(self, text: str) -> tuple[CatalogChange, ...]:
        """Registers and drops queries as a CQL text says. Returns the changes with their times."""
        time = self._clock.come
        now = _BEFORE if time is None else time
        changes = self._as_of(now).catalog.bind(text)
        if len(changes) > 1:
            raise QueryError("one text cannot change queries at several times", remedy="give one text a time")
        for change in changes:
            if change.at is not None and change.at < now:
                fault = f"tuples of the time {now - 1} have come already: the next is {now}"
                raise QueryError(fault, remedy="leave AT out, or name a later time")
        done = [change if change.at is not None else replace(change, at=time) for change in changes]
        for change in done:
            self._check_limits(change)
            self.on_check(change)
            self._schedule(change)
        return tuple(done)

    def _check_limits(self, change: CatalogChange) -> None:
        """Refuses a newcomer where a limit is reached; those who are here go on."""
        more = sum(isinstance(action, Register) and not action.replaces for action in change.actions)
        if not more:
            return
        there = sum(len(each.live) for each in self._generations.values())
        held = self.state_size()
        limits = (
            ("max_queries", there + more - 1, f"{there} queries are live"),
            ("max_groups", held.groups, f"the live queries have {held.groups} groups"),
            ("max_state_bytes", held.bytes, f"the live queries remember {held.bytes} bytes"),
        )
        for name, found, told in limits:
            most = int(self._app.setting(name, "100000" if name == "max_queries" else "0"))
            if most and found >= most:
                raise ResourceError(f"{told} and {most} is the most: SET {name}")

    def _schedule(self, change: CatalogChange) -> None:
        scheduled = ScheduledChange(change)
        coming = [action for action in change.actions if isinstance(action, Register)]
        self._check_change(scheduled, coming)
        older = self._as_of(scheduled.at)
        names = older.catalog.copy()
        names.apply(change)
        where = dict(older.where)
        made: list[Generation] = []
        for group in _group_by_generation(coming, older.catalog):
            queries, number = [one.query for one in group], self._next + len(made)
            there = replace(older, where=dict(where))
            if group[0].replaces:
                found = replacing(number, self._app, queries[0], names, there)
            else:
                found = later(number, self._app, queries, names, there)
            for one in queries:
                check_whole(one, found.cut.plan)
                where[one.name.lower()] = (found, one.name)
                scheduled.numbers[one.name] = found.number
            made.append(found)
        dry_run(self._app, made, self._plans)
        for found in made:
            if found.replaces is not None:
                self._check_readers(found, change)
        for found in made:
            live = {query.name for query in found.queries}
            self._generations[found.number] = LiveGeneration(
                found, live, change.at, None, dict(found.reads), dict(found.reads)
            )
        for found in made:
            if found.replaces is not None:
                self._move_reads(found, lambda each: each.reads_later)
        self._next += len(made)
        self._scheduled.append(scheduled)
        self._scheduled.sort(key=lambda each: each.at)

    def _as_of(self, time: int) -> EarlierQueries:
        """The queries as they will be at a time, and where each of them is."""
        catalog, where = self._catalog.copy(), dict(self._generation_of)
        for each in self._scheduled:
            if each.at <= time:
                catalog.apply(each.change)
                self._move(each, where)
        places = {
            name.lower(): (self._generations[number].generation, name) for name, number in where.items()
        }
        return EarlierQueries(catalog, places, self._cut)

    def _move(self, scheduled: ScheduledChange, where: dict[str, int]) -> tuple[tuple[int, str], ...]:
        """Applies a change to where queries are; returns those that go."""
        goes = [action.name for action in scheduled.change.actions if isinstance(action, Drop)]
        goes += [name for name in where if name.lower() in {each.lower() for each in scheduled.numbers}]
        gone = tuple((where.pop(name), name) for name in goes if name in where)
        where |= scheduled.numbers
        return gone

    def _check_change(self, scheduled: ScheduledChange, coming: list[Register]) -> None:
        """Refuses what shards cannot do."""
        for one in coming:
            if one.backfill:
                name = one.query.name
                fault = f"{name} cannot be backfilled on executors: the past of streams is not kept there"
                raise QueryError(fault, remedy=f"leave BACKFILL out, {_IN_DRIVER}")
        touched = {action.name.lower() for action in scheduled.change.actions if isinstance(action, Drop)}
        touched |= {one.query.name.lower() for one in coming if one.replaces}
        for each in self._scheduled:
            if each.at == scheduled.at and each.change.at is not None:
                same = touched & {name.lower() for name in each.numbers}
                if same:
                    fault = f"{min(same)} comes or is replaced at {each.at} itself, which has not run"
                    raise QueryError(f"{fault} on executors", remedy="change it when more has come")
            if each.at > scheduled.at:
                later_ = {
                    action.query.name.lower()
                    for action in each.change.actions
                    if isinstance(action, Register) and action.replaces
                }
                read = {name for number in each.numbers.values() for name in self._generations[number].reads}
                if both := touched & (later_ | read):
                    fault = f"{min(both)} will be read or replaced at {each.at} by a change that waits"
                    raise QueryError(f"{fault} on executors", remedy="change it after that")

    def _check_readers(self, new: Generation, change: CatalogChange) -> None:
        """Who reads a query that is replaced must find the new one where the old one was."""
        assert new.replaces is not None
        old, name = (new.replaces.number, new.replaces.name), new.replaces.name
        changed = {action.name for action in change.actions if isinstance(action, Drop)}
        changed |= {action.query.name for action in change.actions if isinstance(action, Register)}
        readers = [
            query.name
            for number, each in self._generations.items()
            for query in each.generation.queries
            if query.name in each.live - changed and self._reads(number, query, old)
        ]
        if readers and not lies_alike(self._generations[old[0]].generation, new, new.queries[0].name):
            fault = f"{readers[0]} reads {name}, whose rows would lie elsewhere on executors"
            raise QueryError(fault, remedy=f"replace {readers[0]} in the same text, {_IN_DRIVER}")
        if any(
            old in self._generations[number].reads_later.values() for number in self._generations_read(new)
        ):
            fault = f"{name} is read by queries that came together with such that its new text reads"
            raise QueryError(f"{fault}: this cannot be done on executors", remedy=_IN_DRIVER[3:])
        for reader in self._rstream_readers({old}):
            fault = f"RSTREAM in {reader} fires when windows of {name} move: it cannot be replaced"
            raise QueryError(fault, remedy=f"drop {reader} first, and register it again then")

    def _reads(self, number: int, query: RegisteredQuery, old: tuple[int, str]) -> bool:
        """Whether a query of a generation reads another one, which may be of the same generation."""
        reads, names = self._generations[number].reads_later, self._catalog.reads(query)
        own = number == old[0] and old[1].lower() not in reads and old[1].lower() in names
        return own or any(reads.get(name) == old for name in names)

    def _generations_read(self, one: Generation) -> set[int]:
        """The generations that one reads, directly or not."""
        found: set[int] = set()
        todo = [number for number, _ in one.reads.values()]
        while todo:
            number = todo.pop()
            if number in self._generations and number not in found:
                found.add(number)
                todo += [where for where, _ in self._generations[number].reads_later.values()]
        return found

    def _rstream_readers(self, read: set[tuple[int, str]]) -> list[str]:
        """Queries with RSTREAM over relations that are among these, or are read by such."""
        found: list[str] = []
        for number, each in self._generations.items():
            plan = each.generation.cut.plan
            for query in each.generation.queries:
                if query.name not in each.live or (number, query.name) in read:
                    continue
                root = plan.steps[each.generation.root(query.name)].node
                refs = {node.name.lower() for node in walk(root) if isinstance(node, Ref)}
                here = {query.name.lower() for query in each.generation.queries}
                reads = {
                    each.reads_later.get(ref, (number, ref))
                    for ref in refs
                    if ref in each.reads_later or ref in here
                }
                lower = {(where, name.lower()) for where, name in read}
                if not {(where, name.lower()) for where, name in reads} & lower:
                    continue
                if any(
                    isinstance(node, Streamify) and node.kind is StreamKind.RSTREAM and node.every is None
                    for node in walk(root)
                ):
                    found.append(query.name)
                elif not query.is_stream:
                    found += self._rstream_readers(read | {(number, query.name)})
        return found

    # ------------------------------------------------------------ taking effect

    def splices(self) -> list[SplicePoint]:
        """The changes to come, in the order of their times, as the clock needs them."""
        where, found = dict(self._generation_of), []
        for each in self._scheduled:
            goes = self._move(each, where)
            found.append(SplicePoint(each.at, tuple(dict.fromkeys(each.numbers.values())), goes))
        return found

    def answers(
        self, changes: Mapping[str, Batch], splices: Iterable[SplicePoint], epoch: int
    ) -> list[Answer]:
        """What was gathered in an epoch, cut where queries came and went. The changes have taken effect."""
        found = []
        for splice in splices:
            scheduled = self._scheduled.pop(0)
            answer = self._answer(changes, splice.at)
            answer.change = scheduled.change
            found.append(answer)
            changes = {name: batch.where(batch.ts >= splice.at) for name, batch in changes.items()}
            self._apply(scheduled, splice, epoch)
        return [*found, self._answer(changes)]

    def _answer(self, changes: Mapping[str, Batch], until: int | None = None) -> Answer:
        answer = Answer(queries=self.queries)
        for name, number in self._generation_of.items():
            batch = changes.get(self._generations[number].generation.answer(name))
            if batch is not None:
                answer.changes[name] = batch if until is None else batch.where(batch.ts < until)
        return answer

    def _apply(self, scheduled: ScheduledChange, splice: SplicePoint, epoch: int) -> None:
        self._catalog.apply(scheduled.change)
        self.queries = dict(self.queries)
        for number, name in splice.goes:
            generation = self._generations[number]
            generation.live.discard(name)
            del self._generation_of[name], self.queries[name]
            if not generation.live:
                generation.gone = epoch
        for action in scheduled.change.actions:
            if isinstance(action, Register):
                number = scheduled.numbers[action.query.name]
                self._generation_of[action.query.name] = number
                self.queries[action.query.name] = action.query
                if self._generations[number].generation.replaces is not None:
                    self._move_reads(self._generations[number].generation, lambda each: each.reads)

    def _move_reads(
        self, new: Generation, reads: Callable[[LiveGeneration], dict[str, tuple[int, str]]]
    ) -> None:
        """Who read a query that was replaced reads the new one, if that lies where it was."""
        assert new.replaces is not None
        old, name = self._generations[new.replaces.number], new.queries[0].name
        if lies_alike(old.generation, new, name):
            reads(old)[name.lower()] = (new.number, name)
            for each in self._generations.values():
                for read, where in reads(each).items():
                    if where == (new.replaces.number, new.replaces.name):
                        reads(each)[read] = (new.number, name)

    def forget(self, oldest: int) -> None:
        """Generations that went before all snapshots that a shard may go on from are needed no more."""
        self._generations = {
            number: each
            for number, each in self._generations.items()
            if not number or each.gone is None or each.gone > oldest
        }

    # ------------------------------------------------------------ state

    def save(self) -> dict[str, Any]:
        """What a commit record must hold."""
        return {
            "next": self._next,
            "where": self._generation_of,
            "prepared": self._catalog.as_text(()),
            "decided": [
                {
                    "text": _change_text(each.change, self._catalog),
                    "at": each.change.at,
                    "numbers": each.numbers,
                }
                for each in self._scheduled
            ],
            "generations": [
                {
                    "number": number,
                    "queries": {
                        query.name: statement_of(Register(query)) for query in each.generation.queries
                    },
                    "read": each.generation.reads,
                    "reads": each.reads,
                    "replaces": None
                    if each.generation.replaces is None
                    else replacement_to_json(each.generation.replaces),
                    "live": sorted(each.live),
                    "since": each.since,
                    "gone": each.gone,
                }
                for number, each in self._generations.items()
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Goes on from what a commit record holds."""
        self._next, self._generation_of = saved["next"], dict(saved["where"])
        inputs = replace(self._app, queries=(), prepared=(), loops=(), changes=())
        self._generations = {0: self._generations[0]}
        waiting = {one["number"]: one for one in saved["generations"]}
        while waiting:
            # What one reads may have come later, in the place of another.
            ready = [
                number
                for number, one in waiting.items()
                if not {one["reads"][name][0] for name in one["read"]} & waiting.keys()
            ]
            assert ready
            for number in ready:
                self._generations[number] = self._restored(waiting.pop(number), inputs)
        self._generations = dict(sorted(self._generations.items()))
        self.queries = {
            name: self._generations[number].generation.query(name)
            for name, number in self._generation_of.items()
        }
        self._catalog = LiveCatalog.of(replace(inputs, queries=tuple(self.queries.values())))
        for change in self._catalog.bind(saved["prepared"]):
            self._catalog.apply(change)
        self._scheduled = []
        for one in saved["decided"]:
            catalog = self._catalog.copy()
            for each in self._scheduled:
                catalog.apply(each.change)
            # A change may come to nothing: what it registers, it drops.
            change = next(iter(catalog.bind(one["text"])), CatalogChange(None, ()))
            self._scheduled.append(ScheduledChange(replace(change, at=one["at"]), one["numbers"]))
        for number in (each for one in self._scheduled for each in one.numbers.values()):
            if self._generations[number].generation.replaces is not None:
                self._move_reads(self._generations[number].generation, lambda each: each.reads_later)

    def _restored(self, one: dict[str, Any], inputs: App) -> LiveGeneration:
        number = one["number"]
        reads = {name: (where, exact) for name, (where, exact) in one["reads"].items()}
        generation = self._generations[0].generation
        if number:
            where = {
                name: (self._generations[each].generation, exact)
                for name, (each, exact) in reads.items()
                if name in one["read"]
            }
            read = tuple(each.query(exact) for each, exact in where.values())
            names = LiveCatalog.of(replace(inputs, queries=read))
            for change in names.bind(";\n".join(one["queries"].values())):
                names.apply(change)
            queries = [names.queries[name.lower()] for name in one["queries"]]
            replaces = None if one["replaces"] is None else replacement_of(one["replaces"])
            generation = later(
                number, self._app, queries, names, EarlierQueries(names, where, self._cut), replaces
            )
            generation = replace(
                generation,
                reads={name: (each, exact) for name, (each, exact) in one["read"].items()},
            )
        return LiveGeneration(generation, set(one["live"]), one["since"], one["gone"], reads, dict(reads))


def _group_by_generation(coming: list[Register], catalog: LiveCatalog) -> list[list[Register]]:
    """Those that become a generation together: all that are new; each that replaces one, alone.

    In an order in which those come first that others read.
    """
    new = [one for one in coming if not one.replaces]
    old = [[one] for one in coming if one.replaces]
    if not new or not old:
        return [*([new] if new else []), *old]
    names = {one.query.name.lower() for one in new}
    replaced = {one.query.name.lower() for (one,) in old}
    reads_replaced = any(catalog.reads(one.query) & replaced for one in new)
    reads_new = any(catalog.reads(one.query) & names for (one,) in old)
    if reads_replaced and reads_new:
        fault = "queries that come and such that are replaced read one another, which executors refuse"
        raise QueryError(fault, remedy="give two texts, one after the other, or run it with --place driver")
    return [*old, new] if reads_replaced else [new, *old]


def _change_text(change: CatalogChange, catalog: LiveCatalog) -> str:
    """A change as a text, without its time and what else waits."""
    bare = LiveCatalog(catalog.time, catalog.inputs)
    return bare.as_text([replace(change, at=None)])
