"""Which character sets are captured, and how wide their characters are."""

from __future__ import annotations

from typing import Final

BINARY: Final = "binary"
BYTES_PER_CHARACTER: Final = {"utf8mb4": 4, "utf8mb3": 3, "latin1": 1, "ascii": 1}
SUPPORTED: Final = frozenset(BYTES_PER_CHARACTER)


def charset_name(text: str) -> str:
    """A character set's name; `utf8` is `utf8mb3`."""
    lower = text.lower()
    return "utf8mb3" if lower == "utf8" else lower


def charset_of_collation(collation: str) -> str:
    """The character set a collation name begins with."""
    return charset_name(collation.partition("_")[0])
