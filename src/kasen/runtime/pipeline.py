"""A running pipeline: rows in, changes of every query's answer out.

The pipeline knows nothing of files and clocks. Whoever drives it adds rows, tells of progress, and asks
it to run; how that is cut into epochs never shows in the answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kasen.engine.batch import END, I64, Batch, Frontier, concat, empty, orderings
from kasen.engine.failures import Failures
from kasen.engine.operator import State, words_in
from kasen.engine.parallel import share
from kasen.engine.stream.net import net
from kasen.engine.stream.streamify import units
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import KasenError, QueryError, ResourceError
from kasen.plan.changes import CatalogChange, Drop, LiveCatalog, Register, RegisteredQuery
from kasen.plan.keep.kept_windows import QueryInCatalog
from kasen.plan.lower.instantiate import Context
from kasen.plan.lower.lower import is_net
from kasen.plan.physical import App, Plan, check_changes, own_nodes, plan_query
from kasen.runtime.graph.graph import Graph
from kasen.runtime.input.feed import (
    Feed,
    InputRows,
    as_batch,
    input_words,
    join,
    number_tuples,
    skip,
    times_of,
)
from kasen.runtime.input.relation import Relation
from kasen.runtime.live.limits import check_limits
from kasen.runtime.live.live_queries import LiveQueries
from kasen.runtime.live.retained import RetainedStreams
from kasen.runtime.live.splice import PlannedQuery
from kasen.runtime.output.pace import Pace

#: How long an unbounded chain of windows may go on expiring after the end of the input.
_MOST_FLUSHES = 20_000
_ALWAYS = 2**63 - 1
#: What a change takes besides its columns: its instant, its NULLs, and its place among the rows it is from.
_MORE_WORDS = 5


@dataclass(slots=True)
class Answer:
    """What one epoch brought: the net changes of each query, how many rows it took in, and whether others
    that are complete still wait.

    `deletions` are the positions of outside relations' deletions that have run, `refused` of those among
    them that found no row. `queries` are those that ran, by name; `change` is what becomes of them then.
    """

    changes: dict[str, Batch] = field(default_factory=dict)
    rows: int = 0
    is_cut: bool = False
    queries: Mapping[str, RegisteredQuery] = field(default_factory=dict)
    change: CatalogChange | None = None
    deletions: list[tuple[str, I64]] = field(default_factory=list)
    refused: list[tuple[str, I64]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """About how many bytes the changes take on their way."""
        return sum(8 * len(batch) * (batch.columns + _MORE_WORDS) for batch in self.changes.values())


@dataclass(frozen=True, slots=True, eq=False)
class PreparedChange:
    """A text that changes queries, bound against a version of the catalog; planned, if it is for now."""

    text: str
    changes: tuple[CatalogChange, ...]
    plans: Mapping[str, PlannedQuery]
    version: int


class RunningPipeline:
    """Feeds in, operators, answers out."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.dictionary = Dictionary(plan.app.max_text_bytes)
        self.failures = Failures()
        app = plan.app
        max_ticks = int(app.setting("max_ticks", "1000000"))
        context = Context(self.dictionary, self.failures)
        self._graph = Graph(plan, context, max_ticks)
        self.catalog = LiveCatalog.of(app)
        #: Held while names are looked up or change their meaning, never while waiting for anything else.
        self._naming = threading.RLock()
        self.live = LiveQueries(self._graph, context, self._table)
        self._adopt(plan)
        self.pending: list[CatalogChange] = list(app.changes)
        self._declared = {_names_in(change) for change in app.changes}
        #: Whoever writes answers may refuse a change.
        self.on_check: Callable[[CatalogChange], None] = lambda _: None
        self._retained = RetainedStreams(app.inputs)
        self._feeds = {
            input_.name: Feed(len(input_.schema), input_.slack)
            for input_ in app.inputs
            if not input_.is_static
        }
        self._relations = {
            input_.name: Relation(len(input_.schema), input_.timestamp)
            for input_ in app.inputs
            if input_.is_relation and not input_.is_static
        }
        self._by_tuple = [
            input_.name for input_ in app.inputs if not input_.is_static and input_.tick.value == "TUPLE"
        ]
        self._tables: dict[str, InputRows] = {}
        #: How many rows of each input have run, in this process.
        self.rows_in = dict.fromkeys(self._feeds, 0)
        self.queries: dict[str, RegisteredQuery] = {query.name: query for query in app.queries}
        #: For relations: how their rows are sorted, and whether they are net already.
        self._orders = {query.name: self._order(query) for query in app.queries if not query.is_stream}
        self.pace = Pace()
        self._has_changed = False
        self._upto = Frontier(-(2**63), 0)
        self._begins: Frontier | None = None

    def _adopt(self, plan: Plan) -> None:
        """The queries of the beginning: which steps each of them has."""
        steps = {step.node: step.id for step in plan.steps}
        for query, (_, root) in zip(plan.app.queries, plan.outputs, strict=True):
            top = plan.steps[root].node
            own = {node: steps[node] for node in own_nodes(top)}
            self.live.adopt(query, top, own, in_loop=query.name.lower() in self.catalog.looped)

    def _order(self, query: RegisteredQuery) -> tuple[ValueOrder, bool]:
        root = self._graph.node(self._graph.outputs[query.name])
        return ValueOrder(orderings(query.schema), self.dictionary), is_net(root)

    # ------------------------------------------------------------ input

    def add(self, name: str, rows: InputRows) -> InputRows:
        """Rows as read from an input; returns those that came too late. A static table comes all at once."""
        if name not in self._feeds:
            self._tables[name] = join([self._tables[name], rows]) if name in self._tables else rows
            return rows.take(np.zeros(len(rows), np.bool_))
        return self._feeds[name].add(rows)

    def in_time(self, name: str, ts: I64) -> bool:
        """Whether none of an input's rows with these times, in this order, would come too late."""
        return self._feeds[name].in_time(ts)

    def saw(self, name: str, least: int, greatest: int) -> None:
        """Rows of these times were read, though they were added as fewer rows, or as none."""
        self._feeds[name].saw(least, greatest)

    def advance(self, name: str, ts: int) -> None:
        """No row with a time below `ts` will come on this input any more."""
        self._feeds[name].advance(ts)

    def skip(self, name: str) -> int | None:
        """The input is idle: it goes along with the others. Rows that it brings later may be late.

        Returns how far it went.
        """
        return skip(self._feeds, name)

    def end(self, name: str) -> None:
        """No row at all will come on this input any more."""
        if name in self._feeds:
            self._feeds[name].end()

    @property
    def frontier(self) -> int:
        """Every row with a time below this is known, on all inputs."""
        least = _ALWAYS
        for feed in self._feeds.values():  # this is asked at every push
            frontier = feed.frontier
            if frontier < least:
                least = frontier
        return least

    @property
    def stopped(self) -> list[ResourceError]:
        """Why loops were stopped, if any were; their queries have ended, the others go on."""
        return self._graph.stopped

    @property
    def begun(self) -> bool:
        """Whether the first instant has run."""
        return self._graph.begun

    @property
    def ended(self) -> bool:
        for feed in self._feeds.values():  # noqa: SIM110, this is asked at every push
            if not feed.ended:
                return False
        return True

    @property
    def slowest(self) -> str | None:
        """The input that holds the others back, if any is still to be read."""
        open_ = [(feed.frontier, name) for name, feed in self._feeds.items() if not feed.ended]
        return min(open_)[1] if open_ else None

    @property
    def waiting_by_input(self) -> dict[str, int]:
        """How many rows of each input have been read and not run."""
        return {name: feed.waiting for name, feed in self._feeds.items()}

    @property
    def waiting(self) -> int:
        """How many rows have been read and not run."""
        return sum(feed.waiting for feed in self._feeds.values())

    @property
    def lag(self) -> int:
        """How far answers are behind what was read: from the time below which all is known to the greatest.

        SLACK makes it, and streams that are behind others."""
        if self.ended:
            return 0
        greatest = max((feed.greatest for feed in self._feeds.values()), default=-(2**63))
        frontier = self.frontier
        return max(0, greatest - frontier) if frontier > -(2**63) else 0

    def ready(self) -> int:
        """How many rows could run now."""
        frontier = self.frontier
        return sum(feed.waiting_below(frontier) for feed in self._feeds.values())

    # ------------------------------------------------------------ running

    def answers(self) -> Iterator[Answer]:
        """Runs every instant that is complete, in several runs if answers are many or queries change."""
        while True:
            answer = self.run_at_pace()
            yield answer
            if not answer.is_cut:
                return

    def run_at_pace(self, most: int | None = None) -> Answer:
        """As `run`, with no more rows than answers and texts are expected for that fit into memory."""
        longest, before = self.dictionary.longest, self.dictionary.size
        expected = self.pace.most(len(self.queries), longest)
        answer = self.run(expected if most is None else min(most, expected))
        self.pace.saw(answer.rows, answer.size, max(0, self.dictionary.size - before), longest)
        return answer

    def run(self, most: int | None = None) -> Answer:
        """Runs every instant that is complete, or the first of them: those that have about `most` rows, or
        those before the next change of the queries.

        Epochs are cut between different times only, so one time's rows run together however many they are.
        """
        goal = self.frontier
        if goal == _ALWAYS and self.ended:
            goal = self._end_of_input() + 1
        change = self._due(goal)
        upto = goal if change is None or change.at is None else change.at
        if most is not None and self.ready() > most:
            upto = min(upto, self._cut(goal, most))
        answer = self._run_upto(upto, last=upto == goal)
        answer.is_cut = upto < goal
        if change is not None and change.at == upto:
            self._make(self.pending.pop(0), answer)
        return answer

    def _make(self, due: CatalogChange, answer: Answer) -> None:
        """A change whose time has come.

        If it fails now and the app itself asks for it, the app is wrong. If somebody asked for it while the
        run went on, the run goes on without it and without what was to come after it.
        """
        try:
            self._change(due, self._planned(due))
        except (KasenError, RecursionError) as error:
            if _names_in(due) in self._declared:
                raise
            self.failures.note(f"the change of queries at {due.at} was not made: {error}")
            self._bind_pending()
        else:
            answer.change = due

    def _bind_pending(self) -> None:
        """Keeps what waits as far as it still means something."""
        waiting, self.pending = self.pending, []
        catalog = self.catalog.copy()
        for change in waiting:
            try:
                bound = catalog.bind_again([change])
            except QueryError as error:
                self.failures.note(f"the change of queries at {change.at} will not be made: {error}")
            else:
                catalog.apply(bound[0])
                self.pending += bound

    def _due(self, goal: int) -> CatalogChange | None:
        """The next change of the queries, if it comes before a time."""
        first = self.pending[0] if self.pending else None
        return first if first is not None and first.at is not None and first.at < goal else None

    def _cut(self, upto: int, most: int) -> int:
        """The greatest time below which at most so many rows wait, but past the first of them."""
        first = min((feed.first for feed in self._feeds.values()), default=upto)
        low, high = min(first + 1, upto), upto
        while low < high:
            middle = (low + high + 1) // 2
            if sum(feed.waiting_below(middle) for feed in self._feeds.values()) <= most:
                low = middle
            else:
                high = middle - 1
        return low

    def _end_of_input(self) -> int:
        greatest = [feed.greatest for feed in self._feeds.values()]
        known = [each for each in greatest if each > -(2**63)]
        return max(known, default=0)

    def _run_upto(self, ts: int, *, last: bool = True) -> Answer:
        """Runs the instants below a time; `last` if no others are complete."""
        upto = Frontier(ts, 0)
        answer = Answer()
        if upto <= self._upto:
            return answer
        sources, first = self._release(ts, answer)
        if first is None and self._begins is not None and self._begins < upto:
            first = self._begins
        if first is None and not self._graph.begun and not (self.ended and last):
            return answer
        if not self._graph.begun:
            begin = min(first or Frontier(0, 0), self._begins or END)
            self._graph.begin(begin)
            sources |= {name: rows.entering(begin) for name, rows in self._tables.items()}
        self._upto = upto
        if not sources and not self.live.transitions and not self._graph.stirs_before(upto):
            return answer
        answer.changes = self._answered(sources)
        answer.queries = self._named(answer.changes)
        if self._retained:
            self._retained.add(sources, ts)
        return answer

    def _named(self, changes: dict[str, Batch]) -> dict[str, RegisteredQuery]:
        """The queries that say something; others may come under their names later."""
        return {name: self.queries[name] for name in changes}

    def _answered(self, sources: dict[str, Batch]) -> dict[str, Batch]:
        """Runs the graph up to where the pipeline is; what was told of queries that came is said first."""
        raw = self._graph.run(sources, self._upto)
        transitions = self.live.finish_run()
        return self._netted(raw, transitions) if transitions or self._orders else raw

    def _release(self, ts: int, answer: Answer) -> tuple[dict[str, Batch], Frontier | None]:
        """The rows below a time as changes; until the graph has begun, also the first of their instants."""
        pieces: dict[str, list[InputRows]] = {}
        for name, feed in self._feeds.items():
            if released := feed.release(ts):
                pieces[name] = released
                rows_in = sum(map(len, released))
                answer.rows += rows_in
                self.rows_in[name] += rows_in
        # A tuple by itself needs no number.
        subs = self._numbered(pieces) if self._by_tuple and answer.rows > 1 else {}
        begun = self._graph.begun
        sources: dict[str, Batch] = {}
        first: list[Frontier] = []
        for name, released in pieces.items():
            seq_tick = subs.get(name)
            if not begun:
                first.append(Frontier(int(released[0].ts[0]), 0 if seq_tick is None else int(seq_tick[0])))
            if name in self._relations:
                rows = join(released)
                batch, refused = self._relations[name].apply(rows, as_batch([rows], seq_tick, enter=False))
                answer.deletions.append((name, rows.position[rows.diff < 0]))
                if len(refused):
                    answer.refused.append((name, refused.position))
                sources[name] = batch
            else:
                sources[name] = as_batch(released, seq_tick, enter=True)
        if not begun:
            unseen = [feed.least for feed in self._feeds.values() if feed.least is not None]
            first += [Frontier(least) for least in unseen if least < ts]
        return sources, min(first) if first else None

    def _numbered(self, pieces: dict[str, list[InputRows]]) -> dict[str, I64]:
        """`seq_tick` of the rows of each TICK BY TUPLE stream."""
        names = [name for name in self._by_tuple if name in pieces]
        return dict(zip(names, number_tuples([times_of(pieces[name]) for name in names]), strict=True))

    def _netted(self, raw: dict[str, Batch], told: dict[str, Batch]) -> dict[str, Batch]:
        for name, batch in told.items():
            raw[name] = concat((batch, raw[name]), batch.columns) if name in raw else batch

        def settle(names: Iterable[str]) -> None:
            for name in names:
                order, already = self._orders[name]
                batch = raw[name]
                raw[name] = order.sort(batch if already and name not in told else units(net(batch)))

        names = [name for name in self._orders if name in raw]
        share(settle, names, sum(len(raw[name]) for name in names))
        return raw

    def flush(self) -> Iterator[Answer]:
        """After the end of the input: lets windows expire. Delays deliver nothing any more."""
        self._graph.end_input()
        for _ in range(_MOST_FLUSHES):
            last = self._graph.last_instant()
            if last is None or Frontier(last.ts + 1, 0) <= self._upto:
                break
            self._upto = Frontier(last.ts + 1, 0)
            changes = self._answered({})
            yield Answer(changes, queries=self._named(changes))

    # ------------------------------------------------------------ queries that come and go

    def execute(self, text: str) -> tuple[CatalogChange, ...]:
        """Registers, replaces and drops queries as a CQL text says.

        It takes effect at the first time of which nothing has run, or at the time that AT names: then a
        later `run` does it. Returns the changes with their times. A wrong text changes nothing.
        """
        return self.apply(self.make_ready(text))

    def make_ready(self, text: str) -> PreparedChange:
        """Binds and plans what a text says: most of the work, and the stream may flow on meanwhile."""
        with self._naming:
            changes = self.catalog.bind(text)
            plans = self._planned(changes[0]) if changes and changes[0].at is None else {}
            return PreparedChange(text, changes, plans, self.catalog.version)

    def _planned(self, change: CatalogChange) -> dict[str, PlannedQuery]:
        after = self.catalog.after(change)
        found = {}
        for action in change.actions:
            if isinstance(action, Register):
                key = action.query.name.lower()
                in_loop = after.in_loop(key)
                plan = plan_query(action.query, after, in_loop=in_loop)
                text, old = QueryInCatalog(action.query, after), self.live.queries.get(key)
                found[key] = PlannedQuery.of(text, plan, old, self.catalog, in_loop=in_loop)
        return found

    def apply(self, ready: PreparedChange) -> tuple[CatalogChange, ...]:
        """What holds the stream up: the changes take effect. As `execute`."""
        if ready.version != self.catalog.version:
            ready = self.make_ready(ready.text)  # names may mean something else by now
        changes = ready.changes
        for change in changes:
            check_limits(
                self._plan.app,
                change,
                len(self.queries),
                lambda: self.live.groups,
                lambda: self.live.all_state_bytes,
            )
            self.on_check(change)
            if change.at is not None and self.begun and change.at < self._upto.ts:
                fault = f"the time {change.at} has run already: the next is {self._upto.ts}"
                raise QueryError(fault, remedy="leave AT out, or name a later time")
            if change.at is not None and len(changes) > 1:
                raise QueryError(
                    "one text cannot change queries at several times", remedy="give one text a time"
                )
        waiting = self._waiting_with(changes)
        decided = []
        for change in changes:
            if change.at is None:
                change = replace(change, at=self._upto.ts if self.begun else None)
                self._change(change, ready.plans)
            decided.append(waiting.get(id(change), change))
        self.pending = list(waiting.values())
        return tuple(decided)

    def _waiting_with(self, changes: tuple[CatalogChange, ...]) -> dict[int, CatalogChange]:
        """What waits together with changes, by what was asked for, as names will mean it by then.

        Refuses the changes if any of them, or of what waits, could not be made when its time has come.
        """
        later = [each for each in (*self.pending, *changes) if each.at is not None]
        if not later:
            return {}
        later.sort(key=lambda each: each.at or 0)
        catalog = self.catalog.copy()
        for change in changes:
            if change.at is None:
                catalog.apply(change)
        bound = catalog.bind_again(later)
        check_changes(catalog, bound)
        return dict(zip(map(id, later), bound, strict=True))

    def check_changes(self, check: Callable[[CatalogChange], None]) -> None:
        """Whoever writes answers may refuse a change."""
        self.on_check = check

    def _change(self, change: CatalogChange, plans: Mapping[str, PlannedQuery]) -> None:
        """The change takes effect now, between two times."""
        time = self._upto.ts if self.begun else None
        splice = self.live.prepare(change, plans, time, self._retained.since(time or 0))
        self.live.commit(change, splice, time)
        self._has_changed = True
        with self._naming:
            self.catalog.apply(change)
        for action in change.actions:
            if isinstance(action, Register):
                query = action.query
                self.queries[query.name] = query
                self._orders.pop(query.name, None)
                if not query.is_stream:
                    self._orders[query.name] = self._order(query)
            else:
                del self.queries[action.name]
                self._orders.pop(action.name, None)

    def _table(self, name: str) -> Batch:
        """What an outside relation holds now."""
        if name in self._relations:
            return self._relations[name].contents()
        one = self.catalog.input(name)
        assert one is not None
        rows = self._tables.get(name)
        return rows.entering(Frontier(0)) if rows is not None else empty(len(one.schema))

    # ------------------------------------------------------------ state

    @property
    def upto(self) -> int:
        """Every instant with a time below this has run."""
        return self._upto.ts

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def app(self) -> App:
        """The app as it was bound; queries may have come and gone since."""
        return self._plan.app

    def begin_by(self, ts: int) -> None:
        """On a new pipeline that goes on for one which has begun: it begins there at the latest."""
        self._begins = Frontier(ts, 0)

    def snapshot(self) -> dict[str, State]:
        """Everything that is needed to go on, as named arrays."""
        state: dict[str, State] = {
            "pipeline": {
                "marks": np.array([*self._upto, int(self._graph.begun)], np.int64),
                "stopped": np.array(sorted(self._graph.dead), np.int64),
            },
            "dictionary": self.dictionary.snapshot(),
        }
        state |= {f"feed.{name}": feed.snapshot() for name, feed in self._feeds.items()}
        state |= {f"relation.{name}": each.snapshot() for name, each in self._relations.items()}
        state |= {f"step.{step}": each for step, each in self._graph.snapshot().items()}
        state |= self._retained.snapshot()
        if self._has_changed:
            catalog = {"queries": self.live.save_queries(), "pending": self.catalog.as_text(self.pending)}
            state["live"] = {"json": np.frombuffer(json.dumps(catalog).encode(), np.uint8)}
            state |= self.live.save_pending()
        return state

    def forget_texts(self) -> None:
        """Forgets texts that nothing holds any more, if enough came for that to be worth it.

        To be called between two runs, when answers have been decoded or are kept (see Dictionary.keep).
        """
        if self.dictionary.is_due:
            self.dictionary.forget(self._held_words)

    def _held_words(self) -> Iterator[I64]:
        """Every word that may be the code of a text: what a snapshot holds, and static tables."""
        yield from input_words(self._tables, self._feeds)
        states = [each.snapshot() for each in self._relations.values()]
        states += self._retained.snapshot().values()
        states += [each for name, each in self.live.save_pending().items() if name != "live.names"]
        for state in states:
            yield from words_in(state)
        yield from self._graph.held_words()

    def restore(self, state: dict[str, State]) -> None:
        """Called on a new pipeline of the same plan, with its static tables added."""
        ts, seq_tick, begun = (int(mark) for mark in state["pipeline"]["marks"])
        self._upto = Frontier(ts, seq_tick)
        # Of rows of tables that were refused, texts may be here that the state has forgotten.
        self.dictionary.forget(self._held_words)
        self.dictionary.restore(state["dictionary"])
        for name, feed in self._feeds.items():
            feed.restore(state[f"feed.{name}"])
        for name, relation in self._relations.items():
            relation.restore(state[f"relation.{name}"])
        self._retained.restore(state)
        if "live" in state:
            self._rebuild(json.loads(state["live"]["json"].tobytes()))
        prefix = "step."
        steps = {int(key[len(prefix) :]): each for key, each in state.items() if key.startswith(prefix)}
        self._graph.restore(steps, bool(begun), state["pipeline"]["stopped"].tolist())

        if "live.names" in state:
            self.live.restore_pending(state)

    def _rebuild(self, saved: dict[str, Any]) -> None:
        """The queries as they were when a state was saved: others than those of the beginning."""
        self.catalog = LiveCatalog.of(replace(self._plan.app, queries=(), prepared=()))
        self.live.rebuild(saved["queries"], self.catalog)
        self.queries = {query.name: query for query in self.catalog.queries.values()}
        self._orders = {
            query.name: self._order(query) for query in self.queries.values() if not query.is_stream
        }
        self._has_changed = True
        prepared = [one for one in self.catalog.bind(saved["pending"]) if one.at is None]
        for change in prepared:
            self.catalog.apply(change)
        self.pending = [one for one in self.catalog.bind(saved["pending"]) if one.at is not None]


def _names_in(change: CatalogChange) -> tuple[int | None, tuple[str, ...]]:
    """What is changed, and when: the same after a restart."""
    names = [each.name if isinstance(each, Drop) else each.query.name for each in change.actions]
    return change.at, tuple(name.lower() for name in names)
