"""How a pipeline runs from its first row on: what `Pipeline` asks of each way of running."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kasen.api.queries import Queries
from kasen.api.unread import UnreadChanges
from kasen.cql.bound import App
from kasen.runtime.input.pressure import Admission
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import Answer
from kasen.runtime.pipeline import RunningPipeline as Running
from kasen.runtime.pushed import OUTPUT_ROWS


class Mode(ABC):
    """One way of running. It begins when it is made, and is not left any more."""

    def __init__(self, app: App, queries: Queries) -> None:
        self._app = app
        self._queries = queries
        #: How many changes of a query may wait for their reader.
        self._most = int(app.setting("output_rows", str(OUTPUT_ROWS)))

    @property
    @abstractmethod
    def pipeline(self) -> Running:
        """What runs the operators."""

    @property
    @abstractmethod
    def outputs(self) -> Outputs: ...

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it runs in the background."""

    @property
    def pressure(self) -> dict[str, Admission]:
        """What became of pushed rows, by stream."""
        return {}

    @abstractmethod
    def execute(self, text: str, /) -> None:
        """Changes queries while data flows."""

    @abstractmethod
    def start(self) -> None:
        """Runs in the background from now on."""

    @abstractmethod
    def drain(self) -> None:
        """Runs to the end of the input; returns when every answer is out, or raises what prevented it."""

    @abstractmethod
    def stop(self) -> None:
        """Ends what runs in the background, with all sinks flushed."""

    def make_room(self) -> None:  # noqa: B027
        """A reader has taken something: whoever waits for that goes on."""

    def tell_error(self) -> None:  # noqa: B027
        """Raises what ended a background run, if nobody has been told of it yet."""

    def _on_answer(self, answer: Answer, wait: Callable[[UnreadChanges], None] | None = None) -> None:
        # Epochs are counted on after a restart, so that what comes twice can be told by their numbers.
        self._queries.deliver(answer, self.outputs.answers, self.pipeline.dictionary, wait)
        if answer.change is not None:
            self._queries.follow(answer.change, self._app.time)
