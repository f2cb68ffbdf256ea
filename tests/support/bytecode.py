"""Bytecode in the virtual environment: processes that a run starts compile nothing that an earlier one has compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def keep_bytecode() -> None:
    """Write bytecode there, also if the environment says that none may be written, and let child processes do the same.

    A run starts hundreds of Python processes: three of the four seconds that a producer needs to start would be compilation.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(Path(sys.prefix) / "bytecode")
    sys.dont_write_bytecode = False
