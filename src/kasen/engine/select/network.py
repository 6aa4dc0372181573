"""One selection stage for all queries over a stream: predicate modules, trees and flags [CQPH].

Registering a query writes a few words of configuration; nothing is compiled. Equal predicates are one
module, and a tuple meets only the queries whose equality or bound it passes (see kernels/network).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from kasen.engine import parallel
from kasen.engine.batch import I64, Batch, Frontier, empty, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection, selection_of
from kasen.engine.operator import Operator, SharingPool
from kasen.engine.select.filter import Filter
from kasen.engine.select.kernels import network as kernel
from kasen.engine.text.dictionary import Dictionary, NewCodes

LEAST, GREATEST = -(2**63), 2**63 - 1

#: The arrays that kernels read, and where the queries are among them.
_Config = tuple[Any, ...]
_QUERIES = 9

#: Memory beyond this is given back after a batch: not every one passes so many queries.
_MOST_WORDS = 1 << 24

#: Fewer queries than this are not worth a network: each looks at the tuples for itself.
FEW = 8


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test of one column. `texts` decides for a text, if kind is IN_SET; `name` tells such tests apart."""

    kind: int
    column: int
    low: int = 0
    high: int = 0
    name: str = ""
    texts: Callable[[str], bool] | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[int, int, int, int, str]:
        return (self.kind, self.column, self.low, self.high, self.name)

    @property
    def is_equality(self) -> bool:
        return self.kind == kernel.BETWEEN and self.low == self.high


@dataclass(frozen=True, slots=True)
class ConditionTree:
    """AND or OR of conditions."""

    all: bool
    parts: tuple[Condition, ...]


Condition = Predicate | ConditionTree


class SelectionNetwork:
    """The network of one stream. A query is its flag: the number of its bit."""

    def __init__(self, doubles: Sequence[bool], dictionary: Dictionary) -> None:
        self._doubles = np.array(doubles, np.int64)
        self._dictionary = dictionary
        self._newcomers = NewCodes(dictionary)
        self._slots: dict[tuple[int, int, int, int, str], int] = {}
        self._uses: dict[int, int] = {}
        self._free_slots: list[int] = []
        self._predicates: I64 = np.zeros((0, 4), np.int64)
        self._tests: dict[int, tuple[int, Callable[[str], bool]]] = {}
        self._sets: npt.NDArray[np.uint8] = np.zeros((0, 0), np.uint8)
        self._conditions: dict[int, Condition] = {}
        #: By which predicates each query is found, and what else must hold.
        self._accesses: dict[int, tuple[tuple[Predicate, ...], Condition | None]] = {}
        self._free_flags: list[int] = []
        self._queries: I64 = np.zeros((0, 2), np.int64)
        self._programs: I64 = np.zeros(16, np.int64)
        self._used = self._wasted = 0
        self._table: I64 = np.full((16, 3), -1, np.int64)
        self._items: I64 = np.full((16, 2), -1, np.int64)
        self._free_items = list(range(15, -1, -1))
        self._entries = 0
        self._equal: dict[int, int] = {}  # how many queries are found by an equality on a column
        self._equal_columns: I64 = np.zeros(0, np.int64)
        #: By column and whether they are upper: bounds in order, the flags of their queries, their reaches.
        self._bounds: dict[tuple[int, int], I64] = {}
        self._ranges: tuple[I64, I64, I64, I64] | None = None
        self._others: I64 = np.zeros(0, np.int64)
        self._seen: Batch | None = None
        #: The batch seen last, as a part; what passes of it, or of its halves.
        self.whole: RowSelection = selection_of(empty(0))
        self._passing = (_PassingRows(), _PassingRows())
        self._halved = False

    def __len__(self) -> int:
        return len(self._conditions)

    @property
    def modules(self) -> int:
        """How many different predicates there are."""
        return len(self._slots)

    @property
    def words(self) -> int:
        """The size of the configuration, in words."""
        arrays = (self._predicates, self._queries, self._programs, self._table, self._items)
        return sum(array.size for array in (*arrays, *self._bounds.values()))

    # ------------------------------------------------------------ configuration

    def add(self, condition: Condition) -> int:
        """A query comes; returns its flag."""
        if self._free_flags:
            flag = self._free_flags.pop()
        else:
            flag = len(self._queries)
            self._queries = _longer(self._queries, flag + 1, 0)
        self._conditions[flag] = condition
        for predicate in _predicates(condition):
            self._claim(predicate)
        access, rest = self._accesses[flag] = _access(condition)
        self._index(flag, access, condition)
        self._write(flag, rest)
        self._seen = None
        return flag

    def drop(self, flag: int) -> None:
        """A query goes; its flag and the modules that nobody else uses are free."""
        condition = self._conditions.pop(flag)
        access, _ = self._accesses.pop(flag)
        self._unindex(flag, access)
        self._wasted += int(self._queries[flag, 1])
        self._queries[flag] = 0
        for predicate in _predicates(condition):
            self._release(predicate)
        self._free_flags.append(flag)
        if self._wasted > 64 and self._wasted > self._used // 2:
            self._tidy()
        self._seen = None

    def config(self, flag: int) -> list[tuple[str, tuple[int, ...]]]:
        """The configuration tuples of a query: where each goes, and what it writes there."""
        condition = self._conditions[flag]
        found: list[tuple[str, tuple[int, ...]]] = []
        for predicate in dict.fromkeys(_predicates(condition)):
            slot = self._slots[predicate.key]
            found.append((f"predicate {slot}", tuple(self._predicates[slot].tolist())))
        begin, length = self._queries[flag].tolist()
        found.append((f"tree {flag}", tuple(self._programs[begin : begin + length].tolist())))
        access, _ = self._accesses[flag]
        for predicate in access:
            kind = "equal" if predicate.is_equality else "bound"
            found.append((f"{kind} {predicate.column}", (predicate.low, predicate.high, flag)))
        return found if access else [*found, ("every tuple", (flag,))]

    def _claim(self, predicate: Predicate) -> None:
        slot = self._slots.get(predicate.key)
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._predicates)
            self._predicates = _longer(self._predicates, slot + 1, 0)
            self._slots[predicate.key] = slot
            low = predicate.low
            if predicate.texts is not None:
                low = self._new_set(slot, predicate.texts)
            self._predicates[slot] = (predicate.kind, predicate.column, low, predicate.high)
        self._uses[slot] = self._uses.get(slot, 0) + 1

    def _release(self, predicate: Predicate) -> None:
        slot = self._slots[predicate.key]
        self._uses[slot] -= 1
        if not self._uses[slot]:
            del self._uses[slot], self._slots[predicate.key]
            self._tests.pop(slot, None)
            self._free_slots.append(slot)

    def _new_set(self, slot: int, test: Callable[[str], bool]) -> int:
        used = {number for number, _ in self._tests.values()}
        number = next(each for each in range(len(used) + 1) if each not in used)
        self._tests[slot] = (number, test)
        self._sets = _longer(self._sets, number + 1, 0)
        decided = [test(text) for text in self._dictionary.texts[: self._sets.shape[1]]]
        self._sets[number, : len(decided)] = decided
        return number

    def _learn_texts(self) -> None:
        """Decides for the texts that have come since."""
        codes = self._newcomers.take()
        if not codes:
            return
        texts = self._dictionary.texts
        known = self._sets.shape[1]
        if len(texts) > known:
            wider = np.zeros((len(self._sets), 2 * len(texts)), np.uint8)
            wider[:, :known] = self._sets
            self._sets = wider
        fresh = [texts[code] for code in codes]
        for number, test in self._tests.values():
            self._sets[number, codes] = [test(text) for text in fresh]

    def _write(self, flag: int, rest: Condition | None) -> None:
        program = list(self._postfix(rest)) if rest is not None else []
        while self._used + len(program) > len(self._programs):
            self._programs = _longer(self._programs, 2 * len(self._programs), 0)
        self._programs[self._used : self._used + len(program)] = program
        self._queries[flag] = (self._used, len(program))
        self._used += len(program)

    def _postfix(self, condition: Condition) -> Iterator[int]:
        if isinstance(condition, Predicate):
            yield self._slots[condition.key]
            return
        for number, part in enumerate(condition.parts):
            yield from self._postfix(part)
            if number:
                yield kernel.AND if condition.all else kernel.OR

    def _tidy(self) -> None:
        """Writes the programs anew, without those of queries that went."""
        self._used = self._wasted = 0
        for flag, (_, rest) in self._accesses.items():
            self._write(flag, rest)

    # ------------------------------------------------------------ indexes

    def _index(self, flag: int, access: tuple[Predicate, ...], condition: Condition) -> None:
        if not access:
            self._others = np.append(self._others, flag)
            return
        for predicate in access:
            if predicate.is_equality:
                self._enter(predicate.column, predicate.low, flag)
                self._count(predicate.column, 1)
            else:
                upper = int(predicate.low == LEAST)
                value = predicate.high if upper else predicate.low
                key = (predicate.column, upper)
                bounds = self._bounds.get(key, np.zeros((3, 0), np.int64))
                at = int(np.searchsorted(bounds[0], value, "right"))
                entry = (value, flag, _reach(condition, predicate.column))
                self._bounds[key] = np.insert(bounds, at, entry, axis=1)
                self._ranges = None

    def _unindex(self, flag: int, access: tuple[Predicate, ...]) -> None:
        if not access:
            self._others = self._others[self._others != flag]
            return
        for predicate in access:
            if predicate.is_equality:
                self._leave(predicate.column, predicate.low, flag)
                self._count(predicate.column, -1)
            else:
                key = (predicate.column, int(predicate.low == LEAST))
                bounds = self._bounds[key]
                self._bounds[key] = np.delete(bounds, int(np.flatnonzero(bounds[1] == flag)[0]), axis=1)
                if not self._bounds[key].size:
                    del self._bounds[key]
                self._ranges = None

    def _count(self, column: int, more: int) -> None:
        """Queries that are found by an equality on a column have come or gone."""
        before = self._equal.get(column, 0)
        self._equal[column] = before + more
        if not before or not self._equal[column]:
            self._equal_columns = np.array(sorted(each for each, n in self._equal.items() if n), np.int64)

    def _enter(self, column: int, value: int, flag: int) -> None:
        if 2 * (self._entries + 1) > len(self._table):
            wider = np.full((2 * len(self._table), 3), -1, np.int64)
            kernel.refill(self._table, wider)
            self._table = wider
        if not self._free_items:
            size = len(self._items)
            self._items = _longer(self._items, 2 * size, -1)
            self._free_items = list(range(2 * size - 1, size - 1, -1))
        item = self._free_items.pop()
        self._entries += kernel.enter(self._table, self._items, column, value, flag, item)

    def _leave(self, column: int, value: int, flag: int) -> None:
        item, freed = kernel.leave(self._table, self._items, column, value, flag)
        self._free_items.append(item)
        self._entries -= freed

    def _range_index(self) -> tuple[I64, I64, I64, I64]:
        if self._ranges is None:
            table, begin = [], 0
            for column, upper in sorted(self._bounds):
                end = begin + self._bounds[column, upper].shape[1]
                table.append((column, upper, begin, end))
                begin = end
            ordered = [self._bounds[key] for key in sorted(self._bounds)]
            bounds, flags, _ = np.concatenate([np.zeros((3, 0), np.int64), *ordered], axis=1)
            reaches = [np.maximum.accumulate(each[2]) for each in ordered]
            self._ranges = (
                np.array(table, np.int64).reshape(-1, 4),
                bounds,
                flags,
                np.concatenate([np.zeros(0, np.int64), *reaches]),
            )
        return self._ranges

    # ------------------------------------------------------------ running

    def _arrays(self) -> _Config:
        if self._tests:
            self._learn_texts()
        ranges, bounds, flags, reaches = self._range_index()
        return (
            self._doubles, self._equal_columns, self._table, self._items, ranges, bounds, flags, reaches,
            self._others, self._queries, self._programs, self._predicates, self._sets,
        )  # fmt: skip

    def rows(self, batch: Batch, flag: int) -> I64:
        """The rows of a batch that pass a query. All queries are decided when the first one asks."""
        if batch is not self._seen:
            self._select(batch)
        here, there = self._passing
        return np.concatenate((here.of(flag), there.of(flag))) if self._halved else here.of(flag)

    def _select(self, batch: Batch) -> None:
        size, data, config = len(batch), batch.data, self._arrays()
        here, there = self._passing
        self._seen = None  # until all is decided
        self._halved = parallel.worth(size)
        if self._halved:
            cut = size // 2
            parallel.both(
                partial(there.find, data, config, cut, size), partial(here.find, data, config, 0, cut)
            )
        else:
            here.find(data, config, 0, size)
        self._seen = batch
        self.whole = selection_of(batch)
        if not batch.has_nulls():  # those who are handed some of the rows need not look for themselves
            self.whole = self.whole._replace(columns=[*batch.data[:-1], zeros(len(batch))])

    def count(self, batch: Batch, counts: I64) -> None:
        """Adds to counts[flag] how many rows pass each query, without finding out which."""
        arrays = self._arrays()
        steps = np.zeros(len(arrays[5]) + len(arrays[4]) + 1, np.int64)
        kernel.count(batch.data, *arrays, steps, counts)  # type: ignore[call-arg]

    @property
    def flags(self) -> int:
        """One more than the greatest flag."""
        return len(self._queries)


class _PassingRows:
    """Which rows pass each query, as one core finds them. Memory is used again for the next batch."""

    def __init__(self) -> None:
        self._pairs: I64 = np.empty((2, 1024), np.int64)
        self._starts: I64 = np.zeros(1, np.int64)
        self._rows: I64 = np.zeros(0, np.int64)

    def of(self, flag: int) -> I64:
        found: I64 = self._rows[self._starts[flag] : self._starts[flag + 1]]
        return found

    def find(self, data: I64, config: _Config, begin: int, end: int) -> None:
        """Decides all queries for the rows from `begin` to before `end`."""
        queries = len(config[_QUERIES])
        state = np.array([begin, end, 0], np.int64)
        if self._pairs.shape[1] < max(queries + 1, end - begin):
            # A tuple often passes about one query; if more, room is made below.
            self._pairs = np.empty((2, 2 * queries + 2 + end - begin), np.int64)
        while not kernel.select(data, *config, self._pairs, state):  # type: ignore[call-arg]
            wider = np.empty((2, 2 * self._pairs.shape[1]), np.int64)
            wider[:, : state[kernel.FOUND]] = self._pairs[:, : state[kernel.FOUND]]
            self._pairs = wider
        found = int(state[kernel.FOUND])
        self._starts = np.zeros(queries + 1, np.int64)
        self._rows = np.empty(found, np.int64)
        kernel.by_flag(self._pairs, found, self._starts, self._rows)
        if self._pairs.size > _MOST_WORDS:
            self._pairs = np.empty((2, 1024), np.int64)


class NetworkFilter(Operator):
    """WHERE over a stream: the rows that the stream's network flags for one query; `alone` finds the same."""

    def __init__(
        self, condition: Condition, alone: Filter, doubles: Sequence[bool], dictionary: Dictionary
    ) -> None:
        """`doubles`: which of the stream's columns are."""
        self._condition = condition
        self._alone = alone
        self._doubles = doubles
        self._dictionary = dictionary
        #: The network, its flag there, and by which key others find it.
        self._network: SelectionNetwork | None = None
        self._flag = -1
        self._found_in: tuple[SharingPool, Hashable] = {}, None
        self._nothing: Batch | None = None

    def read_from(self, sources: tuple[int, ...], pool: SharingPool) -> None:
        self.close()
        self._found_in = pool, (key := (SelectionNetwork, *sources))
        if key not in pool:
            pool[key] = SelectionNetwork(self._doubles, self._dictionary)
        self._network = network = pool[key]
        self._flag = network.add(self._condition)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch, network = inputs[0], self._network
        if len(batch) == 1 or network is None or len(network) < FEW:
            return self._alone.process(inputs, upto)
        rows = network.rows(batch, self._flag)
        if len(rows) == len(batch):
            return batch
        if not len(rows):
            if self._nothing is None:
                self._nothing = empty(batch.columns)
            return self._nothing
        ts, seq_tick, diff, columns, _ = network.whole
        return DeferredBatch([RowSelection(ts, seq_tick, diff, columns, rows)])

    def config(self) -> list[tuple[str, tuple[int, ...]]]:
        return self._network.config(self._flag) if self._network is not None else []

    def close(self) -> None:
        if self._network is not None:
            self._network.drop(self._flag)
            if not len(self._network):
                pool, key = self._found_in
                del pool[key]


def _predicates(condition: Condition) -> Iterator[Predicate]:
    if isinstance(condition, Predicate):
        yield condition
    else:
        for part in condition.parts:
            yield from _predicates(part)


def _access(condition: Condition) -> tuple[tuple[Predicate, ...], Condition | None]:
    """By which predicates a query is found, each tuple by at most one of them; and what else must hold.

    An equality, or several on one column (IN), is better than a bound; neither: the query meets every tuple.
    """
    parts = condition.parts if isinstance(condition, ConditionTree) and condition.all else (condition,)
    for choose in (_equalities, _bound):
        for number, part in enumerate(parts):
            access = choose(part)
            if access:
                rest = parts[:number] + parts[number + 1 :]
                if not rest:
                    return access, None
                return access, rest[0] if len(rest) == 1 else ConditionTree(True, rest)
    return (), condition


def _equalities(part: Condition) -> tuple[Predicate, ...]:
    parts = (part,) if isinstance(part, Predicate) else () if part.all else part.parts
    found = tuple(dict.fromkeys(part for part in parts if isinstance(part, Predicate) and part.is_equality))
    same = len({one.column for one in found}) == 1
    return found if same and len(found) == len(set(parts)) else ()


def _bound(part: Condition) -> tuple[Predicate, ...]:
    if isinstance(part, Predicate) and part.kind == kernel.BETWEEN and LEAST in (part.low, -part.high - 1):
        return (part,)
    return ()


def _reach(condition: Condition, column: int) -> int:
    """The greatest value of a column that can pass."""
    parts = condition.parts if isinstance(condition, ConditionTree) and condition.all else (condition,)
    predicates = (part for part in parts if isinstance(part, Predicate) and part.kind == kernel.BETWEEN)
    return min((one.high for one in predicates if one.column == column), default=GREATEST)


def _longer(array: Any, size: int, fill: int) -> Any:
    if size <= len(array):
        return array
    longer = np.full((size, *array.shape[1:]), fill, array.dtype)
    longer[: len(array)] = array
    return longer
