"""Object files of kernels, loaded by LLVM as functions of Python: nothing is compiled, and Numba is not imported."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from llvmlite import binding

from kernels.python_calls import BYTES_HEADER, FUNCTIONS, OBJECTS
from schemas.errors import KernelError

_FASTCALL: Final = 0x80


class _MethodDefinition(ctypes.Structure):
    """`PyMethodDef` of Python's C API."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_kept: Final[list[Any]] = []  # code and definitions are never freed: a thread may run them until the process ends


class Library:
    """The functions of an object file, which is `code`, and `where` for messages.

    Raises `KernelError` for one that is not for this machine, and for a Python whose objects look different.
    """

    def __init__(self, where: Path | None, code: bytes) -> None:
        self._where = where
        if (object.__basicsize__, bytes.__basicsize__, struct.calcsize("P")) != (16, BYTES_HEADER + 1, 8):
            python = f"{sys.implementation.name} {sys.version.split()[0]}"
            message = f"kernels need a 64-bit CPython with the GIL, and not a debug build; this is {python} ({sys.executable})"
            raise KernelError(message)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        # Sections that are far from each other cannot be joined on ARM (as Numba has it).
        near = platform.machine() in ("arm64", "aarch64")
        try:
            machine = binding.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
            self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine, use_lmm=near)
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
        except RuntimeError as error:
            raise self._refused(str(error)) from error
        _kept.append(self._engine)
        self._table = _table()

    def function(self, symbol: str) -> Callable[..., Any]:
        """Return a built-in function that takes arrays and numbers. It raises `TypeError` for what it was not compiled for."""
        address = self._engine.get_function_address(symbol)
        if not address:
            raise self._refused(f"it has no function {symbol}")
        definition = _MethodDefinition(symbol.encode(), address, _FASTCALL, None)
        _kept.append(definition)
        made: Callable[..., Any] = _new_function(ctypes.byref(definition), self._table, None)
        return made

    def _refused(self, reason: str) -> KernelError:
        if self._where is None:
            return KernelError(f"the kernels that were just compiled cannot be used: {reason}. Please report this")
        return KernelError(f"the compiled kernels in {self._where} cannot be used: {reason}. Remove the file: it is made again")


_new_function: Final = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
_new_function.restype = ctypes.py_object


def _table() -> bytes:
    """Return the addresses that the code needs, as `kernels.python_calls` describes them."""
    objects = {"ndarray": np.ndarray, "TypeError": TypeError, "RuntimeError": RuntimeError, "None": None}
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in FUNCTIONS]
    return struct.pack(f"{len(FUNCTIONS) + len(OBJECTS)}Q", *addresses, *(id(objects[name]) for name in OBJECTS))
