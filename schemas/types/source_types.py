"""What a column is called and how large it is in SQL, as schemas have it: Debezium's `column.propagate.source.type`.

Names and sizes are those of SHOW CREATE TABLE on MySQL 8.0.19 and later, in a chunk and in the log alike: integers have a
length only as TINYINT(1) or with ZEROFILL. Debezium's are those of the DDL text it saw last (`INTEGER`, `INT(11)`, `BOOL`).
"""

from __future__ import annotations

from typing import Final

from schemas.columns import Column, ColumnType
from schemas.connect_types import SOURCE_PARAMETER
from schemas.types.column_facts import FRACTION_TYPES, Semantic, semantic_of

_NAMES: Final = {ColumnType.GEOMETRYCOLLECTION: "GEOMCOLLECTION"}


def type_name(column: Column) -> str:
    """Return the type's name in capitals, with UNSIGNED and ZEROFILL."""
    name = _NAMES.get(column.type, column.type.value.upper())
    return f"{name}{' UNSIGNED' if column.unsigned else ''}{' ZEROFILL' if column.zerofill else ''}"


def type_length(column: Column) -> int | None:
    """Return the first number behind the type's name, None for none; of ENUM and SET the longest value's length in members."""
    kind = semantic_of(column)
    if kind is Semantic.ENUM:
        return 1
    if kind is Semantic.SET:
        return max(0, 2 * len(column.members) - 1)
    if kind is Semantic.DECIMAL or column.type in FRACTION_TYPES:
        return column.precision or None
    return column.length if column.display is None else column.display


def source_parameters(column: Column, *, comments: bool) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a field's schema, in Debezium's order."""
    length = type_length(column)
    known = {
        "type": type_name(column),
        "length": None if length is None else str(length),
        "scale": None if column.scale is None else str(column.scale),
        "comment": (column.comment or None) if comments else None,
        "name": column.name,
    }
    return tuple((f"{SOURCE_PARAMETER}{key}", text) for key, text in known.items() if text is not None)
