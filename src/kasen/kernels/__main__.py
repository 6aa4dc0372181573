"""`python -m kasen.kernels` compiles all kernels, so that no later run has to wait for the compiler.

Compiled code is kept beside the sources; what is there already is loaded in no time.
"""

from __future__ import annotations

import pkgutil
import sys
import time
from importlib import import_module

import kasen.kernels


def main() -> None:
    names = sorted(module.name for module in pkgutil.iter_modules(kasen.kernels.__path__))
    names.remove("__main__")
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        sys.stderr.write(f"\rcompiling kernels: {number} of {len(names)} ({name})\033[K")
        sys.stderr.flush()
        import_module(f"kasen.kernels.{name}")
    sys.stderr.write(f"\rkernels are compiled ({time.monotonic() - started:.0f} s)\033[K\n")


if __name__ == "__main__":
    main()
