"""The pipeline reads its sources itself, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kasen.api.options import PipelineOptions
from kasen.api.queries import Queries
from kasen.api.source_mode import SourceMode
from kasen.cql.bound import App
from kasen.errors import DataError
from kasen.plan.physical import plan_app

if TYPE_CHECKING:  # Spark is loaded when it is first used
    from kasen.spark.pipeline import SparkRun
    from kasen.spark.scan.sources import Frame


class SparkMode(SourceMode):
    """One streaming query, which also reads the DataFrames that the program has given."""

    _run: SparkRun

    def __init__(
        self,
        app: App,
        options: PipelineOptions,
        queries: Queries,
        frames: Mapping[str, Frame],
        follow: bool | None,
    ) -> None:
        """`frames` are by the names of their streams; `follow` is as `SparkOptions` has it."""
        from kasen.spark.options import SparkOptions
        from kasen.spark.pipeline import SparkRun

        super().__init__(app, queries)
        for input_ in app.inputs:
            if input_.connector.format == "memory" and input_.name not in frames:
                raise DataError(
                    f"{input_.name} has no rows yet: give its DataFrame by p.stream({input_.name!r}, df)"
                )
        on_spark = SparkOptions(
            options.base,
            master=options.master,
            checkpoint=options.checkpoint,
            files_per_epoch=options.files_per_epoch,
            follow=follow,
        )
        self._run = SparkRun(plan_app(app), on_spark, on_answer=self._receive, given=frames)

    def frame(self, table: pa.Table) -> Frame:
        """A table as a DataFrame of the session that runs."""
        return self._run.spark.createDataFrame(table)
