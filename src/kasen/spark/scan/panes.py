"""An epoch whose rows Spark reduces to a row a pane and group before they cross.

Lateness is a matter of every row and its order, so the times of all rows cross too, alone: that is cheap. If
none is late, the reduced rows are all that is needed. If some are, or a sum did not fit, the epoch's rows
cross one by one, in the same columns, and those that are late are dropped as everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kasen.connect.chunk import Chunk
from kasen.engine.batch import I64
from kasen.plan.native.partials import Partials
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.runtime.pipeline import RunningPipeline
from kasen.runtime.time_range import is_beyond
from kasen.spark.scan.arrivals import Arrivals, whole
from kasen.spark.scan.names import BAD, FILE, RAW

_TIME = "b0"
#: Takes a chunk's rows in: with their failures if they are counted, and how many rows they stand for.
Take = Callable[[Input, Chunk, InputRows, I64 | None, int | None], None]


def by_panes(
    input_: Input,
    partials: Partials,
    batch: DataFrame,
    pipeline: RunningPipeline,
    arrivals: Arrivals,
    take: Take,
) -> tuple[int, int] | None:
    """Takes an epoch's rows of the stream `input_`, reduced if that can be exact.

    Returns the least and the greatest time of rows that were reduced.
    """
    context = batch.sparkSession.sparkContext
    context.setJobDescription(f"kasen: order of {input_.name}'s rows")
    times, dead = arrivals.times(input_, batch.select(_TIME, *_notes(batch)).toArrow(), _TIME)
    reduced = None
    if len(times) and not is_beyond(times).any() and pipeline.in_time(input_.name, times):
        context.setJobDescription(f"kasen: pane partials of {input_.name}")
        reduced = _reduced(input_, partials, batch)
    if reduced is None:
        _by_rows(input_, partials, batch, arrivals, take)
        return None
    chunk, rows = arrivals.reduced(whole(input_), reduced)
    chunk.dead = dead
    arrivals.counts[input_.name] = arrivals.counts.get(input_.name, 0) + len(times)
    take(input_, chunk, rows, None, len(times))
    return int(times.min()), int(times.max())


def _reduced(input_: Input, partials: Partials, batch: DataFrame) -> pa.Table | None:
    """A row a pane and group, in order of time; None if a sum did not fit."""
    pane = F.expr(f"{_TIME} - pmod({_TIME}, {partials.pane}L)").alias("_pane")
    is_good = F.col(BAD).isNull() if BAD in batch.columns else F.col(_TIME).isNotNull()
    good = batch.where(is_good)
    names = input_.schema.names
    keys = len(partials.keys)
    calls = [(place, text) for place, text in enumerate(partials.groups) if not 1 <= place <= keys]
    grouped = good.groupBy(pane, *partials.keys).agg(*[F.expr(text).alias(names[at]) for at, text in calls])
    held = [F.col(key).alias(names[1 + place]) for place, key in enumerate(partials.keys)]
    own = [F.col(names[place]) for place, _ in calls]
    table = grouped.select(own[0], *held, *own[1:]).toArrow().sort_by(names[0])
    for total, count in partials.sums:
        is_missing = table.column(names[total]).is_null().to_numpy()
        if (is_missing & (table.column(names[count]).to_numpy() > 0)).any():
            return None
    return table


def _by_rows(input_: Input, partials: Partials, batch: DataFrame, arrivals: Arrivals, take: Take) -> None:
    columns = [
        F.expr(text).alias(name) for text, name in zip(partials.rows, input_.schema.names, strict=True)
    ]
    table = batch.select(*columns, *_notes(batch)).toArrow()
    for chunk, rows, _ in arrivals.read(whole(input_), table):
        take(input_, chunk, rows, None, None)


def _notes(batch: DataFrame) -> list[str]:
    return [name for name in (FILE, BAD, RAW) if name in batch.columns]
