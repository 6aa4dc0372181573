"""Keeps numba's cache honest.

numba compiles a kernel anew when the kernel's own file has changed. It does not notice a change in a file
whose functions the kernel calls: these are inside the cached code, together with every constant, such as
where a field lies in a slot. A kernel from the cache and one just compiled would then disagree about
the arrays that they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_IMPORT = re.compile(r"^from kasen\.kernels(?:\.(\w+))? import ([\w, ]+|\([^)]*\))", re.MULTILINE)


def drop_stale(folder: Path) -> list[str]:
    """Deletes the cached kernels older than a file that they depend on; returns their modules' names."""
    cached = _times((folder / "__pycache__").glob("*.nbi"))
    changed = {source.stem: time for source, time in _times(folder.glob("*.py")).items()}
    if not cached or max(changed.values()) < min(cached.values()):
        return []
    imports = {source.stem: _imported(source.read_text(), changed) for source in folder.glob("*.py")}
    dropped = set()
    for index, time in cached.items():
        module = index.name.partition(".")[0]
        depends = _reachable(module, imports)
        if depends and max(changed[other] for other in depends) > time:
            index.unlink(missing_ok=True)
            dropped.add(module)
    return sorted(dropped)


def _times(files: Iterable[Path]) -> dict[Path, float]:
    """When files were written, without those that another process has deleted meanwhile."""
    times: dict[Path, float] = {}
    for file in files:
        with suppress(FileNotFoundError):
            times[file] = file.stat().st_mtime
    return times


def _imported(text: str, modules: dict[str, float]) -> set[str]:
    names = (name for found in _IMPORT.findall(text) for name in (found[0], *re.findall(r"\w+", found[1])))
    return {name for name in names if name in modules}


def _reachable(module: str, imports: dict[str, set[str]]) -> set[str]:
    """The module, if there is one, and all that it imports, directly or not."""
    reached: set[str] = set()
    ahead = [module] if module in imports else []
    while ahead:
        reached.add(name := ahead.pop())
        ahead += imports[name] - reached
    return reached
