"""A run of a graph's steps on two cores.

Steps that change nothing but their own state (`Operator.is_independent`) form *sequences*. No sequence
reads another one, so sequences run side by side; all other steps run one by one. A step that reads a
sequence and is not part of it waits for the next round. A sequence does the same on any core, so answers
never depend on this.

Nothing is kept from run to run, because queries come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kasen.engine import parallel
from kasen.engine.batch import Batch, empty
from kasen.engine.operator import Operator

#: With fewer rows per step of the graph, Python takes most of the time, and Python runs on one core.
ROWS_PER_STEP = 1024
_NOTHING = empty(0)

#: A stage of a single step outside loops: its operator, and what it reads.
SingleStep = tuple[Operator, tuple[int, ...]]


@dataclass(slots=True, eq=False)
class StepSequence:
    """Steps in an order in which inputs come first; those that only they read; the rows that come in."""

    steps: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    rows: int = 0


class ParallelStepRunner:
    """One run. `out` holds the input and receives each step's output; `readers` counts a step's readers."""

    def __init__(
        self,
        stages: Mapping[int, SingleStep],
        readers: Mapping[int, int],
        answers: Iterable[int],
        out: list[Batch],
        run_step: Callable[[int, SingleStep], None],
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
            sequences, todo = self.next_round(todo)
            # A sequence that has most of the rows shares its own work between the cores instead.
            rows = sum(sequence.rows for sequence in sequences)
            is_even = 4 * max((sequence.rows for sequence in sequences), default=0) < 3 * rows
            parallel.share(self._run_sequences, sequences, rows if is_even else 0)

    def next_round(self, todo: Iterable[int]) -> tuple[list[StepSequence], list[int]]:
        """Runs single steps as far as possible; returns the sequences that can run now, and the rest."""
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
                homes[step] = sequence = _united(reads, homes)
                self._enter(sequence, step, inputs, homes)
        return list(dict.fromkeys(home for home in homes.values() if home is not None)), later

    def _enter(
        self,
        sequence: StepSequence,
        step: int,
        inputs: tuple[int, ...],
        homes: Mapping[Hashable, StepSequence | None],
    ) -> None:
        for source in inputs:
            if source not in homes:
                sequence.rows += len(self._out[source])
            elif source not in self._answers:
                sequence.inner.append(source)
        sequence.steps.append(step)

    def _run_sequences(self, sequences: Iterable[StepSequence]) -> None:
        for sequence in sequences:
            for step in sequence.steps:
                self._run_step(step, self._stages[step])
            for step in sequence.inner:
                self._out[step] = _NOTHING  # its memory is free for the next sequence


def _united(reads: Sequence[Hashable], homes: dict[Hashable, StepSequence | None]) -> StepSequence:
    """The sequence that holds all of these from now on; a new one if none holds any."""
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
