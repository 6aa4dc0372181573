"""How a pipeline runs, as its program says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kasen.errors import DataError


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """The arguments of `Pipeline`, which has what they mean."""

    engine: str
    base: Path
    batch: int
    clock: Callable[[], float]
    patience: float
    shed_log: Path | None
    replay: Path | None
    master: str | None
    checkpoint: str | Path | None
    files_per_epoch: int | None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise DataError("batch must be at least 1")
        if self.engine not in ("local", "spark"):
            raise DataError(f"there is no engine {self.engine!r}; there are 'local' and 'spark'")
        if self.engine == "local" and (self.master or self.checkpoint or self.files_per_epoch):
            raise DataError("master, checkpoint and files_per_epoch are for engine='spark'")

    @property
    def on_spark(self) -> bool:
        return self.engine == "spark"
