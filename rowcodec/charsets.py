"""Collation ids of the binlog: the character set of each, and its text as the server itself would convert it.

The ids are the server's, stable over versions (`information_schema.collations.ID`). MariaDB adds 1024 for its
NOPAD twins and puts the UCA 14.0.0 collations at 2048 and above, 256 per character set (128 used).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from schemas.charset_tables import MULTI_BYTE, SINGLE_BYTE, UNICODE

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
    """Return the character set of a collation id; `known` (the server's own list) is asked first. None = unknown."""
    if known is not None and collation in known:
        return known[collation]
    if collation >= 2048:
        block = (collation - 2048) >> 8
        return _UCA1400[block] if block < len(_UCA1400) else None
    return _CHARSETS.get(collation) or (_CHARSETS.get(collation - 1024) if collation >= 1024 else None)


_PRIVATE_USE: Final = 0xE000  # where the user's 940 characters of EUC-JP begin, and again behind 0x8F
_ROW: Final = 94
_UNMAPPED: Final = "?"
_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\U00010000-\U0010ffff]")


def codec_of(charset: str) -> str | None:
    """Return the Python codec closest to a character set, None where there is none; `decode_text` reads exactly."""
    if charset in UNICODE:
        return UNICODE[charset]
    known = SINGLE_BYTE.get(charset) or MULTI_BYTE.get(charset)
    return None if known is None else known[0]


def codec_of_collation(collation: int) -> str | None:
    """Return the Python codec of a collation id, None where there is none."""
    charset = charset_of(collation)
    return None if charset is None else codec_of(charset)


def decode_text(data: bytes, charset: str) -> str:
    """Text of a character set, as the server itself converts it to Unicode.

    A code without a character reads as `?`, so does half of a surrogate pair. Raises `LookupError` for an unknown
    character set, `UnicodeDecodeError` for bytes outside of a Unicode one.
    """
    if charset in UNICODE:
        return _unicode(data, charset)
    if charset in SINGLE_BYTE:
        return data.decode("latin-1").translate(single_byte_characters(charset))
    if charset in MULTI_BYTE:
        return _multi_byte(charset).decode(data)
    message = f"no codec for character set {charset}"
    raise LookupError(message)


def _unicode(data: bytes, charset: str) -> str:
    """Text of a Unicode character set. Some servers take halves of surrogate pairs, UCS-2 knows nothing of pairs."""
    try:
        text = data.decode(UNICODE[charset])
    except UnicodeDecodeError:
        text = _HALF.sub(_UNMAPPED, data.decode(UNICODE[charset], "surrogatepass"))
    return _PAIR.sub(2 * _UNMAPPED, text) if charset == "ucs2" else text


@cache
def single_byte_characters(charset: str) -> tuple[str, ...]:
    """Return the characters of the 256 codes of a single-byte character set; `KeyError` for another."""
    codec, own = SINGLE_BYTE[charset]
    characters = [bytes([code]).decode(codec, "replace").replace("\N{REPLACEMENT CHARACTER}", _UNMAPPED) for code in range(256)]
    for code, character in _spread(own).items():
        characters[code] = character
    return tuple(characters)


def _spread(runs: Mapping[int, str]) -> dict[int, str]:
    return {start + index: one for start, run in runs.items() for index, one in enumerate(run)}


@cache
def _multi_byte(charset: str) -> _MultiByte:
    return _MultiByte(charset)


class _MultiByte:
    """A multi-byte character set: Python's codec for a whole text, code by code where the two could differ."""

    def __init__(self, charset: str) -> None:
        self._codec, runs = MULTI_BYTE[charset]
        self._own = _spread(runs)
        self._size = _SIZES[charset]
        self._is_japanese = self._codec == "euc-jp"
        unlike = {self._of_codec(code.to_bytes((code.bit_length() + 7) // 8, "big")) for code in self._own}
        self._unlike = re.compile(f"[{''.join(map(re.escape, sorted(unlike)))}]") if unlike else None

    def decode(self, data: bytes) -> str:
        """Decode the text of these bytes."""
        try:
            text = data.decode(self._codec)
        except UnicodeDecodeError:
            return self._code_by_code(data)
        if self._unlike is not None and self._unlike.search(text):
            return self._code_by_code(data)
        return text

    def _code_by_code(self, data: bytes) -> str:
        at, characters = 0, []
        while at < len(data):
            code = data[at : at + self._size(data, at)]
            characters.append(self._character(code))
            at += len(code)
        return "".join(characters)

    def _character(self, code: bytes) -> str:
        own = self._own.get(int.from_bytes(code, "big"))
        if own is not None:
            return own
        found = self._of_codec(code)
        if found == _UNMAPPED and self._is_japanese and _is_user_defined(code):
            plane = 10 * _ROW if len(code) > 2 else 0  # three bytes: JIS X 0212
            return chr(_PRIVATE_USE + plane + (code[-2] - _USER_ROWS) * _ROW + code[-1] - 0xA1)
        return found

    def _of_codec(self, code: bytes) -> str:
        try:
            return code.decode(self._codec)
        except UnicodeDecodeError:
            return _UNMAPPED


_USER_ROWS: Final = 0xF5


def _is_user_defined(code: bytes) -> bool:
    return len(code) > 1 and _USER_ROWS <= code[-2] <= 0xFE and 0xA1 <= code[-1] <= 0xFE


def _double(data: bytes, at: int) -> int:
    return 2 if data[at] >= 0x80 else 1


def _shift_jis(data: bytes, at: int) -> int:
    lead = data[at]
    return 2 if 0x81 <= lead <= 0x9F or 0xE0 <= lead <= 0xFC else 1


def _euc_jp(data: bytes, at: int) -> int:
    lead = data[at]
    return 3 if lead == 0x8F else 2 if lead == 0x8E or lead >= 0xA1 else 1


def _gb18030(data: bytes, at: int) -> int:
    is_long = at + 1 < len(data) and 0x30 <= data[at + 1] <= 0x39
    return 1 if data[at] < 0x80 else 4 if is_long else 2


_SIZES: Final[Mapping[str, Callable[[bytes, int], int]]] = {
    "big5": _double,
    "cp932": _shift_jis,
    "eucjpms": _euc_jp,
    "euckr": _double,
    "gb18030": _gb18030,
    "gb2312": _double,
    "gbk": _double,
    "sjis": _shift_jis,
    "ujis": _euc_jp,
}
