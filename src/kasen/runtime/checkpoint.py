"""Checkpoints of a local run: everything that is needed to go on after a crash, in one file.

A checkpoint counts only once it has its final name, which the file system gives it in one step. The
two newest are kept. Arrays only, no pickles; the format carries a version, and the app's own text is kept
beside the state, so that a checkpoint of another app is refused and not mistaken for this one's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from kasen.errors import DataError
from kasen.operators.base import State

VERSION = 1
_KEPT = 2


class Checkpoints:
    """The checkpoints in a folder, for one app."""

    def __init__(self, folder: Path, app_text: str) -> None:
        self._folder = folder
        self._app_text = app_text
        self._number = 0

    def load(self) -> tuple[dict[str, State], dict[str, Any]] | None:
        """The newest checkpoint, or None if there is none."""
        found = self._files()
        if not found:
            return None
        newest = found[-1]
        self._number = int(newest.stem.split("-")[1])
        with np.load(newest, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["version"] != VERSION:
                raise DataError(f"{newest} has format {header['version']}; this Kasen reads format {VERSION}")
            if header["app"] != self._app_text:
                raise DataError(
                    f"{self._folder} holds checkpoints of another app, or of another text of this one; "
                    "give a new folder, or remove this one to start anew"
                )
            states: dict[str, State] = {}
            for part, names in header["parts"].items():
                states[part] = {name: arrays[f"{part}/{name}"] for name in names}
        return states, header["notes"]

    def save(self, states: dict[str, State], notes: dict[str, Any]) -> None:
        """Writes a checkpoint; when this returns, it survives a crash of the process or the machine."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        header = {
            "version": VERSION,
            "app": self._app_text,
            "parts": {part: list(state) for part, state in states.items()},
            "notes": notes,
        }
        arrays = {f"{part}/{name}": array for part, state in states.items() for name, array in state.items()}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        final = self._folder / f"state-{self._number:09}.npz"
        draft = self._folder / "draft.tmp"
        with draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(final)
        _sync_folder(self._folder)
        for old in self._files()[:-_KEPT]:
            old.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("state-*.npz"))


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
