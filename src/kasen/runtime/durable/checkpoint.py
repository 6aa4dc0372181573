"""Checkpoints of a local run: everything that is needed to go on after a crash, in one file.

A checkpoint counts only once it has its final name, which the file system gives it in one step and which ends
with the content's checksum. The two newest are kept: if one is damaged, a run resumes from the other. Arrays
only, no pickles; the format carries a version, and the app's own text is kept beside the state, so that a
checkpoint of another app is refused and not mistaken for this one's.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from kasen.checksum import DamagedFile, checksum_in, checksum_of_file, log, note_unprotected, parsing, verify
from kasen.engine.operator import State
from kasen.errors import DataError, writing

VERSION = 1
_KEPT = 2
_NAME = re.compile(r"state-(\d+)(\.[0-9a-f]{16})?\.npz")


class Checkpoints:
    """The checkpoints in a folder, for one app. Sources can be read again from the older one's places."""

    def __init__(self, folder: Path, app_text: str) -> None:
        self._folder = folder
        self._app_text = app_text
        self._number = 0
        #: Those that this run has read or written, the newest last.
        self._good: list[Path] = []

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
                states, notes = self._read(file)
            except DamagedFile as damage:
                if file is found[0]:
                    raise
                log.warning("note: %s; resuming from the checkpoint before it", damage.fault)
                continue
            self._good = [each for each in found if each <= file]
            if checksum_in(file.name) is None:
                note_unprotected(file)
            return states, notes
        return None

    def _read(self, file: Path) -> tuple[dict[str, State], dict[str, Any]]:
        with parsing(file):
            verify(file, checksum_of_file(file))
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes())
                self._check(file, header)
                states: dict[str, State] = {}
                for part, names in header["parts"].items():
                    states[part] = {name: arrays[f"{part}/{name}"] for name in names}
            return states, dict(header["notes"])

    def _check(self, file: Path, header: dict[str, Any]) -> None:
        if header["version"] != VERSION:
            raise DataError(f"{file} has format {header['version']}; this Kasen reads format {VERSION}")
        if header["app"] != self._app_text:
            raise DataError(
                f"{self._folder} holds checkpoints of another app, or of another text of this one; "
                "give a new folder, or remove this one to start anew"
            )

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
        draft = self._folder / "draft.tmp"
        with writing(draft), draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        final = self._folder / f"state-{self._number:09}.{checksum_of_file(draft)}.npz"
        draft.replace(final)
        sync_folder(self._folder)
        self._good = [*self._good, final][-_KEPT:]
        for old in self._files():
            if old not in self._good:
                old.unlink()

    def _files(self) -> list[Path]:
        return sorted(local_checkpoints(self._folder), key=_number)


def local_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of local runs in a folder, in no order."""
    return [file for file in folder.glob("state-*.npz") if _number(file)]


def _number(file: Path) -> int:
    """The number in a checkpoint's name; 0 for a file that is none."""
    found = _NAME.fullmatch(file.name)
    return int(found[1]) if found else 0


def refuse_spark(folder: Path) -> None:
    """Refuses a folder that a run on Spark has its checkpoint in, before anything is written to it."""
    if (folder / "state").exists() or (folder / "spark").exists():
        raise DataError(
            f"{folder} holds a checkpoint of a run on Spark, and this run is local; "
            "give another folder, or run it on Spark as before"
        )


def refuse_local(folder: Path) -> None:
    """Refuses a folder that a local run has its checkpoints in, before anything is written to it."""
    if local_checkpoints(folder):
        raise DataError(
            f"{folder} holds checkpoints of a local run, and this run is on Spark; "
            "give another folder, or run it with the local engine as before"
        )


def sync_folder(folder: Path) -> None:
    """Makes a rename survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
