"""The order of the transactions of many sources: by time, then by the number of the source, then by position (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from schemas.position import Position

_TEXT: Final = re.compile(r"(\d{16})\.(\d{6})\.(.{39})\Z")
_LATEST_US: Final = 10**16
_LARGEST_MEMBER: Final = 10**6


@dataclass(frozen=True, slots=True, order=True)
class StreamPosition:
    """A position in the stream of all sources of a group: time in microseconds, number of the source, position in its log.

    The text of 63 characters sorts as the positions do. `ValueError` for a time or a number that it has no digits for.
    """

    us: int
    member: int
    position: Position

    START: ClassVar[StreamPosition]

    def __post_init__(self) -> None:
        if not (0 <= self.us < _LATEST_US and 0 <= self.member < _LARGEST_MEMBER):
            message = f"the time {self.us} or the number {self.member} has too many digits for a stream position"
            raise ValueError(message)

    @property
    def text(self) -> str:
        """Return the text of fixed width."""
        return f"{self.us:016d}.{self.member:06d}.{self.position.text}"

    @staticmethod
    def parse(text: str) -> StreamPosition:
        """Return the position of a text; `ValueError` for another text."""
        match = _TEXT.match(text)
        if match is None:
            message = f"not a stream position: {text!r}"
            raise ValueError(message)
        us, member, position = match.groups()
        return StreamPosition(int(us), int(member), Position.parse(position))


StreamPosition.START = StreamPosition(0, 0, Position.MINIMUM)
