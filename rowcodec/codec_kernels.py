"""The kernels of the row codec, and the types of what they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kernels import ArrayType, KernelGroup

# Inside a kernel a number is an int64 or uint64, whatever Python calls it. A kernel's signature is made of the
# names of these annotations, so that each kernel is compiled exactly once.
Int: TypeAlias = Any
Unsigned: TypeAlias = Any
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
ShortInts: TypeAlias = npt.NDArray[np.int32]

_PACKAGE: Final = __name__.rpartition(".")[0]
_HERE: Final = Path(__file__).parent

GROUP: Final = KernelGroup(
    __name__,
    (f"{_PACKAGE}.encode", f"{_PACKAGE}.encode_run"),
    (_HERE,),
    {
        "Int": "int64",
        "Unsigned": "uint64",
        "bool": "bool",
        "Bytes": ArrayType("uint8"),
        "Ints": ArrayType("int64"),
        "ShortInts": ArrayType("int32"),
    },
    are_typed=True,
)
kernel = GROUP.kernel
inlined = GROUP.inlined
entry = GROUP.entry
