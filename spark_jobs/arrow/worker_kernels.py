"""The kernels of the merge job's workers and of tasks, and the types of what they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

from kernels import ArrayType, KernelGroup

# The signature of a kernel that Python calls is made of the names of these annotations.
Bytes: TypeAlias = Any
BytesOut: TypeAlias = Any
Ints: TypeAlias = Any
IntsIn: TypeAlias = Any
Table: TypeAlias = Any
TableIn: TypeAlias = Any
Flags: TypeAlias = Any

_PACKAGE: Final = __name__.rpartition(".")[0]
_HERE: Final = Path(__file__).parent
_MODULES: Final = ("avro_kernels", "column_kernels", "key_kernels", "literal_kernels", "message_kernels")

GROUP: Final = KernelGroup(
    __name__,
    [f"{_PACKAGE}.{name}" for name in _MODULES],
    [*(_HERE / f"{name}.py" for name in _MODULES), _HERE / "message_intrinsics.py", Path(__file__)],
    {
        "int": "int64",
        "Bytes": ArrayType("uint8", readonly=True),
        "BytesOut": ArrayType("uint8"),
        "Ints": ArrayType("int64"),
        "IntsIn": ArrayType("int64", readonly=True),
        "Table": ArrayType("int64", dimensions=2),
        "TableIn": ArrayType("int64", dimensions=2, readonly=True),
        "Flags": ArrayType("bool"),
    },
    are_typed=False,
)
kernel = GROUP.kernel
entry = GROUP.entry
