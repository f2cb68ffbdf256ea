"""Locks of files that other processes have, seen from outside: nothing is locked."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

_FLOCK: Final = "hhqqi4x" if struct.calcsize("l") == 8 else "hhlli"


def lock_holder(path: Path) -> int | None:
    """Return the number of the process that has locked a file; None if none has, or the file cannot be opened.

    It is 0 or less for a process that has no number here: of another container, or of another machine.
    """
    found = _asked(path)
    return None if found is None or found[0] == fcntl.F_UNLCK else found[1]


def is_locked(path: Path) -> bool | None:
    """Return whether another process has locked a file; None where there is none, or it cannot be opened."""
    found = _asked(path)
    return None if found is None else found[0] != fcntl.F_UNLCK


def _asked(path: Path) -> tuple[int, int] | None:
    """Return the kind of the lock that another process has, and its number."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return int(kind), int(holder)
