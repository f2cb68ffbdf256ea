"""What executors have written, counted where it arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from schemas.errors import SinkError

NOT_SHARED: Final = (
    "driver and executors do not share this folder. Mount one file system at this path on the driver and on each machine with "
    "executors, or set spark.master to local[*]"
)
_TWICE: Final = "a part of it is there twice. The next attempt replaces it"


def require_all(what: str, written: int, found: int) -> None:
    """Raise `SinkError` unless the driver sees as many as executors say they wrote. `what` names them and their folder."""
    if found != written:
        reason = NOT_SHARED if found < written else _TWICE
        raise SinkError(f"executors have written {written} {what}, and the driver sees {found} there: {reason}")


def not_arrived(commit: str, file: Path, size: int) -> SinkError:
    """Return the error of a commit that names a file which the driver does not see whole."""
    seen = f"{commit} names {file}, and the driver sees no such file of {size} bytes"
    return SinkError(f"{seen}: {NOT_SHARED}. Then rebuild the target (tidemark rebuild)")
