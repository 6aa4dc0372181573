"""Keeps numba's cache honest.

numba compiles a kernel anew when the kernel's own file has changed. It does not notice a change in a file
whose functions the kernel calls: these are inside the cached code, together with every constant, such as
where a field lies in a slot. A kernel from the cache and one just compiled would then disagree about
the arrays that they share.

Kernels lie in many folders, all of them named `kernels`, so a module is known by its whole dotted name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_IMPORT = re.compile(r"^from (kasen[\w.]*) import ([\w, ]+|\([^)]*\))", re.MULTILINE)


def drop_stale(root: Path, package: str) -> list[str]:
    """Deletes cached kernels below the folder of `package` that are older than a file they depend on.

    Returns the names of their modules.
    """
    folders = [folder for folder in root.glob("**/kernels") if folder.is_dir()]
    sources = {_module(source, root, package): source for folder in folders for source in folder.glob("*.py")}
    written = _times(sources.values())
    changed = {name: written[source] for name, source in sources.items() if source in written}
    cached = _times(index for folder in folders for index in (folder / "__pycache__").glob("*.nbi"))
    if not cached or max(changed.values()) < min(cached.values()):
        return []
    imports = {name: _imported(sources[name].read_text(), changed) for name in changed}
    dropped = set()
    for index, time in cached.items():
        source = index.parent.parent / f"{index.name.partition('.')[0]}.py"
        module = _module(source, root, package)
        depends = _reachable(module, imports)
        if depends and max(changed[other] for other in depends) > time:
            index.unlink(missing_ok=True)
            dropped.add(module)
    return sorted(dropped)


def _module(source: Path, root: Path, package: str) -> str:
    return ".".join((package, *source.relative_to(root).with_suffix("").parts))


def _times(files: Iterable[Path]) -> dict[Path, float]:
    """When files were written, without those that another process has deleted meanwhile."""
    times: dict[Path, float] = {}
    for file in files:
        with suppress(FileNotFoundError):
            times[file] = file.stat().st_mtime
    return times


def _imported(text: str, modules: dict[str, float]) -> set[str]:
    """The kernel modules that a text imports, or imports something of."""
    found = set()
    for module, names in _IMPORT.findall(text):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found & modules.keys()


def _reachable(module: str, imports: dict[str, set[str]]) -> set[str]:
    """The module, if there is one, and all that it imports, directly or not."""
    reached: set[str] = set()
    ahead = [module] if module in imports else []
    while ahead:
        reached.add(name := ahead.pop())
        ahead += imports[name] - reached
    return reached
