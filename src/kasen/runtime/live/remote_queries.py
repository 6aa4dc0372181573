"""The queries of a pipeline whose operators are on shards: which are live, and which come and go when.

A change is scheduled first, and takes effect when the clock passes its time. Between the two, shards keep the
tuples that the queries to come will need. So without AT, a change takes effect at the first time of which
nothing has come: what came before has gone to shards only where others needed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kasen.engine.batch import Batch
from kasen.errors import DataError, QueryError
from kasen.plan.changes import CatalogChange, Drop, LiveCatalog, Register, RegisteredQuery
from kasen.plan.explain.fragments import explain_fragments
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import (
    EarlierQueries,
    Generation,
    check_rstream,
    plan_generation,
    plan_replacement,
)
from kasen.runtime.live.dry_run import dry_run
from kasen.runtime.live.limits import StateSize, check_limits
from kasen.runtime.live.remote_generations import IN_DRIVER, QueryPlace, RemoteGenerations
from kasen.runtime.pipeline import Answer
from kasen.runtime.shard.clock import Clock, SplicePoint

#: Below all times: changes before the beginning.
_BEFORE = -(2**62)


@dataclass(slots=True)
class ScheduledChange:
    """A change whose time is known, and the generation of each query that comes with it."""

    change: CatalogChange
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def at(self) -> int:
        return _BEFORE if self.change.at is None else self.change.at

    @property
    def registered(self) -> list[Register]:
        return [action for action in self.change.actions if isinstance(action, Register)]

    @property
    def dropped(self) -> list[str]:
        return [action.name for action in self.change.actions if isinstance(action, Drop)]

    @property
    def replaced(self) -> set[str]:
        """The queries that it replaces, in lower case."""
        return {action.query.name.lower() for action in self.registered if action.replaces}


class RemoteQueries:
    """What the driver knows of queries on shards."""

    def __init__(self, cut: FragmentPlan, clock: Clock) -> None:
        self._app = app = cut.plan.app
        self._cut = cut
        self._clock = clock
        self._catalog = LiveCatalog.of(replace(app, changes=()))
        self._generations = RemoteGenerations(cut)
        self._next = 1
        self._generation_of: dict[str, int] = {query.name: 0 for query in app.queries}
        self._scheduled: list[ScheduledChange] = []
        self.queries: dict[str, RegisteredQuery] = {query.name: query for query in app.queries}
        #: Whoever writes answers may refuse a change.
        self.on_check: Callable[[CatalogChange], None] = lambda _: None
        self.state_size: Callable[[], StateSize] = StateSize
        for change in app.changes:
            self._schedule(change)

    # ------------------------------------------------------------ what is live

    @property
    def pending(self) -> list[CatalogChange]:
        """The changes that have not taken effect."""
        return [scheduled.change for scheduled in self._scheduled]

    @property
    def is_live(self) -> bool:
        """Whether queries have changed, or will."""
        return bool(self._scheduled) or self._next > 1 or len(self.queries) < len(self._app.queries)

    @property
    def generations(self) -> list[tuple[Generation, frozenset[str], frozenset[str]]]:
        """Those that shards may need; their live and pending queries, and their replaced queries."""
        return [(each.generation, frozenset(each.live), each.replaced) for each in self._generations.all()]

    @property
    def since(self) -> dict[str, int | None]:
        """Since when each query is live; None: the beginning."""
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
        return max(each.generation.levels for each in self._generations.all())

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
        timed = [change if change.at is not None else replace(change, at=time) for change in changes]
        for change in timed:
            live = sum(len(each.live) for each in self._generations.all())
            check_limits(
                self._app, change, live, lambda: self.state_size().groups, lambda: self.state_size().bytes
            )
            self.on_check(change)
            self._schedule(change)
        return tuple(timed)

    def _schedule(self, change: CatalogChange) -> None:
        scheduled = ScheduledChange(change)
        self._check_backfill(scheduled)
        self._check_others(scheduled)
        made = self._plan(scheduled)
        dry_run(self._app, made, self._generations.when_scheduled())
        for generation in made:
            self._generations.check_readers(generation, change, self._catalog)
        self._generations.add(made, change.at)
        self._next += len(made)
        self._scheduled.append(scheduled)
        self._scheduled.sort(key=lambda each: each.at)

    def _plan(self, scheduled: ScheduledChange) -> list[Generation]:
        """The generations of the queries that come with a change."""
        older = self._as_of(scheduled.at)
        names = older.catalog.copy()
        names.apply(scheduled.change)
        where = dict(older.where)
        made: list[Generation] = []
        for group in _group_by_generation(scheduled.registered, older.catalog):
            queries, number = [action.query for action in group], self._next + len(made)
            earlier = replace(older, where=dict(where))
            if group[0].replaces:
                generation = plan_replacement(number, self._app, queries[0], names, earlier)
            else:
                generation = plan_generation(number, self._app, queries, names, earlier)
            for query in queries:
                check_rstream(query, generation.cut.plan)
                where[query.name.lower()] = (generation, query.name)
                scheduled.numbers[query.name] = number
            made.append(generation)
        return made

    def _as_of(self, time: int) -> EarlierQueries:
        """The queries as they will be at a time, and where each of them is."""
        catalog, numbers = self._catalog.copy(), dict(self._generation_of)
        for scheduled in self._scheduled:
            if scheduled.at <= time:
                catalog.apply(scheduled.change)
                _apply_names(scheduled, numbers)
        where = {
            name.lower(): (self._generations[number].generation, name) for name, number in numbers.items()
        }
        return EarlierQueries(catalog, where, self._cut)

    def _check_backfill(self, scheduled: ScheduledChange) -> None:
        for action in scheduled.registered:
            if action.backfill:
                name = action.query.name
                fault = f"{name} cannot be backfilled on executors: the past of streams is not kept there"
                raise QueryError(fault, remedy=f"leave BACKFILL out, {IN_DRIVER}")

    def _check_others(self, scheduled: ScheduledChange) -> None:
        """Refuses to drop or replace what another scheduled change brings, reads or replaces."""
        touched = {name.lower() for name in scheduled.dropped} | scheduled.replaced
        for other in self._scheduled:
            numbers = other.numbers
            if other.at == scheduled.at and other.change.at is not None:
                same = touched & {name.lower() for name in numbers}
                if same:
                    fault = f"{min(same)} comes or is replaced at {other.at} itself, which has not run"
                    raise QueryError(f"{fault} on executors", remedy="change it when more has come")
            if other.at > scheduled.at:
                read = {name for number in numbers.values() for name in self._generations[number].reads}
                if both := touched & (other.replaced | read):
                    fault = f"{min(both)} will be read or replaced at {other.at} by a change that waits"
                    raise QueryError(f"{fault} on executors", remedy="change it after that")

    # ------------------------------------------------------------ taking effect

    def splices(self) -> list[SplicePoint]:
        """The changes to come, in the order of their times, as the clock needs them."""
        numbers, found = dict(self._generation_of), []
        for scheduled in self._scheduled:
            goes = _apply_names(scheduled, numbers)
            found.append(SplicePoint(scheduled.at, tuple(dict.fromkeys(scheduled.numbers.values())), goes))
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
            live = self._generations[number].live
            live.discard(name)
            del self._generation_of[name], self.queries[name]
            if not live:
                self._generations[number].gone = epoch
        for action in scheduled.registered:
            name = action.query.name
            self._generation_of[name] = number = scheduled.numbers[name]
            self.queries[name] = action.query
            self._generations.move_now(self._generations[number].generation)

    def forget(self, oldest: int) -> None:
        """Generations that went before all snapshots that a shard may resume from are not needed any more."""
        self._generations.forget(oldest)

    # ------------------------------------------------------------ state

    def save(self) -> dict[str, Any]:
        """What a commit record must hold."""
        return {
            "next": self._next,
            "where": self._generation_of,
            "prepared": self._catalog.as_text(()),
            "decided": [
                {
                    "text": _change_text(scheduled.change, self._catalog),
                    "at": scheduled.change.at,
                    "numbers": scheduled.numbers,
                }
                for scheduled in self._scheduled
            ],
            "generations": self._generations.save(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Goes on from what a commit record holds."""
        self._next, self._generation_of = saved["next"], dict(saved["where"])
        inputs = replace(self._app, queries=(), prepared=(), loops=(), changes=())
        self._generations.restore(saved["generations"], inputs)
        self.queries = {
            name: self._generations[number].generation.query(name)
            for name, number in self._generation_of.items()
        }
        self._catalog = LiveCatalog.of(replace(inputs, queries=tuple(self.queries.values())))
        for change in self._catalog.bind(saved["prepared"]):
            self._catalog.apply(change)
        self._scheduled = []
        for entry in saved["decided"]:
            catalog = self._catalog.copy()
            for each in self._scheduled:
                catalog.apply(each.change)
            # A change may come to nothing: what it registers, it drops.
            change = next(iter(catalog.bind(entry["text"])), CatalogChange(None, ()))
            self._scheduled.append(ScheduledChange(replace(change, at=entry["at"]), entry["numbers"]))
        for number in (each for scheduled in self._scheduled for each in scheduled.numbers.values()):
            self._generations.move_later(self._generations[number].generation)


def _apply_names(scheduled: ScheduledChange, numbers: dict[str, int]) -> tuple[QueryPlace, ...]:
    """Applies a change to the generations of queries by name; returns the queries that go."""
    coming = {name.lower() for name in scheduled.numbers}
    goes = [*scheduled.dropped, *(name for name in numbers if name.lower() in coming)]
    gone = tuple((numbers.pop(name), name) for name in goes if name in numbers)
    numbers |= scheduled.numbers
    return gone


def _group_by_generation(coming: list[Register], catalog: LiveCatalog) -> list[list[Register]]:
    """Those that become a generation together: all that are new; each that replaces one, alone.

    Those that others read come first.
    """
    new = [action for action in coming if not action.replaces]
    replacements = [[action] for action in coming if action.replaces]
    if not new or not replacements:
        return [*([new] if new else []), *replacements]
    names = {action.query.name.lower() for action in new}
    replaced = {action.query.name.lower() for (action,) in replacements}
    reads_replaced = any(catalog.reads(action.query) & replaced for action in new)
    reads_new = any(catalog.reads(action.query) & names for (action,) in replacements)
    if reads_replaced and reads_new:
        fault = "queries that come and such that are replaced read one another, which executors refuse"
        raise QueryError(fault, remedy="give two texts, one after the other, or run it with --place driver")
    return [*replacements, new] if reads_replaced else [new, *replacements]


def _change_text(change: CatalogChange, catalog: LiveCatalog) -> str:
    """A change as a text, without its time and what else waits."""
    bare = LiveCatalog(catalog.time, catalog.inputs)
    return bare.as_text([replace(change, at=None)])
