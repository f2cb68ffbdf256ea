"""The position: where a row change stands in one source's log (totally ordered).

A position is `(epoch, file number, offset, ordinal)`. The first three are shared by all rows of a
transaction: `offset` is where the transaction's first event starts in the file, reckoned in 64 bits. The
ordinal counts every row of the transaction from 1; ordinal 0 is the transaction's border. The text form has
a fixed width, so byte order, string order and log order are one and the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

_TEXT = re.compile(r"(\d{4})\.(\d{10})\.(\d{12})\.(\d{10})\Z")
_FILE = re.compile(r".*\.(\d+)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log of one source."""

    epoch: int
    file: int
    offset: int
    ordinal: int = 0

    MINIMUM: ClassVar[Position]

    @property
    def text(self) -> str:
        """Fixed-width text, 39 characters, sorting as the log does."""
        return f"{self.epoch:04d}.{self.file:010d}.{self.offset:012d}.{self.ordinal:010d}"

    @property
    def prefix(self) -> str:
        """The part all rows of the transaction share, 28 characters, without a trailing dot."""
        return f"{self.epoch:04d}.{self.file:010d}.{self.offset:012d}"

    @property
    def border(self) -> Position:
        """The transaction's border: this position with ordinal 0."""
        return replace(self, ordinal=0)

    @staticmethod
    def parse(text: str) -> Position:
        """The position a text stands for; `ValueError` when it is not one."""
        match = _TEXT.match(text)
        if match is None:
            message = f"not a position: {text!r}"
            raise ValueError(message)
        epoch, file, offset, ordinal = (int(part) for part in match.groups())
        return Position(epoch, file, offset, ordinal)


Position.MINIMUM = Position(0, 0, 0, 0)


@lru_cache(maxsize=64)
def file_number(file_name: str) -> int:
    """The number of a binlog file: `binlog.000003` is 3; `ValueError` for a name without one."""
    match = _FILE.match(file_name)
    if match is None:
        message = f"not a binlog file name: {file_name!r}"
        raise ValueError(message)
    return int(match.group(1))
