"""Columns of Debezium's table model: a column definition enters, a `ModelColumn` leaves.

The model is what Debezium's listeners make of the text, not what the server makes of it. The differences are: types are the
words as written (`INTEGER`, `BOOLEAN`), a default is the text as written (`TRUE`), ON UPDATE counts as auto-increment, and the
time of the insert is the epoch.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from mysqlio.definitions.character_sets import BYTES_PER_CHARACTER, charset_name, charset_of_collation
from mysqlio.definitions.column_definition import ColumnDefinition
from schemas.schema_changes import ModelColumn

_JDBC: Final = {
    "BIT": -7,
    "TINYINT": 5,
    "INT1": 5,
    "BOOLEAN": 16,
    "BOOL": 16,
    "SMALLINT": 5,
    "INT2": 5,
    "MEDIUMINT": 4,
    "MIDDLEINT": 4,
    "INT3": 4,
    "INT": 4,
    "INTEGER": 4,
    "INT4": 4,
    "YEAR": 4,
    "BIGINT": -5,
    "INT8": -5,
    "FLOAT": 6,
    "FLOAT4": 6,
    "REAL": 7,
    "DOUBLE": 8,
    "FLOAT8": 8,
    "DECIMAL": 3,
    "DEC": 3,
    "FIXED": 3,
    "NUMERIC": 2,
    "CHAR": 1,
    "CHARACTER": 1,
    "NCHAR": -15,
    "VARCHAR": 12,
    "VARCHARACTER": 12,
    "NVARCHAR": -9,
    "LONG": 12,
    "TINYTEXT": 12,
    "TEXT": 12,
    "MEDIUMTEXT": 12,
    "LONGTEXT": 12,
    "BINARY": -2,
    "VARBINARY": -3,
    "TINYBLOB": 2004,
    "BLOB": 2004,
    "MEDIUMBLOB": 2004,
    "LONGBLOB": 2004,
    "DATE": 91,
    "TIME": 92,
    "DATETIME": 93,
    "TIMESTAMP": 2014,
    "ENUM": 1,
    "SET": 1,
}
_OTHER_JDBC: Final = 1111
_TEXTS: Final = frozenset(
    {"CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "NCHAR", "NVARCHAR", "NATIONAL", "LONG", "TINYTEXT", "TEXT",
     "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET"}
)  # fmt: skip
_BITS: Final = re.compile(r"b'([01]+)'")
_LARGER: Final = {"TINYTEXT": "TEXT", "TEXT": "MEDIUMTEXT", "MEDIUMTEXT": "LONGTEXT"}
_EPOCH: Final = "1970-01-01 00:00:00"


def model_column(definition: ColumnDefinition, table_charset: str | None) -> ModelColumn:
    """Return the column of a definition that is understood."""
    words = definition.type_words
    type_name = " ".join(words)
    if definition.unsigned:
        type_name += " UNSIGNED"
    if definition.zerofill:
        type_name += " ZEROFILL"
    members = _members(words[0], definition)
    length, scale = _sizes(words[0], definition, members)
    return ModelColumn(
        definition.name,
        -9 if words[:2] == ("NATIONAL", "VARCHAR") else _JDBC.get(words[0], _OTHER_JDBC),
        type_name,
        _charset(words[0], definition, table_charset),
        length,
        scale,
        optional=definition.nullable is not False and not definition.primary,
        auto_increment=definition.auto_increment or definition.on_update,
        default=model_default(definition),
        members=members,
        comment=definition.comment,
    )


def model_default(definition: ColumnDefinition) -> str | None:
    """Return the default's text: words as written, the epoch for the time of the insert, None for other expressions."""
    if not definition.has_default:
        return None
    if definition.default_is_expression:
        return _EPOCH if definition.default == "CURRENT_TIMESTAMP" else None
    word = definition.default_word
    if word in ("TRUE", "FALSE") or definition.default is None:
        return word or None
    bits = _BITS.fullmatch(definition.default)
    return definition.default if bits is None or definition.default_is_string else bits[1]


def converted(column: ModelColumn, charset: str) -> ModelColumn:
    """Return a text column in another character set; where its characters take more bytes, a TEXT becomes the next larger one."""
    before, after = (BYTES_PER_CHARACTER.get(charset_name(name or ""), 1) for name in (column.charset, charset))
    grown = _LARGER.get(column.type_name, column.type_name) if after > before else column.type_name
    return replace(column, charset=charset, type_name=grown)


def _members(word: str, definition: ColumnDefinition) -> tuple[str, ...] | None:
    """Return the members of an ENUM or SET as SQL literals, None for other types."""
    if word not in ("ENUM", "SET"):
        return None
    return tuple(_literal(member) for member in definition.arguments)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _sizes(
    word: str, definition: ColumnDefinition, members: tuple[str, ...] | None
) -> tuple[int | None, int | None]:
    """Return length and scale; a DECIMAL without them has the server's, a SET the length that Debezium computes."""
    if members is not None:
        return (1 if word == "ENUM" else max(0, 2 * len(members) - 1)), None
    if word in ("BOOLEAN", "BOOL"):
        return None, None
    numbers = [int(argument) for argument in definition.arguments if argument.isdigit()]
    if word in ("DECIMAL", "DEC", "FIXED", "NUMERIC"):
        numbers = numbers or [10]
        return numbers[0], numbers[1] if len(numbers) > 1 else 0
    return (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else None)


def _charset(word: str, definition: ColumnDefinition, table_charset: str | None) -> str | None:
    if word not in _TEXTS:
        return None
    if word == "NATIONAL":
        return "utf8"
    if definition.charset is not None:
        return definition.charset
    if definition.collation is not None:
        return charset_of_collation(definition.collation)
    return table_charset
