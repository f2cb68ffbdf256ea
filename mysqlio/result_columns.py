"""Does a result set have the columns that a codec was compiled for? (pure)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mysqlio.binary_query import ResultColumn
from schemas.columns import Column, TableSchema
from schemas.errors import SchemaMismatchError
from schemas.types.column_facts import (
    FACTS,
    FLOAT_BYTES,
    FRACTION_TYPES,
    Semantic,
    semantic_of,
)

_NOT_NULL, _UNSIGNED, _ENUM, _SET = 1, 32, 256, 2048
_BINARY_CHARSET: Final = 63
_VAR_STRING: Final = 253
_SIGNED: Final = (Semantic.INTEGER, Semantic.DECIMAL)
_PRINTED: Final = (Semantic.TEXT, Semantic.UUID, Semantic.INET)


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
    codes = FACTS[expected.type].result
    if found.type_code not in codes:
        return f"type code {found.type_code} instead of {codes[0]}"
    if semantic_of(expected) in _SIGNED and bool(found.flags & _UNSIGNED) != expected.unsigned:
        return "signed or unsigned otherwise"
    if bool(found.flags & _NOT_NULL) == expected.nullable:
        return "NULL or NOT NULL otherwise"
    return _details(expected, found)


def _details(expected: Column, found: ResultColumn) -> str:
    kind = semantic_of(expected)
    if (kind is Semantic.ENUM) != bool(found.flags & _ENUM) or (kind is Semantic.SET) != bool(found.flags & _SET):
        return "ENUM or SET otherwise"
    is_binary = found.charset == _BINARY_CHARSET
    if (kind is Semantic.BINARY and not is_binary) or (kind in _PRINTED and is_binary):
        return "text or binary otherwise"
    if kind is Semantic.VECTOR and found.type_code == _VAR_STRING:
        is_vector = is_binary and expected.length is not None and found.length == FLOAT_BYTES * expected.length
        return "" if is_vector else "no vector"
    if expected.type in FRACTION_TYPES and found.decimals != (expected.precision or 0):
        return f"{found.decimals} fraction digits instead of {expected.precision or 0}"
    if kind is Semantic.BIT and found.length != expected.length:
        return f"{found.length} bits instead of {expected.length}"
    if kind is Semantic.DECIMAL and (found.length, found.decimals) != _decimal_size(expected):
        return f"DECIMAL of another size ({found.length} characters, {found.decimals} behind the point)"
    return ""


def _decimal_size(column: Column) -> tuple[int, int]:
    """Characters and decimals the server announces for a DECIMAL(p,s)."""
    scale = column.scale or 0
    return (column.precision or 0) + (1 if scale else 0) + (0 if column.unsigned else 1), scale
