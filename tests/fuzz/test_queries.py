"""Hostile texts end no process, hang none and fill no memory: see tests/fuzz/queries.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import queries

_SEED = 20_261_116


def fuzz(seed: int, seconds: float, folder: Path) -> int:
    """How many texts were tried; AssertionError with the text in hand if the process did not come through."""
    notes = folder / "texts"
    command = [sys.executable, "-m", "tests.fuzz.queries", str(seed), str(seconds), str(notes)]
    limit = seconds + 2 * queries.SECONDS + 30
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        told = f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    except subprocess.TimeoutExpired:
        raise AssertionError(f"seed {seed} hangs with {notes.read_text()}") from None
    assert done.returncode == 0, f"seed {seed}: {told}\nwith {notes.read_text() if notes.exists() else ''}"
    print(done.stdout)
    return int(done.stdout.split()[0])


def test_mutated_apps_and_changes_end_in_answers_or_errors(tmp_path: Path) -> None:
    """A number of texts, not of seconds: a quick machine must not try others than a slow one."""
    assert fuzz(_SEED, 0.0, tmp_path) >= queries.LEAST


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_apps_and_changes_for_minutes(seed: int, tmp_path: Path) -> None:
    assert fuzz(_SEED + seed, 100.0, tmp_path) > 1000
