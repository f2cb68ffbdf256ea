"""A clock that can be stepped for single processes, by a library preloaded into them; needs a C compiler."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("clock.c")


class Clock:
    """`environment` is for processes that live by it; its file says how far it is from the machine's."""

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "clock", folder / "clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """So many seconds ahead of the machine's clock (behind, if negative) from now on."""
        descriptor = os.open(self._file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, seconds.to_bytes(8, "little", signed=True), 0)
        finally:
            os.close(descriptor)
