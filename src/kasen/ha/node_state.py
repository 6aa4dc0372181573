"""What a copy remembers of its neighbours and of the links to them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kasen.ha.config import Neighbour
from kasen.ha.cost import CostModel
from kasen.ha.link.out_queue import OutQueue
from kasen.ha.link.wire import BEGIN


@dataclass(slots=True)
class KnownPrimary:
    """Which copy of a neighbour is the primary, and since which generation."""

    generation: int
    primary: str


@dataclass(slots=True)
class Acknowledgement:
    """The latest acknowledgement of one downstream copy."""

    received: int = BEGIN
    takes_batches: bool = True


@dataclass(slots=True)
class LinkTraffic:
    """What went over one link to one copy: tuples, bytes of their values, bytes with their framing."""

    rows: int = 0
    payload: int = 0
    wire: int = 0


@dataclass(slots=True)
class OutputLink:
    """A link to a downstream node, with what its copies have acknowledged."""

    link: Neighbour
    queue: OutQueue
    heard: dict[str, Acknowledgement]
    main: LinkTraffic = field(default_factory=LinkTraffic)
    backup: LinkTraffic = field(default_factory=LinkTraffic)
    finished: bool = False
    connected: bool = False
    batch: int | None = 1
    bound_kept: bool = True
    #: Tuples that may go to the secondary within max_overhead: what the main link earned and backup did not
    #: spend.
    allowance: float = 0.0
    arrived: int = 0
    cost: CostModel = field(default_factory=CostModel)
