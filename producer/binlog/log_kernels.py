"""The kernels over bytes of the log, and the types of what they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kernels import ArrayType, KernelGroup

# A kernel's signature is made of the names of these annotations. Inside a kernel a number is an int64, whatever Python calls it.
Int: TypeAlias = Any
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Table: TypeAlias = npt.NDArray[np.int64]
CrcTables: TypeAlias = npt.NDArray[np.uint32]

_PACKAGE: Final = __name__.rpartition(".")[0]
_HERE: Final = Path(__file__).parent

GROUP: Final = KernelGroup(
    __name__,
    (
        f"{_PACKAGE}.framing_kernels", f"{_PACKAGE}.run_kernels", f"{_PACKAGE}.rowcount", f"{_PACKAGE}.positions",
    ),
    (_HERE, _HERE.parent.parent / "rowcodec" / "run_items.py"),
    {
        "Int": "int64",
        "Bytes": ArrayType("uint8"),
        "Ints": ArrayType("int64"),
        "Table": ArrayType("int64", dimensions=2),
        "CrcTables": ArrayType("uint32", dimensions=2),
    },
    are_typed=True,
)
kernel = GROUP.kernel
entry = GROUP.entry
