"""Names of schemas and fields made valid for Avro: Debezium's `schema.` and `field.name.adjustment.mode`.

`avro` turns every other character than letters, digits and `_` into `_`, and puts a `_` before a digit that comes first;
`avro_unicode` turns them, and `_` itself, into `_uXXXX`, which can be undone. Names of schemas may have dots. As in
Debezium only the first character of a whole name counts as first (`SchemaNameAdjuster`, Debezium 3.6).
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

NameMode = Literal["none", "avro", "avro_unicode"]

_SCHEMA: Final = {"avro": re.compile(r"[^A-Za-z0-9_.]"), "avro_unicode": re.compile(r"[^A-Za-z0-9.]")}
_FIELD: Final = {"avro": re.compile(r"[^A-Za-z0-9_]"), "avro_unicode": re.compile(r"[^A-Za-z0-9]")}


def adjusted_schema_name(name: str, mode: NameMode) -> str:
    """Return a dotted schema name in that mode."""
    return name if mode == "none" else _adjusted(name, mode, _SCHEMA[mode])


def adjusted_field_name(name: str, mode: NameMode) -> str:
    """Return a column's field name in that mode; dots are replaced as well."""
    return name if mode == "none" else _adjusted(name, mode, _FIELD[mode])


def _adjusted(name: str, mode: NameMode, invalid: re.Pattern[str]) -> str:
    if mode == "avro_unicode":
        adjusted = invalid.sub(_unicode, name)
        return f"_u{ord(name[0]):04x}{adjusted[1:]}" if name[:1].isdigit() and name[0].isascii() else adjusted
    adjusted = "".join("_" * (len(character.encode("utf-16-le")) // 2) if invalid.match(character) else character
                       for character in name)  # fmt: skip
    return f"_{adjusted}" if adjusted[:1].isdigit() else adjusted


def _unicode(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"_u{units[index] << 8 | units[index + 1]:04x}" for index in range(0, len(units), 2))


_LONGEST_FOLDER: Final = 240
_FOLDED: Final = re.compile(r"(?:@[0-9a-f]{4})+")
_NOT_FOLDER: Final = re.compile(r"[^A-Za-z0-9_-]|\A_")


def folder_name(name: str) -> str:
    """Return a database's or table's name as the folder it lands in; no two names have the same.

    Letters, digits, `_` and `-` stay; everything else, and a `_` that comes first (hidden from Spark, and ours), becomes `@`
    and four hex digits, as MySQL itself names its files. What file systems find too long ends with `@@` and a hash instead.
    """
    folder = _NOT_FOLDER.sub(_file_characters, name)
    if len(folder) <= _LONGEST_FOLDER:
        return folder
    ending = f"@@{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return folder[: _LONGEST_FOLDER - len(ending)] + ending


def name_of_folder(folder: str) -> str:
    """Return the name that lands in a folder; of one that was too long what is left of it."""
    return _FOLDED.sub(lambda found: bytes.fromhex(found[0].replace("@", "")).decode("utf-16-be", "replace"), folder)


def _file_characters(match: re.Match[str]) -> str:
    return _unicode(match).replace("_u", "@")
