"""The Python column path: values a kernel cannot convert, encoded one by one with the same result.

A kernel locates the cells of the whole event, the functions made here encode each to bytes of the wire format,
and the encoding kernel splices them in. Used for multi-byte character sets other than UTF-8, and for masks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol, TypeAlias

from producer.codec.charsets import decoder_of
from schemas.columns import Column, ColumnType, Mask
from schemas.errors import ConfigError, DecodeError

CellEncoder: TypeAlias = Callable[[bytes], bytes]


class TextLayout(Protocol):
    """How a wire format writes a string."""

    def text(self, value: str) -> bytes:
        """The string as it stands in a record."""


def text_cell(column: Column, charset: str, layout: TextLayout, mask: Mask | None = None) -> CellEncoder:
    """The encoder of a text column in a character set, masked or not; `DecodeError` names the column."""
    decode = decoder_of(charset)
    masked = None if mask is None else masking(mask, column)

    def encode(data: bytes) -> bytes:
        try:
            text = decode(data)
        except UnicodeDecodeError as error:
            message = f"{column.name} ({column.type.value}): the text is not valid in its character set"
            raise DecodeError(message) from error
        return layout.text(text if masked is None else masked(text))

    return encode


def masking(mask: Mask, column: Column) -> Callable[[str], str]:
    """What a mask does to a text; `ConfigError` for an algorithm that is not there."""
    if mask.kind == "asterisks":
        asterisks = "*" * mask.length
        return lambda _text: asterisks
    if mask.kind == "truncate":
        return lambda text: text[: mask.length]  # characters, not UTF-16 units: no half of a pair is left
    algorithm = mask.algorithm.replace("-", "").lower()
    if algorithm not in hashlib.algorithms_available:
        message = f"{column.name}: there is no hash algorithm {mask.algorithm!r}; try SHA-256"
        raise ConfigError(message)
    salt = mask.salt.encode()
    length = column.length if column.type in (ColumnType.CHAR, ColumnType.VARCHAR) else None
    return lambda text: hashlib.new(algorithm, salt + text.encode()).hexdigest()[:length]
