"""Character sets of the source: which are UTF-8 as they stand, and tables to UTF-8 for single-byte ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

UTF8_CHARSETS: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
SINGLE_BYTE_CHARSETS: Final = frozenset({"latin1"})
# Read by Python, one value at a time: the Unicode encodings whose characters are not bytes.
PYTHON_CHARSETS: Final[Mapping[str, str]] = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}


def _latin1(code: int) -> str:
    """MySQL's latin1 is cp1252 with the five unassigned codes as C1 controls."""
    try:
        return bytes([code]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(code)


def decoder_of(charset: str) -> Callable[[bytes], str]:
    """The function that decodes a text of the character set; it raises `UnicodeDecodeError`."""
    if charset in SINGLE_BYTE_CHARSETS:
        return lambda data: "".join(map(_latin1, data))
    codec = PYTHON_CHARSETS.get(charset, "utf-8")
    return lambda data: data.decode(codec)


def utf8_table(charset: str) -> bytes:
    """256 entries of four bytes: the length of the character in UTF-8 (1 to 3), then its bytes."""
    if charset != "latin1":
        message = f"no table for character set {charset}"
        raise ValueError(message)
    table = bytearray()
    for code in range(256):
        encoded = _latin1(code).encode()
        table += bytes([len(encoded)]) + encoded.ljust(3, b"\x00")
    return bytes(table)
