"""Cached kernels are dropped when a file that they depend on has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kasen.kernels.stale import drop_stale

SOURCES = {
    "hashing": "import numpy as np\n",
    "rows": "from kasen.kernels.hashing import mix\n",
    "join": "from kasen.kernels.rows import (\n    NEXT,\n    find,\n)\n",
    "alone": "from kasen.types import Kind\n",
    "other": "from kasen.kernels import alone, marks\n",
}


@pytest.mark.parametrize(
    ("edited", "dropped"),
    [
        (None, []),
        ("hashing", ["hashing", "join", "rows"]),
        ("rows", ["join", "rows"]),
        ("join", ["join"]),
        ("alone", ["alone", "other"]),
    ],
)
def test_a_change_reaches_all_that_depend_on_it(
    tmp_path: Path, edited: str | None, dropped: list[str]
) -> None:
    (tmp_path / "__pycache__").mkdir()
    for name, text in SOURCES.items():
        source, index = tmp_path / f"{name}.py", tmp_path / "__pycache__" / f"{name}.f-1.py311.nbi"
        source.write_text(text)
        index.touch()
        os.utime(source, (100, 300 if name == edited else 100))
        os.utime(index, (200, 200))
    assert drop_stale(tmp_path) == dropped
    left = {index.name.partition(".")[0] for index in (tmp_path / "__pycache__").iterdir()}
    assert left == set(SOURCES) - set(dropped)
    assert drop_stale(tmp_path) == []
