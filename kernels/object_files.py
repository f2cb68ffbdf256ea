"""Where object files of kernels are kept, and how one is made that is not there.

A file is named after its group, the sources it was made of, and what it was made for: the processor and its features, Python, Numba
and llvmlite. It is in `NUMBA_CACHE_DIR`, `$TIDEMARK_CACHE/kernels`, `~/.cache/tidemark/kernels`, or a folder of this user for
temporary files: the first of them that has it, else the first that can be written. One that can only be read will do for a file
that is there, as in an image whose root file system is read-only. Where none can be written the code is of this process alone.

The code is executed. So a file that somebody else owns or can write to is not used; root may own it, and who owns this module.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from schemas.errors import KernelError

_HERE: Final = Path(__file__).absolute().parent
_PACKAGE: Final = __name__.rpartition(".")[0]
_HASH_BYTES: Final = 32
_LAST_LINES: Final = 15
_SETTINGS: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT")
"""The variables that Numba is given from outside; it does not see its other variables, which would change the code, too."""


class ObjectFiles:
    """The object files of one group, which is `GROUP` of the module `home`, made of `sources` (files, and folders of files)."""

    def __init__(self, home: str, sources: Sequence[Path]) -> None:
        self._home = home
        self._sources = tuple(sources)

    def code(self) -> tuple[Path | None, bytes]:
        """Return the object file for this machine, compiled first where there is none, and where it is: None in memory only.

        Raises `KernelError` where it cannot be compiled.
        """
        name = self._name()
        for folder in _folders(to_write=False):
            if (found := _read(folder / name)) is not None:
                return folder / name, found
        for folder in _folders(to_write=True):
            with suppress(OSError), _locked(folder, name):  # a folder that cannot be written: the next one
                # One process compiles, others that start meanwhile wait and load what it has made.
                found = _read(folder / name)
                if found is None:
                    found = _compiled(self._home)
                    with suppress(OSError):  # a full disk: the next start compiles again
                        _keep(folder / name, found)
                return folder / name, found
        return None, _compiled(self._home)

    def _name(self) -> str:
        parts = self._home.split(".")
        made_for = hashlib.sha256(_made_for().encode()).hexdigest()[:8]
        try:
            made_of = source_hash((*self._sources, _HERE))
        except OSError as error:
            message = f"the sources of {self._home} cannot be read ({error}): install Tidemark in a folder, from its wheel"
            raise KernelError(message) from error
        return f"{'-'.join(parts[-3:-1])}-{made_of}-{made_for}.o"


def source_hash(sources: Sequence[Path]) -> str:
    """Return a hash of these files, and of the Python files in these folders: their names and what is in them."""
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted(source.glob("*.py")) if source.is_dir() else (source,):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _made_for() -> str:
    """Return the processor that code is compiled for: the one that Numba is given, else the one of this machine."""
    from llvmlite import binding

    name, features, optimised = (os.environ.get(setting) for setting in _SETTINGS)
    name = name or binding.get_host_cpu_name()
    features = binding.get_host_cpu_features().flatten() if features is None else features
    versions = [importlib.metadata.version(part) for part in ("numba", "llvmlite")]
    return f"{name} {features} {optimised} {sys.implementation.cache_tag} {sysconfig.get_config_var('Py_GIL_DISABLED')} {versions}"


# ---- folders


def _folders(*, to_write: bool) -> Iterator[Path]:
    """Return the folders in their order; the last is made where it is missing and written to."""
    given, root = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("TIDEMARK_CACHE")
    candidates = [given, root and f"{root}/kernels"]
    with suppress(RuntimeError):  # a user without a home
        candidates.append(str(Path.home() / ".cache" / "tidemark" / "kernels"))
    yield from (Path(one).absolute() for one in candidates if one)
    with suppress(OSError):  # no folder for temporary files
        shared = Path(tempfile.gettempdir()).absolute() / f"tidemark-kernels-{os.geteuid()}"
        if to_write:
            shared.mkdir(mode=0o700, exist_ok=True)
        found = shared.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not _others_write(found):
            yield shared


def _others_write(found: os.stat_result) -> bool:
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Be the only process that makes this file. Raises `OSError` in a folder that cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(str(folder))
    lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# ---- files


def sealed(code: bytes) -> bytes:
    """Return what is written to a file: a hash of the code before it. LLVM crashes on a file that is damaged."""
    return hashlib.sha256(code).digest() + code


def _read(path: Path) -> bytes | None:
    """Return the code of a file; None where there is none that can be read, that is whole, and that nobody else has written."""
    try:
        with path.open("rb") as file:
            found, content = os.fstat(file.fileno()), file.read()
        owners = {0, os.geteuid(), Path(__file__).stat().st_uid}
    except OSError:
        return None
    code = content[_HASH_BYTES:]
    return code if found.st_uid in owners and not _others_write(found) and sealed(code) == content else None


def _keep(path: Path, code: bytes) -> None:
    """Write a file as a whole; under the lock, so that what others of its name have left can go."""
    for part in path.parent.glob(f"{path.name}.part*"):
        part.unlink()
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        with part.open("xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(sealed(code))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


# ---- the compiler


def _compiled(home: str) -> bytes:
    """Compile in a process of its own: Numba and its types would take 100 MiB in this one from then on.

    It has a session of its own, so that an interrupt from the keyboard is ours alone, and ends when this process does.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_") or name in _SETTINGS}
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in sys.path)
    its, ours = os.pipe()
    try:
        # -P and the folder: nothing is imported, and no setting read, from where this process was started.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{_PACKAGE}.compiler", home],
            env=environment, cwd=_HERE, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        with child:
            try:
                code, said = child.communicate()
            except BaseException:
                child.kill()
                raise
    except OSError as error:
        raise KernelError(f"the compiler of the kernels of {home} could not be started: {error}") from error
    finally:
        os.close(ours)
        os.close(its)
    if child.returncode != 0:
        raise KernelError(f"the kernels of {home} could not be compiled: {_end_of(child.returncode, said)}")
    return code


def _end_of(code: int, said: bytes) -> str:
    """Say how the compiler ended, with the last lines of what it wrote."""
    lines = "".join(f"\n{one}" for one in said.decode(errors="replace").strip().splitlines()[-_LAST_LINES:])
    if code >= 0:
        return f"the compiler ended with exit code {code}{lines}"
    why = "; it needs 300 MiB of memory beside this process" if code == -signal.SIGKILL else ""
    return f"the compiler was ended by {signal.Signals(-code).name}{why}{lines}"
