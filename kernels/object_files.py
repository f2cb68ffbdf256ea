"""Where object files of kernels are kept, and how one is made that is not there.

A file is named after its group, the sources it was made of, and what it was made for: the processor and its features, Python and
Numba. It is in `NUMBA_CACHE_DIR`, `$TIDEMARK_CACHE/kernels`, `~/.cache/tidemark/kernels`, or a folder of this user for temporary
files: the first of them that has it, else the first that can be written. One that can only be read will do for a file that is
there, as in an image whose root file system is read-only.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from schemas.errors import KernelError

_HERE: Final = Path(__file__).parent
_PACKAGE: Final = __name__.rpartition(".")[0]
_HASH_BYTES: Final = 32
_LAST_LINES: Final = 15
_SETTINGS: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT")


class ObjectFiles:
    """The object files of one group, which is `GROUP` of the module `home`, made of `sources` (files, and folders of files)."""

    def __init__(self, home: str, sources: Sequence[Path]) -> None:
        self._home = home
        self._sources = tuple(sources)

    def find(self) -> Path:
        """Return the file for this machine; it is compiled first where there is none. Raises `KernelError` where that fails."""
        name = self._name()
        folders, shared = _given_folders(), Path(tempfile.gettempdir()) / f"tidemark-kernels-{os.geteuid()}"
        for folder in (*folders, *((shared,) if _is_ours(shared) else ())):
            if (folder / name).exists():
                return folder / name
        folder = next((one for one in folders if _is_writable(one)), None) or (shared if _is_made(shared) else _folder_of_process())
        # One process compiles, others that start meanwhile wait and load what it has made.
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / name).exists():
                _compile(self._home, folder / name)
        return folder / name

    def _name(self) -> str:
        parts = self._home.split(".")
        made_for = hashlib.sha256(_made_for().encode()).hexdigest()[:8]
        return f"{'-'.join(parts[-3:-1])}-{source_hash((*self._sources, _HERE))}-{made_for}.o"


def sealed(code: bytes) -> bytes:
    """Return what is written to a file: a hash of the code before it. LLVM crashes on a file that is damaged."""
    return hashlib.sha256(code).digest() + code


def unsealed(content: bytes) -> bytes:
    """Return the code of a file. Raises `ValueError` where it is not what was written."""
    code = content[_HASH_BYTES:]
    if sealed(code) != content:
        raise ValueError("the file is damaged")
    return code


def source_hash(sources: Sequence[Path]) -> str:
    """Return a hash of these files, and of the Python files in these folders: their names and what is in them."""
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted(source.glob("*.py")) if source.is_dir() else (source,):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _made_for() -> str:
    """Return what compiled code depends on, beside its sources."""
    from llvmlite import binding

    numba = importlib.metadata.version("numba")
    python = f"{sys.implementation.cache_tag} {sysconfig.get_config_var('Py_GIL_DISABLED')}"
    given = [os.environ.get(setting) for setting in _SETTINGS]
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()} {python} {numba} {given}"


def _given_folders() -> list[Path]:
    given, root = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("TIDEMARK_CACHE")
    candidates = [given, root and f"{root}/kernels"]
    with suppress(RuntimeError):  # a user without a home
        candidates.append(str(Path.home() / ".cache" / "tidemark" / "kernels"))
    return [Path(one) for one in candidates if one]


def _is_made(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    return _is_ours(folder)


def _is_ours(folder: Path) -> bool:
    """Return whether a folder is there that nobody else can write to: what is in it is executed."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _folder_of_process() -> Path:
    own = tempfile.mkdtemp(prefix="tidemark-kernels-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _compile(home: str, target: Path) -> None:
    """Compile in a process of its own: Numba and its types would take 100 MiB in this one from then on."""
    part = target.with_name(f"{target.name}.{os.getpid()}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"{_PACKAGE}.compiler", home, str(part)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            said = "\n".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
            message = f"the kernels of {home} could not be compiled into {target.parent} (exit code {done.returncode}):\n{said}"
            raise KernelError(message)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
