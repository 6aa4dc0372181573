"""Cached kernels are dropped when a file that they depend on has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kasen.engine.kernels.stale import drop_stale

#: Modules of two folders; two of them have the same name.
SOURCES = {
    "kernels/hashing": "import numpy as np\n",
    "join/kernels/rows": "from kasen.engine.kernels.hashing import mix\n",
    "join/kernels/join": "from kasen.engine.join.kernels.rows import (\n    NEXT,\n    find,\n)\n",
    "pair/inner/kernels/join": "from kasen.engine.join.kernels import join as outer, rows\n",
    "kernels/alone": "from kasen.types import Kind\n",
    "kernels/other": "from kasen.engine.kernels import alone, marks\n",
}


@pytest.mark.parametrize(
    ("edited", "dropped"),
    [
        (None, []),
        (
            "kernels/hashing",
            ["join.kernels.join", "join.kernels.rows", "kernels.hashing", "pair.inner.kernels.join"],
        ),
        ("join/kernels/rows", ["join.kernels.join", "join.kernels.rows", "pair.inner.kernels.join"]),
        ("join/kernels/join", ["join.kernels.join", "pair.inner.kernels.join"]),
        ("pair/inner/kernels/join", ["pair.inner.kernels.join"]),
        ("kernels/alone", ["kernels.alone", "kernels.other"]),
    ],
)
def test_a_change_reaches_all_that_depend_on_it(
    tmp_path: Path, edited: str | None, dropped: list[str]
) -> None:
    indexes = {}
    for name, text in SOURCES.items():
        source = tmp_path / f"{name}.py"
        index = source.parent / "__pycache__" / f"{source.stem}.f-1.py311.nbi"
        index.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        index.touch()
        os.utime(source, (100, 300 if name == edited else 100))
        os.utime(index, (200, 200))
        indexes[name.replace("/", ".")] = index
    assert drop_stale(tmp_path, "kasen.engine") == [f"kasen.engine.{name}" for name in dropped]
    assert {name for name, index in indexes.items() if index.exists()} == set(indexes) - set(dropped)
    assert drop_stale(tmp_path, "kasen.engine") == []
