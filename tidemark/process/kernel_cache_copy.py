"""The folder of compiled kernels in an image whose root file system is read-only.

An image has its kernels in `NUMBA_CACHE_DIR`, compiled when it was built. Numba uses a folder only if it can write to it; if it can
write to none, it refuses to import what is to be cached. So a read-only folder is copied at the start of the command.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_FOLDER: Final = "NUMBA_CACHE_DIR"


def provide_writable_kernels() -> None:
    """Set `NUMBA_CACHE_DIR` to a temporary copy of that folder, where it is there and cannot be written; removed at the end.

    For the start of a command, before Numba is imported. Processes that it starts, Spark's workers for one, use the copy too.
    """
    given = os.environ.get(_FOLDER)
    if not given or not os.access(given, os.R_OK | os.X_OK) or os.access(given, os.W_OK):
        return
    copy = Path(tempfile.mkdtemp(prefix="tidemark-kernels-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    shutil.copytree(given, copy, dirs_exist_ok=True)
    os.environ[_FOLDER] = str(copy)
