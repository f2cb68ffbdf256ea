"""How many heaps the C library keeps for threads."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


def share_heaps() -> None:
    """Let all threads of this process share two heaps (glibc's `M_ARENA_MAX`), unless the environment says how many.

    glibc gives threads up to eight heaps a core, and what one of them has freed no other can use: the producer has a dozen threads,
    and most of its buffers are freed by another thread than the one that asked for them. mallopt(3); other C libraries have no
    such limit.
    """
    is_given = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if platform.libc_ver()[0] != "glibc" or is_given:
        return
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
