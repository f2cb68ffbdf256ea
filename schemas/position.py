"""The position of a row change: totally ordered within the log of one source, never comparable beyond it.

A `Position` is `(epoch, file number, offset, ordinal)`. The first three are shared by all rows of a transaction: `offset` is
where the transaction's first event starts in the file, counted in 64 bits. The ordinal counts every row of the transaction from
1; ordinal 0 is the transaction boundary. The text form has a fixed width, so byte order, string order and log order are one and
the same.

Code that serves one source (the log reader, the merge rule of one table) compares `Position`s or their texts. Where positions of
several sources can meet, each is a `SourcePosition`: it has no order, and `within` gives the position back only for its own source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from schemas.identity import SourceId
from schemas.overriding import override

_TEXT = re.compile(r"(\d{4})\.(\d{10})\.(\d{12})\.(\d{10})\Z")
_FILE = re.compile(r".*\.(\d+)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Coordinates in the log of one source, which the context knows."""

    epoch: int
    file: int
    offset: int
    ordinal: int = 0

    MINIMUM: ClassVar[Position]

    @property
    def text(self) -> str:
        """Return the text of fixed width, 39 characters, which sorts as the log does."""
        return f"{self.epoch:04d}.{self.file:010d}.{self.offset:012d}.{self.ordinal:010d}"

    @property
    def prefix(self) -> str:
        """Return the part that all rows of the transaction share: 28 characters, without a trailing dot."""
        return f"{self.epoch:04d}.{self.file:010d}.{self.offset:012d}"

    def of(self, source: SourceId) -> SourcePosition:
        """Return the same position, bound to its source."""
        return SourcePosition(source, self)

    @staticmethod
    def parse(text: str) -> Position:
        """Return the position of a text; `ValueError` if it is none."""
        match = _TEXT.match(text)
        if match is None:
            message = f"not a position: {text!r}"
            raise ValueError(message)
        epoch, file, offset, ordinal = (int(part) for part in match.groups())
        return Position(epoch, file, offset, ordinal)


Position.MINIMUM = Position(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A position and the source in whose log it is.

    It has no order, neither for the type checker nor at run time: `<` is a `TypeError`. Positions of one source are compared after
    `within(source)`, which raises `TypeError` for a position of another source.
    """

    source: SourceId
    _position: Position

    @property
    def text(self) -> str:
        """Return the text form, which `parse` reads: `source:position`. It sorts within one source only."""
        return f"{self.source.text}:{self._position.text}"

    def within(self, source: SourceId) -> Position:
        """Return the position in the log of that source; `TypeError` if it is in the log of another one."""
        if self.source != source:
            message = f"position {self._position.text} of source {self.source} is not in the log of source {source}"
            raise TypeError(message)
        return self._position

    @staticmethod
    def parse(text: str, default: SourceId | None = None) -> SourcePosition:
        """Return the position of a text form; of one without a source, a position of the source `default`.

        `ValueError` if it is none, or if it names no source and there is no default.
        """
        source, colon, position = text.rpartition(":")
        if not colon and default is not None:
            return SourcePosition(default, Position.parse(position))
        return SourcePosition(SourceId(source), Position.parse(position))

    @override
    def __str__(self) -> str:
        return self.text


if TYPE_CHECKING:  # mypy refuses to order them: `make lint` fails where one of these needs no ignore

    def _refused(one: SourcePosition, other: SourcePosition, bare: Position) -> None:
        _ = one < other  # type: ignore[operator]
        _ = one < bare  # type: ignore[operator]
        _ = bare < one  # type: ignore[operator]
        _ = max(one, other)  # type: ignore[call-overload]


@lru_cache(maxsize=64)
def file_number(file_name: str) -> int:
    """Return the number of a binlog file: `binlog.000003` is 3; `ValueError` for a name without one."""
    match = _FILE.match(file_name)
    if match is None:
        message = f"not a binlog file name: {file_name!r}"
        raise ValueError(message)
    return int(match.group(1))
