"""What a run shows in a terminal: a progress line, and for each query its latest rows."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime, timedelta

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kasen import stops
from kasen.connect.decode import decode
from kasen.engine.batch import Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.physical import App
from kasen.runtime.output.progress import Progress
from kasen.types import TIMESTAMP, Type

_ROWS = 8
_REFRESH = 4
_EPOCH = datetime(1970, 1, 1)
_LONGEST = timedelta.max // timedelta(microseconds=1)


class Screen:
    """Live on a terminal; elsewhere a progress line now and then, and the tables once, at the end."""

    def __init__(self, app: App, *, tables: bool, console: Console | None = None) -> None:
        self._app = app
        self._tables = tables
        self._console = console or Console(stderr=not tables)
        self._latest: dict[str, deque[list[str]]] = {q.name: deque(maxlen=_ROWS) for q in app.queries}
        self._progress = Progress()
        self._live: Live | None = None
        self._spoke = 0.0

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=_REFRESH, transient=False)
            self._live.__enter__()
            stops.at_end(self._console.show_cursor)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.update(self._picture())
            self._live.__exit__(None, None, None)
        else:
            self._console.print(self._picture())

    def note(self, text: str) -> None:
        """A line that stays, above what is live."""
        self._console.print(text, soft_wrap=True, highlight=False)

    def answer(self, changes: dict[str, Batch], dictionary: Dictionary) -> None:
        """Keeps the latest rows of each query."""
        if not self._tables:
            return
        for query in self._app.queries:
            batch = changes.get(query.name)
            if batch is None or not len(batch):
                continue
            first = max(0, len(batch) - _ROWS)
            last = Batch(batch.ts[first:], batch.seq_tick[first:], batch.diff[first:], batch.data[:, first:])
            table = decode(last, query.schema, dictionary, self._app.time)
            self._latest[query.name].extend(_cells(table))

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        if self._live is not None:
            self._live.update(self._picture())
        elif time.monotonic() - self._spoke > 2 and not progress.done:
            self._spoke = time.monotonic()
            self._console.print(self._line())

    def _picture(self) -> Group:
        parts: list[Table | Text] = []
        if self._tables:
            parts += [self._table(query.name) for query in self._app.queries]
        return Group(*parts, self._line())

    def _table(self, name: str) -> Table:
        query = self._app.query(name)
        assert query is not None
        count = self._progress.results.get(name, 0)
        table = Table(title=f"{name}: {count:,} changes", title_justify="left", title_style="bold")
        table.add_column("instant", style="dim", no_wrap=True)
        table.add_column("", no_wrap=True)
        for field in query.schema:
            table.add_column(field.name, no_wrap=True)
        for row in self._latest[name]:
            table.add_row(*row, style="red" if row[1] == "-" else None)
        return table

    def _behind(self) -> str:
        lag = self._progress.lag
        return f", answers {show_length(lag, self._app.time)} behind" if lag else ""

    def _line(self) -> Text:
        done = self._progress
        rate = done.rows / done.seconds if done.seconds > 0 else 0.0
        took = f" in {done.epoch_seconds:.2f} s" if done.epoch_seconds is not None else ""
        parts = [f"{done.rows:,} rows", f"{rate:,.0f} rows/s", f"epoch {done.epochs}{took}"]
        parts += [f"{sum(done.results.values()):,} changes"]
        if done.frontier is not None and abs(done.frontier) < 2**62:
            parts.append(f"complete up to {show_time(done.frontier, self._app.time)}")
        if done.waiting:
            parts.append(f"{done.waiting:,} rows wait{self._behind()}")
        if done.slowed:
            parts.append(f"{', '.join(done.slowed)} slowed")
        if done.state_bytes is not None:
            parts.append(f"state {done.state_bytes / 1e6:,.1f} MB")
        if done.dead:
            parts.append(f"{done.dead:,} rows refused")
        if done.had_ended:
            parts.append("this run had ended before; for new rows, start with a new checkpoint folder")
        return Text(
            " · ".join(parts) + (" · done" if done.done else ""), style="green" if done.done else "cyan"
        )


def show_length(length: int, time_type: Type) -> str:
    """A length of time as people read it."""
    return f"{length:,}" if time_type != TIMESTAMP else str(timedelta(microseconds=min(length, _LONGEST)))


def show_time(ts: int, time_type: Type) -> str:
    """An instant's time as people read it."""
    if time_type != TIMESTAMP:
        return f"{ts:,}"
    try:
        return str(_EPOCH + timedelta(microseconds=ts))
    except OverflowError:
        return str(ts)


def _cells(table: pa.Table) -> list[list[str]]:
    """The changes as people read them: the instant, + or -, and the row."""
    columns = [column.to_pylist() for column in table.columns]
    rows = []
    for ts, seq, tick, diff, *values in zip(*columns, strict=True):
        instant = f"{_short(ts)}{f' #{seq}' if seq else ''}{f' +{tick}ε' if tick else ''}"
        rows.append([instant, "+" if diff > 0 else "-", *(_short(value) for value in values)])
    return rows


def _short(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime) and value.microsecond:
        return str(value).rstrip("0")
    return str(value)
