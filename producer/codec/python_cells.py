"""The Python column path: values a kernel cannot convert, encoded one by one with the same result.

A kernel locates the cells of the whole event, the functions made here encode each to bytes of the wire format,
and the encoding kernel splices them in. Used for multi-byte character sets other than UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from schemas.errors import DecodeError

CellEncoder: TypeAlias = Callable[[bytes], bytes]


class TextLayout(Protocol):
    """How a wire format writes a string."""

    def text(self, value: str) -> bytes:
        """The string as it stands in a record."""


def text_cell(name: str, codec: str, layout: TextLayout) -> CellEncoder:
    """The encoder of a text column in a character set that Python knows as `codec`; `DecodeError` names the column."""

    def encode(data: bytes) -> bytes:
        try:
            return layout.text(data.decode(codec))
        except UnicodeDecodeError as error:
            message = f"{name}: the text is not valid in its character set"
            raise DecodeError(message) from error

    return encode
