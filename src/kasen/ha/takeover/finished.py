"""Which nodes have finished, noted in a folder that the nodes of a cluster share.

"Finished" travels up a chain in acknowledgements, and everybody who has heard it leaves. A copy that starts
after that finds nobody to ask, so each node also leaves a note. Without a shared folder (`finished_folder`),
such a copy waits until somebody stops it.
"""

from __future__ import annotations

from pathlib import Path


class FinishedNodes:
    """One empty file per finished node."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def note(self, name: str) -> None:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).touch()

    def __contains__(self, name: object) -> bool:
        return self._folder is not None and (self._folder / str(name)).exists()
