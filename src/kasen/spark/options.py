"""How an app runs on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kasen.connect.files import is_address
from kasen.spark.place import OperatorPlace


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """`out` is the folder of the answers; without it only sinks named by INTO are written.

    `checkpoint` is a folder, or an address on a file system that all hosts reach; `conf` is for Spark.
    `place` and `shards` say where operators run and on how many shards; if None, the master does.
    `follow` says whether to go on when all that is there has been read; if None, a run does so for streams
    that are told to, or are never finished.
    At the socket `control` the run listens for changes of its queries. As the next may read any column,
    all of them come to the operators then, and Spark computes nothing for those that are there.
    """

    base: Path
    out: Path | None = None
    master: str | None = None
    checkpoint: str | Path | None = None
    files_per_epoch: int | None = None
    flush: bool = False
    place: OperatorPlace | None = None
    shards: int | None = None
    follow: bool | None = None
    control: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def local_checkpoint(self) -> Path | None:
        """The checkpoint, if it is a folder of this machine."""
        if self.checkpoint is None or is_address(self.checkpoint):
            return None
        return Path(str(self.checkpoint))
