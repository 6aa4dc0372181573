"""A process that reads hostile files, with little memory: what it does not survive is a finding."""

from __future__ import annotations

import faulthandler
import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

#: What reading one file may take.
MOST_SECONDS = 20.0
MOST_BYTES = 1 << 30


class Outcome(NamedTuple):
    """Rows read and refused; `error` is that of a run that ended as it should, `fault` says what is wrong."""

    rows: int = 0
    refused: int = 0
    error: str = ""
    fault: str = ""


class FileReader:
    """Reads files one after the other in a process of its own, which is made again if it dies."""

    def __init__(self) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, other = self._spawn.Pipe()
        self._process = self._spawn.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        assert self._pipe.poll(120)
        self._pipe.recv()

    def read(self, path: Path) -> Outcome:
        self._pipe.send(path)
        try:
            if self._pipe.poll(MOST_SECONDS):
                found = self._pipe.recv()
                assert isinstance(found, Outcome)
                return found
            fault = f"longer than {MOST_SECONDS} s"
        except EOFError:
            self._process.join()
            fault = f"the process ended with {self._process.exitcode}"
        self.close()
        self._start()
        return Outcome(fault=fault)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    from tests.fuzz.reading import outcome_of  # loads the kernels, before memory is limited

    faulthandler.enable()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    pipe.send("ready")
    while True:
        try:
            pipe.send(outcome_of(pipe.recv()))
        except EOFError:
            return
