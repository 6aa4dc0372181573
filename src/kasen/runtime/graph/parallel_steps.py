"""A run of a graph's steps on two cores.

Steps that change nothing but their own state (`Operator.is_independent`) are put into *strands*, of which
none reads another, and these run side by side; all others run one by one. Whatever reads what is in a
strand, and is not in it itself, waits for the next round. What a strand does is the same on any core, and
answers never tell.

Nothing of this is kept from run to run, because queries come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kasen.engine import parallel
from kasen.engine.batch import Batch, empty
from kasen.engine.operator import Operator

#: With fewer rows for each step of the graph, most of the time is Python's, and of that there is one core.
ROWS_A_STEP = 1024
_NOTHING = empty(0)

#: A stage of a single step outside loops: its operator, and what it reads.
Alone = tuple[Operator, tuple[int, ...]]


@dataclass(slots=True, eq=False)
class StepSequence:
    """Steps in an order in which inputs come first; those that only they read; the rows that come in."""

    steps: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    rows: int = 0


class ParallelStepRunner:
    """One run. `out` has what comes in, and gets what each step says; `readers` counts those of each step."""

    def __init__(
        self,
        stages: Mapping[int, Alone],
        readers: Mapping[int, int],
        answers: Iterable[int],
        out: list[Batch],
        run_step: Callable[[int, Alone], None],
    ) -> None:
        """`stages` in an order in which inputs come first; `answers` are the steps that others look at."""
        self._stages = stages
        self._readers = readers
        self._answers = frozenset(answers)
        self._out = out
        self._run_step = run_step

    def run(self) -> None:
        todo = list(self._stages)
        while todo:
            strands, todo = self.next_round(todo)
            # A strand that has most of the rows shares its own work between the cores instead.
            rows = sum(strand.rows for strand in strands)
            is_even = 4 * max((strand.rows for strand in strands), default=0) < 3 * rows
            parallel.share(self._run_strands, strands, rows if is_even else 0)

    def next_round(self, todo: Iterable[int]) -> tuple[list[StepSequence], list[int]]:
        """Runs what goes one by one as far as it can; then these strands can run; then come the others."""
        #: Where steps are that have not run, and windows that several share. None: they wait.
        homes: dict[Hashable, StepSequence | None] = {}
        later: list[int] = []
        for step in todo:
            stage = self._stages[step]
            operator, inputs = stage
            kept = operator.is_independent
            reads: list[Hashable] = []
            for source in inputs:
                if source in homes:
                    if not kept or homes[source] is None or self._readers[source] > 1:
                        homes[step] = None
                        later.append(step)
                        break
                    reads.append(source)
            else:
                if not kept:
                    self._run_step(step, stage)
                    continue
                if (shared := operator.shared_state) is not None:
                    reads.append(shared)
                    homes.setdefault(shared, StepSequence())
                homes[step] = strand = _united(reads, homes)
                self._enter(strand, step, inputs, homes)
        return list(dict.fromkeys(home for home in homes.values() if home is not None)), later

    def _enter(
        self,
        strand: StepSequence,
        step: int,
        inputs: tuple[int, ...],
        homes: Mapping[Hashable, StepSequence | None],
    ) -> None:
        for source in inputs:
            if source not in homes:
                strand.rows += len(self._out[source])
            elif source not in self._answers:
                strand.inner.append(source)
        strand.steps.append(step)

    def _run_strands(self, strands: Iterable[StepSequence]) -> None:
        for strand in strands:
            for step in strand.steps:
                self._run_step(step, self._stages[step])
            for step in strand.inner:
                self._out[step] = _NOTHING  # its memory is there for the next strand


def _united(reads: Sequence[Hashable], homes: dict[Hashable, StepSequence | None]) -> StepSequence:
    """The strand that all these are in from now on; a new one if there are none."""
    found = [home for home in map(homes.get, reads) if home is not None]
    if not found:
        return StepSequence()
    first = found[0]
    for other in found[1:]:
        if other is not first:
            first.steps += other.steps
            first.inner += other.inner
            first.rows += other.rows
            for key, home in homes.items():
                if home is other:
                    homes[key] = first
    return first
