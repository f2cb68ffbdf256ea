"""Does a result set have the columns that a codec was compiled for? (pure)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from producer.source.query import ResultColumn
from schemas.columns import ADDRESS_BYTES, SPATIAL_TYPES, Column, ColumnType, TableSchema
from schemas.errors import SchemaMismatchError

_NOT_NULL, _UNSIGNED, _ENUM, _SET = 1, 32, 256, 2048
_BINARY_CHARSET: Final = 63
_DECIMAL, _STRING, _VAR_STRING, _BLOB, _JSON = 246, 254, 253, 252, 245
_VECTOR, _GEOMETRY = 242, 255
_FLOAT_BYTES: Final = 4

_CODES: Final = {
    ColumnType.TINYINT: 1,
    ColumnType.SMALLINT: 2,
    ColumnType.MEDIUMINT: 9,
    ColumnType.INT: 3,
    ColumnType.BIGINT: 8,
    ColumnType.DECIMAL: _DECIMAL,
    ColumnType.FLOAT: 4,
    ColumnType.DOUBLE: 5,
    ColumnType.BIT: 16,
    ColumnType.YEAR: 13,
    ColumnType.DATE: 10,
    ColumnType.TIME: 11,
    ColumnType.DATETIME: 12,
    ColumnType.TIMESTAMP: 7,
    ColumnType.CHAR: _STRING,
    ColumnType.VARCHAR: _VAR_STRING,
    ColumnType.BINARY: _STRING,
    ColumnType.VARBINARY: _VAR_STRING,
    ColumnType.ENUM: _STRING,
    ColumnType.SET: _STRING,
    ColumnType.JSON: _JSON,
    ColumnType.VECTOR: _VECTOR,
    **dict.fromkeys(SPATIAL_TYPES, _GEOMETRY),
    **dict.fromkeys(ADDRESS_BYTES, _STRING),
}
_ALSO: Final = {ColumnType.JSON: (_BLOB,), ColumnType.VECTOR: (_VAR_STRING,)}  # MariaDB's
_UNSIGNED_TYPES: Final = frozenset(
    {
        ColumnType.TINYINT,
        ColumnType.SMALLINT,
        ColumnType.MEDIUMINT,
        ColumnType.INT,
        ColumnType.BIGINT,
        ColumnType.DECIMAL,
    }
)
_BINARIES: Final = frozenset(
    {
        ColumnType.BINARY,
        ColumnType.VARBINARY,
        ColumnType.TINYBLOB,
        ColumnType.BLOB,
        ColumnType.MEDIUMBLOB,
        ColumnType.LONGBLOB,
    }
)
_TEXTS: Final = frozenset(
    {
        ColumnType.CHAR,
        ColumnType.VARCHAR,
        ColumnType.TINYTEXT,
        ColumnType.TEXT,
        ColumnType.MEDIUMTEXT,
        ColumnType.LONGTEXT,
        *ADDRESS_BYTES,
    }
)
_FRACTIONS: Final = frozenset({ColumnType.TIME, ColumnType.DATETIME, ColumnType.TIMESTAMP})


def require_columns(table: TableSchema, columns: Sequence[ResultColumn]) -> None:
    """Raise `SchemaMismatchError` unless the result set is what SELECTing the table's columns gives.

    Compared is what changes how bytes are read or what a record says: names, order, types, signs,
    nullability, and the sizes of DECIMAL, BIT and fractions of a second. A longer VARCHAR changes nothing.
    """
    if len(columns) != len(table.columns):
        _refuse(table, f"{len(columns)} columns instead of {len(table.columns)}")
    for expected, found in zip(table.columns, columns, strict=True):
        difference = _difference(expected, found)
        if difference:
            _refuse(table, f"column {expected.name}: {difference}")


def _refuse(table: TableSchema, difference: str) -> None:
    message = f"{table.full_name} changed while it was read ({difference}); its schema is read again"
    raise SchemaMismatchError(message)


def _difference(expected: Column, found: ResultColumn) -> str:
    if found.name != expected.name:
        return f"named {found.name}"
    code = _CODES.get(expected.type, _BLOB)
    codes = (code, *_ALSO.get(expected.type, ()))
    if found.type_code not in codes:
        return f"type code {found.type_code} instead of {code}"
    if expected.type in _UNSIGNED_TYPES and bool(found.flags & _UNSIGNED) != expected.unsigned:
        return "signed or unsigned otherwise"
    if bool(found.flags & _NOT_NULL) == expected.nullable:
        return "NULL or NOT NULL otherwise"
    return _details(expected, found)


def _details(expected: Column, found: ResultColumn) -> str:
    kind = expected.type
    if (kind is ColumnType.ENUM) != bool(found.flags & _ENUM) or (kind is ColumnType.SET) != bool(
        found.flags & _SET
    ):
        return "ENUM or SET otherwise"
    is_binary = found.charset == _BINARY_CHARSET
    if (kind in _BINARIES and not is_binary) or (kind in _TEXTS and is_binary):
        return "text or binary otherwise"
    if kind is ColumnType.VECTOR and found.type_code == _VAR_STRING:
        is_vector = is_binary and expected.length is not None and found.length == _FLOAT_BYTES * expected.length
        return "" if is_vector else "no vector"
    if kind in _FRACTIONS and found.decimals != (expected.precision or 0):
        return f"{found.decimals} fraction digits instead of {expected.precision or 0}"
    if kind is ColumnType.BIT and found.length != expected.length:
        return f"{found.length} bits instead of {expected.length}"
    if kind is ColumnType.DECIMAL and (found.length, found.decimals) != _decimal_size(expected):
        return f"DECIMAL of another size ({found.length} characters, {found.decimals} behind the point)"
    return ""


def _decimal_size(column: Column) -> tuple[int, int]:
    """Characters and decimals the server announces for a DECIMAL(p,s)."""
    scale = column.scale or 0
    return (column.precision or 0) + (1 if scale else 0) + (0 if column.unsigned else 1), scale
