"""`python -m kasen.engine.kernels` compiles all kernels, so that no later run has to wait for the compiler.

Compiled code is kept beside the sources; what is there already is loaded in no time.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path


def main() -> None:
    root = Path(__file__).parents[1]
    sources = sorted(root.glob("**/kernels/[!_]*.py"))
    names = [".".join(source.relative_to(root).with_suffix("").parts) for source in sources]
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        sys.stderr.write(f"\rcompiling kernels: {number} of {len(names)} ({name})\033[K")
        sys.stderr.flush()
        import_module(f"kasen.engine.{name}")
    sys.stderr.write(f"\rkernels are compiled ({time.monotonic() - started:.0f} s)\033[K\n")


if __name__ == "__main__":
    main()
