"""The kernels over packets of result sets, and the types of their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kernels import ArrayType, KernelGroup

# A kernel's signature is made of the names of these annotations. Inside a kernel a number is an int64, whatever Python calls it.
Int: TypeAlias = Any
Bytes: TypeAlias = npt.NDArray[np.uint8]

_MODULE: Final = f"{__name__.rpartition('.')[0]}.binary_query"

GROUP: Final = KernelGroup(
    __name__,
    (_MODULE,),
    (Path(__file__).with_name("binary_query.py"),),
    {"Int": "int64", "Bytes": ArrayType("uint8")},
    are_typed=True,
)
entry = GROUP.entry
