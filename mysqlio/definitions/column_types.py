"""What a column definition of a DDL statement makes: a `Column`, its size, its default; and the groups of types.

A definition enters as its text has it. A `Column` leaves as the server would have it, as far as the text says.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from mysqlio.definitions.character_sets import BYTES_PER_CHARACTER, charset_of_collation
from mysqlio.definitions.column_definition import ColumnDefinition
from schemas.columns import YEAR_DIGITS, Column, ColumnType
from schemas.types.column_facts import (
    BINARY_TYPES,
    FACTS,
    FLOAT_TYPES,
    FRACTION_TYPES,
    MEMBER_TYPES,
    TEXT_TYPES,
    TO_BINARY,
    Semantic,
    semantic_of,
    sized,
)
from schemas.types.semantic_types import SEMANTIC_TYPES, column_default

_DOUBLE_FROM: Final = 25
_VECTOR_LENGTH: Final = 2048  # of MySQL's; MariaDB's must be given


def to_column(definition: ColumnDefinition, table_charset: str | None, flavour: str) -> Column | None:
    """Return the column that a definition makes; None for a type that is not captured.

    Explicitness decides where servers have hidden rules: a TIMESTAMP without NULL counts as NOT NULL.
    """
    charset = definition.charset
    if charset is None and definition.collation is not None:
        charset = charset_of_collation(definition.collation)
    charset = charset or table_charset
    kind = _column_type(definition, charset, flavour)
    if kind is None:
        return None
    if charset == "binary" and definition.charset == "binary" and kind in TO_BINARY:
        kind = TO_BINARY[kind]
    nullable = definition.nullable if definition.nullable is not None else FACTS[kind].semantic is not Semantic.TIMESTAMP
    column = Column(definition.name, kind, nullable and not definition.primary, unsigned=definition.unsigned)
    column = _with_sizes(column, definition.arguments)
    if kind in TEXT_TYPES or kind in MEMBER_TYPES:
        column = replace(column, charset=charset, collation=definition.collation)
    return replace(
        column,
        default=default_text(definition, column),
        has_default=definition.has_default,
        default_is_expression=definition.default_is_expression,
        comment=definition.comment,
        display=_display(definition, kind, flavour),
        zerofill=definition.zerofill,
        filled_by="expression" if definition.generated else "counter" if definition.auto_increment else "",
    )


def _display(definition: ColumnDefinition, kind: ColumnType, flavour: str) -> int | None:
    """Return the width that is shown of an integer; other widths than these, newer servers no longer keep."""
    facts = FACTS[kind]
    if facts.semantic is Semantic.YEAR:
        return YEAR_DIGITS if flavour == "mariadb" and definition.arguments == (str(YEAR_DIGITS),) else None
    given = int(definition.arguments[0]) if definition.arguments and facts.digits else None
    if definition.zerofill:
        return given or facts.digits or None
    return 1 if facts.digits and facts.size == 1 and given == 1 and not definition.unsigned else None


def _column_type(definition: ColumnDefinition, charset: str | None, flavour: str) -> ColumnType | None:
    name = definition.type_name
    if name == "JSON" and flavour == "mariadb":
        name = "LONGTEXT"
    if name == "FLOAT" and len(definition.arguments) == 1 and int(definition.arguments[0]) >= _DOUBLE_FROM:
        name = "DOUBLE"
    try:
        kind = ColumnType(name.lower())
    except ValueError:
        return None
    if name in ("TEXT", "BLOB") and definition.arguments:
        width = BYTES_PER_CHARACTER.get(charset or "", 1) if name == "TEXT" else 1
        return sized(kind, int(definition.arguments[0]) * width)
    return kind


def _with_sizes(column: Column, arguments: tuple[str, ...]) -> Column:
    if column.type in MEMBER_TYPES:
        return replace(column, members=tuple(argument.rstrip(" ") for argument in arguments))
    numbers = [int(argument) for argument in arguments if re.fullmatch(r"\d+", argument)]
    first = numbers[0] if numbers else None
    second = numbers[1] if len(numbers) > 1 else None
    if semantic_of(column) is Semantic.DECIMAL:
        return replace(column, precision=10 if first is None else first or 10, scale=second or 0)
    if column.type in FRACTION_TYPES:
        return replace(column, precision=first or 0)
    if column.type in FLOAT_TYPES:
        return replace(column, length=first, scale=second) if second is not None else column
    if FACTS[column.type].length:
        return replace(column, length=1 if first is None else first)
    if semantic_of(column) is Semantic.VECTOR:
        return replace(column, length=_VECTOR_LENGTH if first is None else first)
    return column


def default_text(definition: ColumnDefinition, column: Column) -> str | None:
    """Return the text of a definition's default as a column of that type carries it."""
    text = definition.default
    if text is None or definition.default_is_expression:
        return text
    if column.type in BINARY_TYPES:
        return "0x" + text.encode().hex().upper() if definition.default_is_string else text
    if semantic_of(column) is Semantic.BIT and definition.default_is_string:  # its bytes, not its number
        return f"b'{int.from_bytes(text.encode(), 'big'):b}'"
    if column.type in TEXT_TYPES and not definition.default_is_string:
        return None
    return text.rstrip(" ") if FACTS[column.type].length == "stripped" else text


# ── defaults that are certain ────────────────────────────────

def is_exact(definition: ColumnDefinition, column: Column, flavour: str) -> bool:
    """Return whether a literal default is written such that its stored value is known without the server's help.

    `column` is the definition's column, with that default.
    """
    text = column.default
    if text is None or definition.default_has_escapes or semantic_of(column) is Semantic.TIMESTAMP:
        return False  # a TIMESTAMP is in the session's time zone
    if column.members:
        return definition.default_is_string and _is_member(column, text)
    if column.type in TEXT_TYPES:
        return definition.default_is_string
    if column.type in BINARY_TYPES:
        if flavour == "mariadb" and any(byte >= 0x80 for byte in _bytes_of(text)):
            return False  # it may keep X'00FF00' as 003F00, depending on the table's character set
        return text.startswith("0x") and (definition.default is None or definition.default.isascii())
    if column.type in FLOAT_TYPES and column.scale is not None:
        return False
    pattern = SEMANTIC_TYPES[semantic_of(column)].exact
    if column.type in FRACTION_TYPES:
        pattern = pattern % column.precision if column.precision else pattern.partition("(\\.")[0]
    return re.fullmatch(pattern, text) is not None and column_default(column) is not None


def _bytes_of(text: str) -> bytes:
    digits = text.removeprefix("0x")
    return bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0")) if text.startswith("0x") else b""


def _is_member(column: Column, text: str) -> bool:
    if semantic_of(column) is Semantic.ENUM:
        return text in column.members
    indexes = [column.members.index(part) if part in column.members else -1 for part in text.split(",")]
    return not text or (-1 not in indexes and indexes == sorted(set(indexes)))
