"""The folder of compiled kernels in an image whose root file system is read-only.

An image has its kernels in `NUMBA_CACHE_DIR`, compiled when it was built. Numba uses a folder only if it can write to it; if it can
write to none, it refuses to import what is to be cached. So a read-only folder is copied at the start of a command, once for each
user and version: the copy stays in the folder for temporary files, and later commands use it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

WITHOUT_KERNELS: Final = frozenset(
    (
        "compare", "completion", "config", "import-debezium", "import-flink-cdc", "lag", "offsets", "reload", "schema", "signal",
        "snapshot", "status", "tail", "version",
    )
)  # fmt: skip
"""The verbs that import no kernels."""
_FOLDER: Final = "NUMBA_CACHE_DIR"


def provide_writable_kernels(verb: str) -> None:
    """Set `NUMBA_CACHE_DIR` to a copy of that folder, where it is there, cannot be written, and the verb needs kernels.

    For the start of a command, before Numba is imported. Processes that it starts, Spark's workers for one, use the copy too.
    """
    given = os.environ.get(_FOLDER)
    if verb in WITHOUT_KERNELS or not given or not os.access(given, os.R_OK | os.X_OK) or os.access(given, os.W_OK):
        return
    copy = Path(tempfile.gettempdir()) / f"tidemark-kernels-{os.geteuid()}-{_version(Path(given))}"
    os.environ[_FOLDER] = str(copy if _is_ours(copy) else _copied(Path(given), copy))


def _copied(source: Path, copy: Path) -> Path:
    """Return the copy, complete when it has its name; one of this process alone where another user has taken the name."""
    made = Path(tempfile.mkdtemp(prefix="tidemark-kernels-"))
    shutil.copytree(source, made, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for folder in (made, *(one for one in made.rglob("*") if one.is_dir())):
        folder.chmod(0o700)
    try:
        made.rename(copy)
    except OSError:
        if _is_ours(copy):  # another process was first
            shutil.rmtree(made)
            return copy
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made
    return copy


def _is_ours(folder: Path) -> bool:
    """Return whether nobody else can have written to a folder: what Numba finds in it is executed."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _version(source: Path) -> str:
    """Return a hash of what makes a folder another one: its path, and the names, sizes and times of its files."""
    digest = hashlib.sha256(str(source.absolute()).encode())
    for path in sorted(source.rglob("*")):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
