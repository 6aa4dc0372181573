"""How a process that does little else than run a pipeline should treat its memory.

Every epoch makes and frees arrays of about the same size. The C library would give the large ones back
to the system at once and get them again, zeroed page by page, for the next epoch: that costs more than
most of what is computed on them. And it would give each thread memory of its own, which it never keeps.

And once in a while Python's collector looks for garbage among all objects that there are: a quarter of a
million after the libraries are loaded, a tenth of a second during which no answer comes.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import platform
from functools import cache

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST_KEPT = 64 << 20
_LARGEST_KEPT = 32 << 20  # the most that glibc takes


@cache
def own_process() -> None:
    """Freed memory is kept, and what has been loaded so far is never looked at as garbage again."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries count what is left at the end


def keep_freed_memory() -> bool:
    """Lets the C library keep up to 64 MB of freed memory; False if it is not one that can be told.

    Of all threads, if it is called before there are others.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_KEPT, _TRIM_THRESHOLD: _MOST_KEPT, _ARENA_MAX: 1}
    return all(library.mallopt(name, value) for name, value in settings.items())
