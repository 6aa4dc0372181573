"""What a batch size costs, and the batch size that keeps a bound.

Between two acknowledgements the tuples that nobody has released pile up to a *peak*. A batch larger than the
peak never fills, because the acknowledgement comes first; a smaller one fills and is sent. So what would be
sent follows from the peaks of late that reach a batch size: the overhead.

After a crash the secondary asks for what it was not sent: at most a batch, and never more than a peak. Each
such tuple has to cross the link and to be worked on; on top comes what every takeover costs.
"""

from __future__ import annotations

from collections import deque

#: What a takeover costs beside the tuples: claims at the neighbours, and waking up. Measured on loopback.
TAKEOVER_SECONDS = 0.03
#: Peaks that are looked at: with acknowledgements every 250 ms, those of the last eight seconds.
_PEAKS = 32
#: A tuple's work before any was measured.
_SERVICE_SECONDS = 20e-6
_MOST = 1 << 30


class CostModel:
    """Of one link. Rates, sizes and times come in as they are measured; the latest count most."""

    def __init__(self) -> None:
        self._peaks: deque[tuple[int, int]] = deque(maxlen=_PEAKS)
        self.service = _SERVICE_SECONDS
        self.transfer = 0.0

    def saw_peak(self, unreleased: int, arrived: int) -> None:
        """So many tuples were unreleased just before an acknowledgement, and so many new since the last."""
        self._peaks.append((unreleased, arrived))

    def saw_service(self, seconds_per_tuple: float) -> None:
        self.service += 0.2 * (seconds_per_tuple - self.service)

    def saw_transfer(self, seconds: float, tuples: int) -> None:
        """How long it took to hand so many tuples to the network."""
        self.transfer += 0.1 * (seconds / max(1, tuples) - self.transfer)

    # ------------------------------------------------------------ predictions

    def overhead(self, batch: int | None) -> float:
        """Predicted bytes to the secondary, as a share of the bytes to the primary."""
        if batch is None:
            return 0.0
        total = sum(arrived for _, arrived in self._peaks)
        if not total:
            return 1.0
        # A batch that fills once takes all that is unreleased with it, older tuples too.
        return min(1.0, sum(max(batch, arrived) for peak, arrived in self._peaks if peak >= batch) / total)

    def recovery(self, batch: int | None) -> float:
        """Predicted seconds from the detection of a crash to the state just before it."""
        peak = max((peak for peak, _ in self._peaks), default=0)
        again = peak if batch is None else min(batch, peak)
        return TAKEOVER_SECONDS + again * (self.service + self.transfer)

    # ------------------------------------------------------------ choices

    def batch_for_recovery(self, bound: float) -> tuple[int, bool]:
        """The largest batch that recovers in time, so that the overhead is least; and whether any does."""
        left = bound - TAKEOVER_SECONDS
        each = self.service + self.transfer
        if left < each:
            return 1, False
        return max(1, min(_MOST, int(left / each))), True

    def batch_for_overhead(self, bound: float) -> tuple[int, bool]:
        """The smallest batch that keeps the overhead, so that recovery is fastest. One always does."""
        if bound >= 1.0 or not self._peaks:
            return 1, True
        # Somewhat above a peak: the next ones will not be exactly as the last ones were.
        choices = sorted({int(peak * 1.1) + 1 for peak, _ in self._peaks})
        return next(batch for batch in choices if self.overhead(batch) <= bound or batch == choices[-1]), True
