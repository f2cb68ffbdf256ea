"""Names of the columns that the rows of a changelog have, besides those of their table."""

from __future__ import annotations

from typing import Final

OP: Final = "_tm_op"
"""The kind of a changelog's row: `+I`, `-U`, `+U`, `-D`, or one of the two below."""
DETAIL: Final = "_tm_sweep"
"""What a sweep takes, as JSON: the names of columns, and lists of their values. Only in a row with the kind `SWEEP`."""

FLOOR: Final = "floor"
SWEEP: Final = "sweep"
