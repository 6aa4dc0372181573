"""Processes as the system knows them: for tests that signal real ones."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """The processes below one, as the system knows them now."""
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            found += [int(entry.name), *children(int(entry.name))]
    return found


def command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that nobody has waited for yet does not."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def has_loaded(pid: int, library: str) -> bool:
    """Whether a process has a file of that name in its memory."""
    try:
        return library in (_PROC / str(pid) / "maps").read_text()
    except OSError:
        return False


def still_alive(pids: list[int], most: float) -> list[int]:
    """Those that have not ended after so many seconds."""
    deadline = time.monotonic() + most
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def shell_code(returncode: int) -> int:
    """What a shell tells of it."""
    return returncode if returncode >= 0 else 128 - returncode


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
