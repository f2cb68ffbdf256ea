"""Character sets of the source: which are UTF-8 as they stand, tables to UTF-8 for single-byte ones, the rest."""

from __future__ import annotations

from typing import Final

from rowcodec.charsets import single_byte_characters
from schemas.charset_tables import MULTI_BYTE, SINGLE_BYTE

UTF8_CHARSETS: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
# Read by Python, one value at a time: where a character is not one byte, and swe7, whose ASCII is not ASCII.
PYTHON_CHARSETS: Final = frozenset({*MULTI_BYTE, "ucs2", "utf16", "utf16le", "utf32", "swe7"})
SINGLE_BYTE_CHARSETS: Final = frozenset(SINGLE_BYTE) - PYTHON_CHARSETS


def utf8_table(charset: str) -> bytes:
    """256 entries of four bytes: the length of the character in UTF-8 (1 to 3), then its bytes.

    Codes below 128 must be ASCII: kernels take them as they are.
    """
    if charset not in SINGLE_BYTE_CHARSETS:
        message = f"no table for character set {charset}"
        raise ValueError(message)
    table = bytearray()
    for character in single_byte_characters(charset):
        encoded = character.encode()
        table += bytes([len(encoded)]) + encoded.ljust(3, b"\x00")
    return bytes(table)
