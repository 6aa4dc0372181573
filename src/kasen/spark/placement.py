"""Where an epoch's operators run.

The epoch loop (pipeline.py) knows when an epoch begins and when it counts. A placement knows how the rows of
a micro-batch get to the operators, and how their answers come back.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from kasen.plan.physical import Input, Plan
from kasen.runtime.feed import Rows
from kasen.runtime.outputs import Outputs
from kasen.runtime.pipeline import Pipeline
from kasen.spark import frames
from kasen.spark.intake import Intake


class Placement(Protocol):
    """Called in this order: `table` for each static table, `frame` once, `epoch` often, `end`."""

    def table(self, one: Input, frame: DataFrame, *, again: bool) -> None:
        """A static table's rows; `again` says that an earlier run has buried its bad ones."""
        ...

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        """Of the streams' own frames (frames.open_frame), the one whose micro-batches `epoch` gets."""
        ...

    def epoch(self, batch: DataFrame, number: int) -> None:
        """Takes a micro-batch's rows and delivers the answers of every instant that is complete."""
        ...

    def end(self, *, flush: bool) -> None:
        """No more rows come: delivers what is left."""
        ...


class InDriver:
    """Rows come to the driver as Arrow, and its own pipeline answers: one Spark job an epoch, no exchange."""

    def __init__(self, plan: Plan, pipeline: Pipeline, outputs: Outputs, intake: Intake) -> None:
        self._streams = [one for one in plan.app.inputs if not one.is_static]
        self._pipeline = pipeline
        self._outputs = outputs
        self._intake = intake

    def table(self, one: Input, frame: DataFrame, *, again: bool) -> None:
        for chunk, rows in self._intake.of_input(one, frames.numbered(frame).toArrow()):
            self._outputs.take(one.name, rows, [] if again else chunk.dead, chunk, _offset(rows))

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        return frames.union(opened)

    def epoch(self, batch: DataFrame, number: int) -> None:
        del number
        for one, chunk, rows in self._intake.of_union(frames.numbered(batch).toArrow()):
            self._outputs.take(one.name, rows, chunk.dead, chunk, _offset(rows))
        self._outputs.deliver(self._pipeline.run())

    def end(self, *, flush: bool) -> None:
        for one in self._streams:
            self._pipeline.end(one.name)
        self._outputs.deliver(self._pipeline.run())
        if flush:
            for answer in self._pipeline.flush():
                self._outputs.deliver(answer)


def _offset(rows: Rows) -> int:
    """What to take from a row's position to get its row in its chunk."""
    return int(rows.position[0]) if len(rows) else 0
