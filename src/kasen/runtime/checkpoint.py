"""Checkpoints of a local run: everything that is needed to go on after a crash, in one file.

A checkpoint counts only once it has its final name, which the file system gives it in one step. The
two newest are kept. Arrays only, no pickles; the format carries a version, and the app's own text is kept
beside the state, so that a checkpoint of another app is refused and not mistaken for this one's.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from kasen.errors import DataError
from kasen.operators.base import State

VERSION = 1
_KEPT = 2


class Checkpoints:
    """The checkpoints in a folder, for one app.

    `older_will_do` says that sources can be read again from an older one, should the newest be damaged.
    """

    def __init__(self, folder: Path, app_text: str, *, older_will_do: bool = True) -> None:
        self._older_will_do = older_will_do
        self._folder = folder
        self._app_text = app_text
        self._number = 0

    def load(self) -> tuple[dict[str, State], dict[str, Any]] | None:
        """The newest checkpoint that can be read, or None if there is none."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot keep checkpoints in {self._folder}: {error.strerror}") from None
        found = self._files()
        self._number = _number(found[-1]) if found else 0
        for file in reversed(found):
            try:
                return self._read(file)
            except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
                damaged = f"{file} is damaged ({error})"
                if not self._older_will_do or file is found[0]:
                    raise DataError(f"{damaged}; remove {self._folder} to start anew") from None
        return None

    def _read(self, file: Path) -> tuple[dict[str, State], dict[str, Any]]:
        with np.load(file, allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            if header["version"] != VERSION:
                raise DataError(f"{file} has format {header['version']}; this Kasen reads format {VERSION}")
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
        sync_folder(self._folder)
        for old in self._files()[:-_KEPT]:
            old.unlink()

    def _files(self) -> list[Path]:
        return sorted(file for file in self._folder.glob("state-*.npz") if _number(file))


def _number(file: Path) -> int:
    """The number in a checkpoint's name; 0 for a file that is none."""
    digits = file.stem.removeprefix("state-")
    return int(digits) if digits.isdigit() else 0


def sync_folder(folder: Path) -> None:
    """Makes a rename survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_new(folder: Path, since: int) -> int:
    """Makes files durable that were written to a folder since a time, or below it; returns the new time."""
    latest = since
    for place, _, names in os.walk(folder):
        fresh = 0
        for name in names:
            with suppress(FileNotFoundError), (Path(place) / name).open("rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                if written >= since:
                    os.fsync(file.fileno())
                    latest = max(latest, written)
                    fresh += 1
        if fresh:
            sync_folder(Path(place))
    return latest
