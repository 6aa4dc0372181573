"""GROUP BY with aggregates that are written in Python, beside those of CQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kasen.engine.aggregate.user.call import Value
from kasen.engine.aggregate.user.group_state import Answers, CallState, Key, KeyedRows
from kasen.engine.aggregate.user.state_text import dumps, loads
from kasen.engine.batch import I64, Batch, Frontier, empty
from kasen.engine.operator import Operator, State

_INNER = "inner."
Row = tuple[int, ...]


class UserAggregate(Operator):
    """CQL's own calls in `inner`, each user-defined one in a part of its own; this puts the rows together.

    `inner` has the same keys and input. Its last call is COUNT(*), so it tells which groups there are.
    `order` says for each call of the output which it is: i of inner's, or -1 - i for that of `parts[i]`.
    """

    def __init__(
        self,
        keys: int,
        inner: Operator,
        parts: tuple[CallState, ...],
        order: tuple[int, ...],
    ) -> None:
        self._keys = keys
        self._inner = inner
        self._parts = parts
        self._order = order
        # Of each group that has a row: inner's values and their NULL bits; and the value of each part.
        self._rows: dict[Key, tuple[Row, int]] = {}
        self._values: dict[Key, list[Value]] = {}

    def begin(self, at: Frontier) -> None:
        self._inner.begin(at)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0]
        told = self._told(self._inner.process(inputs, upto))
        keys = self._keys_of(batch)
        rows = KeyedRows(batch.ts.tolist(), batch.seq_tick.tolist(), batch.diff.tolist(), keys)
        changed = [dict(part.changes(rows, part.call.words(batch), upto)) for part in self._parts]
        out: list[Row] = []
        for at in sorted({*told, *(at for each in changed for at in each)}):
            now = told.get(at, {})
            answers = [each.get(at, {}) for each in changed]
            for key in dict.fromkeys([*now, *(key for each in answers for key in each)]):
                out += self._moved(at, key, now, answers)
        return self._batch(out)

    def next_instant(self) -> Frontier | None:
        return self._inner.next_instant()

    def last_instant(self) -> Frontier | None:
        return self._inner.last_instant()

    def needs_input_since(self) -> Frontier | None:
        return self._inner.needs_input_since()

    def _content(self) -> dict[str, object]:
        return {
            "rows": [[key, *row] for key, row in self._rows.items()],
            "values": [[key, values] for key, values in self._values.items()],
            "parts": [part.state() for part in self._parts],
        }

    def held_words(self) -> Iterable[I64]:
        """The snapshot tells words of keys and rows as JSON: all its whole numbers are taken for words."""
        yield from self._inner.held_words()
        yield np.fromiter(_integers(self._content()), np.int64)

    def snapshot(self) -> State:
        content = self._content()
        inner = {f"{_INNER}{name}": array for name, array in self._inner.snapshot().items()}
        return {**inner, "user": np.frombuffer(dumps(content), np.uint8)}

    def restore(self, state: State) -> None:
        inner = {name.removeprefix(_INNER): array for name, array in state.items() if name != "user"}
        self._inner.restore(inner)
        content = loads(state["user"].astype(np.uint8).tobytes())
        self._rows = {tuple(key): (tuple(row), nulls) for key, row, nulls in content["rows"]}
        self._values = {
            tuple(key): [(word, is_null) for word, is_null in values] for key, values in content["values"]
        }
        for part, saved in zip(self._parts, content["parts"], strict=True):
            part.set_state(saved)

    # ------------------------------------------------------------ putting rows together

    def _keys_of(self, batch: Batch) -> list[Key]:
        """Of each row its key's values and NULL bits."""
        if not self._keys:
            return [(0,)] * len(batch)
        nulls = batch.nulls & ((1 << self._keys) - 1)
        return list(
            zip(*(batch.data[key].tolist() for key in range(self._keys)), nulls.tolist(), strict=True)
        )

    def _told(self, batch: Batch) -> dict[Frontier, dict[Key, tuple[Row, int] | None]]:
        """What inner says: at each instant, the new rows of groups, or None where there is none any more."""
        told: dict[Frontier, dict[Key, tuple[Row, int] | None]] = {}
        keys = self._keys_of(batch)
        columns = [batch.data[column].tolist() for column in range(self._keys, batch.columns)]
        values = list(zip(*columns, strict=True))
        nulls = (batch.nulls >> self._keys).tolist()
        for row, diff in enumerate(batch.diff.tolist()):
            at = told.setdefault(Frontier(int(batch.ts[row]), int(batch.seq_tick[row])), {})
            if diff > 0:
                at[keys[row]] = (values[row], nulls[row])
            else:
                at.setdefault(keys[row], None)
        return told

    def _moved(
        self, at: Frontier, key: Key, now: dict[Key, tuple[Row, int] | None], answers: list[Answers]
    ) -> list[Row]:
        """A group's old and new row, if they differ."""
        old = self._row(key)
        row = now.get(key, self._rows.get(key))
        if row is None:
            self._rows.pop(key, None)
            self._values.pop(key, None)
        else:
            self._rows[key] = row
            before = self._values.get(key)
            self._values[key] = [self._value(index, key, each, before) for index, each in enumerate(answers)]
        new = self._row(key)
        if old == new:
            return []
        return [(*at, diff, *each) for diff, each in ((-1, old), (1, new)) if each is not None]

    def _value(self, index: int, key: Key, answers: Answers, before: list[Value] | None) -> Value:
        if key not in answers and before is not None:
            return before[index]
        return answers.get(key) or self._parts[index].call.nothing()

    def _row(self, key: Key) -> Row | None:
        """The words of a group's row, the NULL bits last."""
        if key not in self._rows:
            return None
        own, own_nulls = self._rows[key]
        values = []
        nulls = key[-1] if self._keys else 0
        for index, place in enumerate(self._order):
            if place >= 0:
                value, is_null = own[place], bool(own_nulls >> place & 1)
            else:
                value, is_null = self._values[key][-1 - place]
            values.append(value)
            nulls |= is_null << (self._keys + index)
        return (*key[: self._keys], *values, nulls)

    def _batch(self, rows: list[Row]) -> Batch:
        columns = self._keys + len(self._order)
        if not rows:
            return empty(columns)
        words: I64 = np.ascontiguousarray(np.array(rows, np.int64).T)
        return Batch(words[0], words[1], words[2], np.ascontiguousarray(words[3:]))


def _integers(content: object) -> Iterator[int]:
    """Every whole number in what JSON is made of, as far as it is a word."""
    todo = [content]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            todo += one
        elif isinstance(one, int) and -(2**63) <= one < 2**63:
            yield one
