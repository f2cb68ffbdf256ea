"""How kernels are compiled: without the GIL, cached on disk, and the same code un-jitted on demand.

Compiled kernels live in a folder named after a hash of the kernels' sources, because Numba only watches the
file a function is in, not the files of the functions it calls. The folder is in `NUMBA_CACHE_DIR`, else
`$TIDEMARK_CACHE/numba`, else `~/.cache/tidemark/numba`, whichever can be written. `NUMBA_DISABLE_JIT=1` runs the kernels as Python.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])

# Inside a kernel a number is an int64 or uint64, whatever Python calls it. A kernel's signature is made of the
# names of these annotations, so that each kernel is compiled exactly once.
Int: TypeAlias = Any
Unsigned: TypeAlias = Any
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
ShortInts: TypeAlias = npt.NDArray[np.int32]


_EVENT_COLUMNS: Final = Path(__file__).parents[1] / "binlog" / "run_kernels.py"


def _source_hash(folder: Path) -> str:
    """Return the hash of the kernels' sources, and of the arrays that they get from the binlog."""
    digest = hashlib.sha256()
    for path in (*sorted(folder.glob("*.py")), _EVENT_COLUMNS):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Return the first folder of the list that can be written; a folder of this process alone where none can."""
    root = os.environ.get("TIDEMARK_CACHE")
    candidates = [
        os.environ.get("NUMBA_CACHE_DIR"),
        root and f"{root}/numba",
        Path.home() / ".cache" / "tidemark" / "numba",
    ]
    name = _source_hash(Path(__file__).parent)
    for candidate in candidates:
        if candidate and _is_writable(folder := Path(candidate) / name):
            return folder
    own = tempfile.mkdtemp(prefix="tidemark-numba-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


CACHE_FOLDER: Final = _cache_folder()

import llvmlite.binding  # noqa: E402
import numba  # noqa: E402  read after the folder is known

_TYPES: Final = {
    "Int": numba.types.int64,
    "Unsigned": numba.types.uint64,
    "bool": numba.types.boolean,
    "Bytes": numba.types.uint8[::1],
    "Ints": numba.types.int64[::1],
    "ShortInts": numba.types.int32[::1],
}
_kernels: list[Any] = []  # in the order of definition: callees come before their callers
_entries: list[Any] = []
_lock: Final = threading.Lock()


def kernel(function: Function) -> Function:
    """Mark a function to be compiled by `compile_kernels`, with the types its annotations name.

    It can be called by other kernels only: without the wrapper for Python it compiles in two thirds of the time.
    """
    return _marked(function, _kernels, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry(function: Function) -> Function:
    """Return the same for a kernel that Python calls."""
    if numba.config.DISABLE_JIT:
        # Machine integers wrap silently, NumPy's warn.
        return np.errstate(over="ignore")(function)
    return _marked(function, _entries, no_cfunc_wrapper=True)


def _marked(function: Function, group: list[Any], **options: bool) -> Function:
    """Kernels allocate nothing, so they are compiled without reference counting (half of their time otherwise).

    The cache folder is set for this decoration only: other users of Numba keep theirs.
    """
    if numba.config.DISABLE_JIT:
        return function
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy", _nrt=False, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    group.append(dispatcher)
    return cast("Function", dispatcher)


def inlined(function: Function) -> Function:
    """Return a part of one kernel that is a function only for readability: Numba inlines it."""
    if numba.config.DISABLE_JIT:
        return function
    return cast("Function", numba.njit(nogil=True, inline="always", _nrt=False)(function))


def compile_kernels() -> None:
    """Compile or load the kernels defined so far, so that nothing compiles at the first row; idempotent.

    All are compiled in the order of their definition, each once: left alone, Numba would compile a kernel again
    for each combination of literal arguments it is called with. Once the cache is complete only the kernels
    that Python calls are loaded: they hold the code of the others.
    """
    with _lock:
        if not _entries:
            return
        marker = CACHE_FOLDER / f"complete-{_machine()}"
        if marker.exists():
            _compile(_entries)
        else:
            # One process compiles, others that start meanwhile wait and load what it has made.
            with (CACHE_FOLDER / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                _compile(_entries if marker.exists() else [*_kernels, *_entries])
                marker.touch()
        _kernels.clear()
        _entries.clear()


def _compile(dispatchers: list[Any]) -> None:
    for dispatcher in dispatchers:
        annotations = dispatcher.py_func.__annotations__
        names = [name for key, name in annotations.items() if key != "return"]
        dispatcher.compile(tuple(_TYPES[name] for name in names))
        dispatcher.disable_compile()


def _machine() -> str:
    """Return what compiled code depends on: the processor and the versions of Python and Numba."""
    cpu = llvmlite.binding.get_host_cpu_name()
    return f"{cpu}-{sys.version_info.major}.{sys.version_info.minor}-{numba.__version__}"
