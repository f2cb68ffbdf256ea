"""Which character sets are captured, and how wide their characters are."""

from __future__ import annotations

from typing import Final

from schemas.charset_tables import MULTI_BYTE, SINGLE_BYTE

BINARY: Final = "binary"
BYTES_PER_CHARACTER: Final = {
    **dict.fromkeys(SINGLE_BYTE, 1),
    **dict.fromkeys(MULTI_BYTE, 2),
    "ascii": 1,
    "ujis": 3,
    "eucjpms": 3,
    "gb18030": 4,
    "utf8mb3": 3,
    "utf8mb4": 4,
    "ucs2": 2,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
}
SUPPORTED: Final = frozenset(BYTES_PER_CHARACTER)


def charset_name(text: str) -> str:
    """Return the name of a character set; `utf8` is `utf8mb3`."""
    lower = text.lower()
    return "utf8mb3" if lower == "utf8" else lower


def charset_of_collation(collation: str) -> str:
    """Return the character set a collation name begins with."""
    return charset_name(collation.partition("_")[0])
