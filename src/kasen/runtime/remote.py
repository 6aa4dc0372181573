"""The queries of a pipeline whose operators are on shards: which are there, and which come and go when.

A change is decided at once, and takes effect when the clock passes its time. Between deciding and that, the
shards keep the tuples that the queries to come will need. So without AT, a change takes effect at the first
time of which nothing has come: what came before has gone to shards only where others needed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kasen.errors import DataError, QueryError, ResourceError
from kasen.operators.batch import Batch
from kasen.plan.changes import Change, Drop, LiveCatalog, Register, RegisteredQuery, statement_of
from kasen.plan.explain_fragments import explain_fragments
from kasen.plan.fragments import Cut
from kasen.plan.generations import Generation, check_whole, keeps_contents, later
from kasen.plan.logical import Ref
from kasen.runtime.clock import Clock, Splice
from kasen.runtime.pipeline import Answer

#: Below all times: changes before the beginning.
_BEFORE = -(2**62)
_IN_DRIVER = "or run it with --place driver"


@dataclass(slots=True)
class Decided:
    """A change whose time is known, and the generation of the queries that come with it, if any do."""

    change: Change
    number: int | None = None

    @property
    def at(self) -> int:
        return _BEFORE if self.change.at is None else self.change.at


@dataclass(slots=True)
class _Lived:
    """A generation, which of its queries are there or will come, and the epoch in which the last one went."""

    generation: Generation
    live: set[str] = field(default_factory=set)
    #: Since when its queries are there; None: the beginning.
    since: int | None = None
    gone: int | None = None


class RemoteQueries:
    """What the driver knows of queries on shards."""

    def __init__(self, cut: Cut, clock: Clock) -> None:
        self._app = app = cut.plan.app
        self._cut = cut
        self._clock = clock
        self._catalog = LiveCatalog.of(replace(app, changes=()))
        self._lived = {0: _Lived(Generation(0, cut), {one.name for one in app.queries})}
        self._next = 1
        self._where: dict[str, int] = {one.name: 0 for one in app.queries}
        self._decided: list[Decided] = []
        self.queries: dict[str, RegisteredQuery] = {one.name: one for one in app.queries}
        #: Whoever writes answers may refuse a change.
        self.on_check: Callable[[Change], None] = lambda _: None
        for change in app.changes:
            self._decide(change)

    # ------------------------------------------------------------ what is there

    @property
    def pending(self) -> list[Change]:
        """The changes that have not taken effect."""
        return [each.change for each in self._decided]

    @property
    def is_live(self) -> bool:
        """Whether queries have changed, or will."""
        return bool(self._decided) or self._next > 1 or len(self.queries) < len(self._app.queries)

    @property
    def generations(self) -> list[tuple[Generation, frozenset[str]]]:
        """Those that shards may need, with their queries that are there or will come."""
        return [(each.generation, frozenset(each.live)) for each in self._lived.values()]

    @property
    def _plans(self) -> dict[int, Generation]:
        return {number: each.generation for number, each in self._lived.items()}

    @property
    def since(self) -> dict[str, int | None]:
        """Since when each query is there; None: the beginning."""
        return {name: self._lived[number].since for name, number in self._where.items()}

    def explain(self, name: str) -> str:
        """How the queries that came together with this one run on shards."""
        found = {each.lower(): number for each, number in self._where.items()}.get(name.lower())
        if found is None:
            known = ", ".join(self.queries) or "none"
            raise DataError(f"no query {name!r}; live are: {known}")
        return explain_fragments(self._lived[found].generation.cut)

    @property
    def levels(self) -> int:
        return max(each.generation.levels for each in self._lived.values())

    # ------------------------------------------------------------ changing

    def execute(self, text: str) -> tuple[Change, ...]:
        """Registers and drops queries as a CQL text says. Returns the changes with their times."""
        time = self._clock.come
        now = _BEFORE if time is None else time
        changes = self._as_of(now)[0].bind(text)
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
            self._decide(change)
        return tuple(done)

    def _check_limits(self, change: Change) -> None:
        more = sum(isinstance(one, Register) and not one.replaces for one in change.actions)
        most = int(self._app.setting("max_queries", "100000"))
        there = sum(len(each.live) for each in self._lived.values())
        if more and there + more > most:
            raise ResourceError(f"{there} queries are live and {most} is the most: SET max_queries")

    def _decide(self, change: Change) -> None:
        coming = [one for one in change.actions if isinstance(one, Register)]
        decided = Decided(change)
        self._check_reads(decided)
        if coming:
            self._check(coming)
            decided.number = self._next
            catalog, older = self._as_of(decided.at)
            catalog.apply(change)
            queries = [one.query for one in coming]
            generation = later(self._next, self._app, queries, catalog, self._cut, older)
            for one in queries:
                check_whole(one, generation.cut.plan)
            for step in generation.cut.plan.steps:
                if isinstance(step.node, Ref) and not step.node.is_stream:
                    keeps_contents(self._plans, *generation.reads[step.node.name.lower()])
            self._lived[self._next] = _Lived(generation, {one.name for one in queries}, change.at)
            self._next += 1
        self._decided.append(decided)
        self._decided.sort(key=lambda each: each.at)

    def _as_of(self, time: int) -> tuple[LiveCatalog, dict[str, tuple[Generation, str]]]:
        """The queries as they will be at a time, and where each of them is."""
        catalog, where = self._catalog.copy(), dict(self._where)
        for each in self._decided:
            if each.at <= time:
                catalog.apply(each.change)
                self._move(each, where)
        return catalog, {
            name.lower(): (self._lived[number].generation, name) for name, number in where.items()
        }

    def _move(self, decided: Decided, where: dict[str, int]) -> tuple[tuple[int, str], ...]:
        """Applies a change to where queries are; returns those that go."""
        goes = [one.name for one in decided.change.actions if isinstance(one, Drop)]
        gone = tuple((where.pop(name), name) for name in goes if name in where)
        for one in decided.change.actions:
            if isinstance(one, Register):
                assert decided.number is not None
                where[one.query.name] = decided.number
        return gone

    def _check(self, coming: list[Register]) -> None:
        """Refuses what shards cannot do."""
        for one in coming:
            name = one.query.name
            if one.replaces:
                fault = f"{name} cannot be replaced on executors"
                remedy = f"DROP QUERY {name}, and register it again in a second change, {_IN_DRIVER}"
                raise QueryError(fault, remedy=remedy)
            if one.backfill:
                fault = f"{name} cannot be backfilled on executors: the past of streams is not kept there"
                raise QueryError(fault, remedy=f"leave BACKFILL out, {_IN_DRIVER}")

    def _check_reads(self, decided: Decided) -> None:
        """What goes may be read by queries that are still to come, which the catalog does not know yet."""
        goes = {one.name.lower() for one in decided.change.actions if isinstance(one, Drop)}
        for each in self._decided:
            if each.at > decided.at and each.number is not None:
                read = goes & self._lived[each.number].generation.reads.keys()
                if read:
                    fault = f"{min(read)} will be read by queries that come at {each.at}"
                    raise QueryError(fault, remedy="drop it together with them, after that")

    # ------------------------------------------------------------ taking effect

    def splices(self) -> list[Splice]:
        """The changes to come, in the order of their times, as the clock needs them."""
        where, found = dict(self._where), []
        for each in self._decided:
            goes = self._move(each, where)
            found.append(Splice(each.at, () if each.number is None else (each.number,), goes))
        return found

    def answers(self, changes: Mapping[str, Batch], splices: Iterable[Splice], epoch: int) -> list[Answer]:
        """What was gathered in an epoch, cut where queries came and went. The changes have taken effect."""
        found = []
        for splice in splices:
            decided = self._decided.pop(0)
            answer = self._answer(changes, splice.at)
            answer.change = decided.change
            found.append(answer)
            changes = {name: batch.where(batch.ts >= splice.at) for name, batch in changes.items()}
            self._apply(decided, splice, epoch)
        return [*found, self._answer(changes)]

    def _answer(self, changes: Mapping[str, Batch], until: int | None = None) -> Answer:
        answer = Answer(queries=self.queries)
        for name, number in self._where.items():
            batch = changes.get(self._lived[number].generation.answer(name))
            if batch is not None:
                answer.changes[name] = batch if until is None else batch.where(batch.ts < until)
        return answer

    def _apply(self, decided: Decided, splice: Splice, epoch: int) -> None:
        self._catalog.apply(decided.change)
        self.queries = dict(self.queries)
        for number, name in splice.goes:
            lived = self._lived[number]
            lived.live.discard(name)
            del self._where[name], self.queries[name]
            if not lived.live:
                lived.gone = epoch
        for one in decided.change.actions:
            if isinstance(one, Register):
                assert decided.number is not None
                self._where[one.query.name] = decided.number
                self.queries[one.query.name] = one.query

    def forget(self, oldest: int) -> None:
        """Generations that went before all snapshots that a shard may go on from are needed no more."""
        self._lived = {
            number: each
            for number, each in self._lived.items()
            if not number or each.gone is None or each.gone > oldest
        }

    # ------------------------------------------------------------ state

    def save(self) -> dict[str, Any]:
        """What a commit record must hold."""
        return {
            "next": self._next,
            "where": self._where,
            "prepared": self._catalog.as_text(()),
            "decided": [
                {"text": _text(each.change, self._catalog), "at": each.change.at, "generation": each.number}
                for each in self._decided
            ],
            "generations": [
                {
                    "number": number,
                    "queries": {one.name: statement_of(Register(one)) for one in each.generation.queries},
                    "reads": each.generation.reads,
                    "live": sorted(each.live),
                    "since": each.since,
                    "gone": each.gone,
                }
                for number, each in self._lived.items()
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Goes on from what a commit record holds."""
        self._next, self._where = saved["next"], dict(saved["where"])
        inputs = replace(self._app, queries=(), prepared=(), loops=(), changes=())
        first = self._lived[0]
        self._lived = {}
        for one in saved["generations"]:
            generation, number = first.generation, one["number"]
            if number:
                older = {
                    name: (self._lived[where].generation, exact)
                    for name, (where, exact) in one["reads"].items()
                }
                read = (each.query(exact) for each, exact in older.values())
                catalog = LiveCatalog.of(replace(inputs, queries=tuple(read)))
                for change in catalog.bind(";\n".join(one["queries"].values())):
                    catalog.apply(change)
                queries = [catalog.queries[name.lower()] for name in one["queries"]]
                generation = later(number, self._app, queries, catalog, self._cut, older)
            self._lived[number] = _Lived(generation, set(one["live"]), one["since"], one["gone"])
        self.queries = {
            name: self._lived[number].generation.query(name) for name, number in self._where.items()
        }
        self._catalog = LiveCatalog.of(replace(inputs, queries=tuple(self.queries.values())))
        for change in self._catalog.bind(saved["prepared"]):
            self._catalog.apply(change)
        self._decided = []
        for one in saved["decided"]:
            catalog = self._catalog.copy()
            for each in self._decided:
                catalog.apply(each.change)
            # A change may come to nothing: what it registers, it drops.
            change = next(iter(catalog.bind(one["text"])), Change(None, ()))
            self._decided.append(Decided(replace(change, at=one["at"]), one["generation"]))


def _text(change: Change, catalog: LiveCatalog) -> str:
    """A change as a text, without its time and what else waits."""
    bare = LiveCatalog(catalog.time, catalog.inputs)
    return bare.as_text([replace(change, at=None)])
