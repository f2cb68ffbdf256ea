"""Kernels: functions over numbers and arrays that Numba compiles once, and that are loaded without Numba from then on.

`KernelGroup` marks them, `compiler` makes an object file of a group in a process of its own, `object_files` keeps it in a folder,
`loader` gives its functions to Python.
"""

from kernels.group import KernelGroup
from kernels.python_calls import ArrayType

__all__ = ["ArrayType", "KernelGroup"]
