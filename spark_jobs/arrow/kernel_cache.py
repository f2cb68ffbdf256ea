"""How kernels are compiled: once, with explicit types, without the GIL, and kept on disk for the next process.

Compiled kernels are in a folder named after a hash of the kernels' sources: Numba only watches the file that a function is in.
The folder is in `NUMBA_CACHE_DIR`, else `$TIDEMARK_CACHE/numba`, else `~/.cache/tidemark/numba`, whichever can be written.
If none can, it is a folder of this process. `NUMBA_DISABLE_JIT=1` runs the kernels as Python.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

# The signature of a kernel that Python calls is made of the names of these annotations.
Bytes: TypeAlias = Any
BytesOut: TypeAlias = Any
Ints: TypeAlias = Any
IntsIn: TypeAlias = Any
Table: TypeAlias = Any
TableIn: TypeAlias = Any
Flags: TypeAlias = Any


def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*_kernels.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Return the first folder of the list that can be written."""
    root = os.environ.get("TIDEMARK_CACHE")
    home = os.environ.get("HOME")
    candidates = [
        os.environ.get("NUMBA_CACHE_DIR"),
        root and f"{root}/numba",
        home and f"{home}/.cache/tidemark/numba",
    ]
    name = f"arrow-{_source_hash(Path(__file__).parent)}"
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

import numba  # noqa: E402  read after the folder is known

_TYPES: Final = {
    "int": numba.types.int64,
    "Bytes": numba.types.Array(numba.types.uint8, 1, "C", readonly=True),
    "BytesOut": numba.types.uint8[::1],
    "Ints": numba.types.int64[::1],
    "IntsIn": numba.types.Array(numba.types.int64, 1, "C", readonly=True),
    "Table": numba.types.int64[:, ::1],
    "TableIn": numba.types.Array(numba.types.int64, 2, "C", readonly=True),
    "Flags": numba.types.boolean[::1],
}


def kernel(function: Function) -> Function:
    """Mark a function that kernels call: compiled with them, of any types."""
    if numba.config.DISABLE_JIT:
        return function
    return cast("Function", numba.njit(nogil=True, error_model="numpy", _nrt=False)(function))


def entry(function: Function) -> Function:
    """Compile a kernel that Python calls, or load it: its annotations name its types, and there is no other specialisation."""
    if numba.config.DISABLE_JIT:
        # Machine integers wrap silently, NumPy's warn.
        return np.errstate(over="ignore")(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(CACHE_FOLDER)
    try:
        dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function)
    finally:
        numba.config.CACHE_DIR = before
    names = [name for key, name in function.__annotations__.items() if key != "return"]
    dispatcher.compile(tuple(_TYPES[name] for name in names))
    dispatcher.disable_compile()
    return cast("Function", dispatcher)
