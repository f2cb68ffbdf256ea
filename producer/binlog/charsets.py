"""Collation ids of the binlog: the character set of each, and the Python codec that reads it.

The ids are the server's, stable over versions (`information_schema.collations.ID`). MariaDB adds 1024 for its
NOPAD twins and puts the UCA 14.0.0 collations at 2048 and above, 256 per character set (128 used).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BLOCKS: Final[Mapping[str, tuple[int | tuple[int, int], ...]]] = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "latin7": (20, 41, 42, 79),
    "koi8u": (22, 75),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "utf8mb3": (33, 76, 83, (192, 215), 223, (576, 579)),
    "ucs2": (35, 90, (128, 151), 159, (640, 642)),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "utf8mb4": (45, 46, (224, 247), (255, 323), (608, 611)),
    "utf16": (54, 55, (101, 124), (672, 674)),
    "utf16le": (56, 62),
    "cp1256": (57, 67),
    "utf32": (60, 61, (160, 183), (736, 738)),
    "binary": (63,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
    "gb18030": ((248, 250),),
}
_UCA1400: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

_CODECS: Final[Mapping[str, str]] = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "tis620": "tis-620",
    "big5": "big5",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "euckr": "euc-kr",
    "ujis": "euc-jp",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}


def _by_id() -> dict[int, str]:
    table: dict[int, str] = {}
    for charset, blocks in _BLOCKS.items():
        for block in blocks:
            first, last = block if isinstance(block, tuple) else (block, block)
            for collation in range(first, last + 1):
                table[collation] = charset
    return table


_CHARSETS: Final = _by_id()


def charset_of(collation: int, known: Mapping[int, str] | None = None) -> str | None:
    """The character set of a collation id; `known` (the server's own list) is asked first. None = unknown."""
    if known is not None and collation in known:
        return known[collation]
    if collation >= 2048:
        block = (collation - 2048) >> 8
        return _UCA1400[block] if block < len(_UCA1400) else None
    return _CHARSETS.get(collation) or (_CHARSETS.get(collation - 1024) if collation >= 1024 else None)


def codec_of(charset: str) -> str | None:
    """The Python codec of a character set, None where there is none. latin1 is cp1252, see `decode_text`."""
    return _CODECS.get(charset)


def codec_of_collation(collation: int) -> str | None:
    """The Python codec of a collation id, None where there is none."""
    charset = charset_of(collation)
    return None if charset is None else codec_of(charset)


def decode_text(data: bytes, charset: str) -> str:
    """Text of a character set.

    Raises `LookupError` for one without codec, `UnicodeDecodeError` for bytes outside of it.

    MySQL's latin1 is cp1252 with the five bytes cp1252 leaves open as the control characters of the same
    number.
    """
    codec = _CODECS.get(charset)
    if codec is None:
        message = f"no codec for character set {charset}"
        raise LookupError(message)
    if charset != "latin1":
        return data.decode(codec)
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        one = (bytes((byte,)) for byte in data)
        return "".join(b.decode("latin-1" if b in b"\x81\x8d\x8f\x90\x9d" else codec) for b in one)
