"""The pipeline reads its sources itself, in the caller's thread or in one of its own."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from kasen.api.mode import Mode
from kasen.api.options import PipelineOptions
from kasen.api.queries import Queries
from kasen.api.unread import UnreadChanges
from kasen.cql.bound import App
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import RunningPipeline as Running

if TYPE_CHECKING:
    from kasen.spark.pipeline import SparkRun


class SourceMode(Mode):
    """A run to the end of the input, which the subclass makes."""

    _run: LocalRun | SparkRun

    def __init__(self, app: App, queries: Queries) -> None:
        super().__init__(app, queries)
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._is_told = False
        #: What the run tells its answers: readers that are far behind hold a background run up.
        self._receive = partial(self._on_answer, wait=self._wait_for_reader)

    @property
    def pipeline(self) -> Running:
        return self._run.pipeline  # type: ignore[return-value]  # Remote, with executors

    @property
    def outputs(self) -> Outputs:
        return self._run.outputs

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def execute(self, _: str, /) -> None:
        raise DataError("a pipeline that reads its sources itself is changed through `kasen ctl`")

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kasen", daemon=True)
            self._thread.start()

    def drain(self) -> None:
        if self._thread is None:
            self._work()
        else:
            self._thread.join()
        if self._error is not None:
            self._is_told = True
            raise self._error

    def stop(self) -> None:
        self._stopping.set()
        self._run.stop()
        if self._thread is not None:
            self._thread.join()

    def tell_error(self) -> None:
        if self._error is not None and not self._is_told and self._thread is not None:
            self._is_told = True
            raise self._error

    def _work(self) -> None:
        try:
            self._run.run()
        except Exception as error:  # also one from a caller's own function: `drain` must not hide it
            self._error = error

    def _wait_for_reader(self, unread: UnreadChanges) -> None:
        if threading.current_thread() is self._thread:
            unread.wait_for_room(self._most, self._stopping)


class LocalMode(SourceMode):
    """In this process."""

    def __init__(self, app: App, options: PipelineOptions, queries: Queries) -> None:
        super().__init__(app, queries)
        self._run = LocalRun(
            plan_app(app), Options(options.base, batch=options.batch), on_answer=self._receive
        )
