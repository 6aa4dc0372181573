"""The generations of queries on shards, as the driver knows them: who reads whom, now and later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kasen.errors import QueryError
from kasen.plan.changes import CatalogChange, Drop, LiveCatalog, Register, RegisteredQuery, statement_of
from kasen.plan.keep.pinned import replacement_of, replacement_to_json
from kasen.plan.keep.rstream import cannot_be_replaced, rstreams
from kasen.plan.logical import Ref, walk
from kasen.plan.physical import App
from kasen.plan.shard.fragments import FragmentPlan
from kasen.plan.shard.generations import EarlierQueries, Generation, has_same_layout, plan_generation

#: Where a query is: the number of its generation, and its name.
QueryPlace = tuple[int, str]
IN_DRIVER = "or run it with --place driver"


@dataclass(slots=True)
class LiveGeneration:
    """A generation, its live and coming queries, and the epoch in which the last of them went."""

    generation: Generation
    live: set[str]
    #: Since when its queries are live; None: the beginning.
    since: int | None = None
    gone: int | None = None
    #: Where the older queries are that it reads: those may have been replaced since it came.
    reads: dict[str, QueryPlace] = field(default_factory=dict)
    #: The same when all that is scheduled has taken effect.
    reads_later: dict[str, QueryPlace] = field(default_factory=dict)

    @staticmethod
    def of(generation: Generation, since: int | None) -> LiveGeneration:
        live = {query.name for query in generation.queries}
        return LiveGeneration(generation, live, since, None, dict(generation.reads), dict(generation.reads))

    @property
    def replaced(self) -> frozenset[str]:
        """Its own queries that were replaced."""
        return frozenset(self.reads.keys() - self.generation.reads.keys())


class RemoteGenerations:
    """Generations by number; number 0 has the queries of the beginning."""

    def __init__(self, cut: FragmentPlan) -> None:
        self._cut = cut
        self._found = {0: LiveGeneration.of(Generation(0, cut), None)}

    def __getitem__(self, number: int) -> LiveGeneration:
        return self._found[number]

    def all(self) -> list[LiveGeneration]:
        return list(self._found.values())

    def add(self, new: list[Generation], since: int | None) -> None:
        """The generations of a change that is scheduled."""
        for generation in new:
            self._found[generation.number] = LiveGeneration.of(generation, since)
        for generation in new:
            self.move_later(generation)

    def when_scheduled(self) -> dict[int, Generation]:
        """The generations, with what they read where that will be when all that is scheduled has happened."""
        return {
            number: replace(
                each.generation, reads={name: each.reads_later[name] for name in each.generation.reads}
            )
            for number, each in self._found.items()
        }

    def move_now(self, new: Generation) -> None:
        """A query was replaced: who read it reads the new one, if that lies where the old one was."""
        self._move_reads(new, lambda each: each.reads)

    def move_later(self, new: Generation) -> None:
        """A query will be replaced."""
        self._move_reads(new, lambda each: each.reads_later)

    def _move_reads(self, new: Generation, reads: Callable[[LiveGeneration], dict[str, QueryPlace]]) -> None:
        if new.replaces is None:
            return
        old, name = self._found[new.replaces.number], new.queries[0].name
        if has_same_layout(old.generation, new, name):
            reads(old)[name.lower()] = (new.number, name)
            for each in self._found.values():
                for read, place in reads(each).items():
                    if place == (new.replaces.number, new.replaces.name):
                        reads(each)[read] = (new.number, name)

    def forget(self, oldest: int) -> None:
        """Generations that went before all snapshots that a shard may resume from are not needed any more."""
        self._found = {
            number: each
            for number, each in self._found.items()
            if not number or each.gone is None or each.gone > oldest
        }

    # ------------------------------------------------------------ who reads a query that is replaced

    def check_readers(self, new: Generation, change: CatalogChange, catalog: LiveCatalog) -> None:
        """Refuses a replacement whose readers would not find the new query where the old one was."""
        if new.replaces is None:
            return
        old, name = (new.replaces.number, new.replaces.name), new.replaces.name
        changed = {action.name for action in change.actions if isinstance(action, Drop)}
        changed |= {action.query.name for action in change.actions if isinstance(action, Register)}
        readers = [
            query.name
            for number, each in self._found.items()
            for query in each.generation.queries
            if query.name in each.live - changed and self._reads(number, query, old, catalog)
        ]
        if readers and not has_same_layout(self._found[old[0]].generation, new, new.queries[0].name):
            fault = f"{readers[0]} reads {name}, whose rows would lie elsewhere on executors"
            raise QueryError(fault, remedy=f"replace {readers[0]} in the same text, {IN_DRIVER}")
        if any(old in self._found[number].reads_later.values() for number in self._below(new)):
            fault = f"{name} is read by queries that came together with such that its new text reads"
            raise QueryError(f"{fault}: this cannot be done on executors", remedy=IN_DRIVER[3:])
        for reader in self._rstream_readers({old}):
            raise cannot_be_replaced(name, reader)

    def _reads(self, number: int, query: RegisteredQuery, old: QueryPlace, catalog: LiveCatalog) -> bool:
        """Whether a query of a generation reads another one, which may be of the same generation."""
        reads, names = self._found[number].reads_later, catalog.reads(query)
        own = number == old[0] and old[1].lower() not in reads and old[1].lower() in names
        return own or any(reads.get(name) == old for name in names)

    def _below(self, generation: Generation) -> set[int]:
        """The generations that one reads, directly or not."""
        found: set[int] = set()
        todo = [number for number, _ in generation.reads.values()]
        while todo:
            number = todo.pop()
            if number in self._found and number not in found:
                found.add(number)
                todo += [below for below, _ in self._found[number].reads_later.values()]
        return found

    def _rstream_readers(self, read: set[QueryPlace]) -> list[str]:
        """Queries with RSTREAM that read one of these, or a relation that reads one of these."""
        found: list[str] = []
        lower = {(number, name.lower()) for number, name in read}
        for number, each in self._found.items():
            own = {query.name.lower() for query in each.generation.queries}
            for query in each.generation.queries:
                if query.name not in each.live or (number, query.name) in read:
                    continue
                root = each.generation.cut.plan.steps[each.generation.root(query.name)].node
                refs = {node.name.lower() for node in walk(root) if isinstance(node, Ref)}
                reads = {
                    each.reads_later.get(ref, (number, ref)) for ref in refs & (own | each.reads_later.keys())
                }
                if not {(place, name.lower()) for place, name in reads} & lower:
                    continue
                if rstreams(root):
                    found.append(query.name)
                elif not query.is_stream:
                    found += self._rstream_readers(read | {(number, query.name)})
        return found

    # ------------------------------------------------------------ state

    def save(self) -> list[dict[str, Any]]:
        return [
            {
                "number": number,
                "queries": {query.name: statement_of(Register(query)) for query in each.generation.queries},
                "read": each.generation.reads,
                "reads": each.reads,
                "replaces": None
                if each.generation.replaces is None
                else replacement_to_json(each.generation.replaces),
                "live": sorted(each.live),
                "since": each.since,
                "gone": each.gone,
            }
            for number, each in self._found.items()
        ]

    def restore(self, saved: list[dict[str, Any]], inputs: App) -> None:
        """`inputs` has the inputs only."""
        self._found = {0: self._found[0]}
        waiting = {entry["number"]: entry for entry in saved}
        while waiting:
            # What a generation reads may have come later, in the place of another query.
            ready = [
                number
                for number, entry in waiting.items()
                if not {entry["reads"][name][0] for name in entry["read"]} & waiting.keys()
            ]
            assert ready
            for number in ready:
                self._found[number] = self._restored(waiting.pop(number), inputs)
        self._found = dict(sorted(self._found.items()))

    def _restored(self, entry: dict[str, Any], inputs: App) -> LiveGeneration:
        number = entry["number"]
        reads = _places(entry["reads"])
        generation = self._found[0].generation
        if number:
            where = {
                name: (self._found[place].generation, exact)
                for name, (place, exact) in reads.items()
                if name in entry["read"]
            }
            older = tuple(each.query(exact) for each, exact in where.values())
            names = LiveCatalog.of(replace(inputs, queries=older))
            for change in names.bind(";\n".join(entry["queries"].values())):
                names.apply(change)
            queries = [names.queries[name.lower()] for name in entry["queries"]]
            replaces = None if entry["replaces"] is None else replacement_of(entry["replaces"])
            earlier = EarlierQueries(names, where, self._cut)
            generation = plan_generation(number, self._cut.plan.app, queries, names, earlier, replaces)
            generation = replace(generation, reads=_places(entry["read"]))
        return LiveGeneration(
            generation, set(entry["live"]), entry["since"], entry["gone"], reads, dict(reads)
        )


def _places(saved: Mapping[str, Any]) -> dict[str, QueryPlace]:
    return {name: (number, exact) for name, (number, exact) in saved.items()}
