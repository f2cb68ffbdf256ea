"""The server's rules for indexes: their order, their names, and what is left of one when its columns change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mysqlio.definitions.table_parts import Key, KeyPart
from producer.catalog.model import PRIMARY, UnclearError
from schemas.columns import Column
from schemas.types.column_facts import (
    BINARY_TYPES,
    MEMBER_TYPES,
    SPATIAL_TYPES,
    TEXT_TYPES,
    Semantic,
    semantic_of,
)

_POINT_BYTES: Final = 25
_SPATIAL_WHOLE: Final = 4
"""An index on so many first bytes of a spatial value is one on all of it to MariaDB (the size of its length field)."""
_PREFIXED: Final = TEXT_TYPES + BINARY_TYPES + SPATIAL_TYPES


def require_columns(keys: Sequence[Key], columns: Sequence[Column]) -> None:
    """Raise `UnclearError` for an index on what is no column: a period of MariaDB (`p WITHOUT OVERLAPS`), a hidden column."""
    names = {column.name.lower() for column in columns}
    for part in (part for key in keys for part in key.parts):
        if part.column and part.column.lower() not in names:
            message = f"an index on {part.column}, which is no column that is known"
            raise UnclearError(message)


def kept_prefix(prefix: int, old: Column | None, new: Column | None) -> int:
    """Return how many characters stay indexed when a column becomes another; 0 = all."""
    if old is None or new is None:
        return prefix
    if old.type in SPATIAL_TYPES:
        if new.type in SPATIAL_TYPES:
            return prefix
        if new.type not in _PREFIXED:
            return 0
        if new.length is not None or not prefix:  # MariaDB keeps what fits, MySQL does not
            message = f"the index of column {new.name}, which was on the first bytes of a spatial value"
            raise UnclearError(message)
    if old.type in MEMBER_TYPES and new.type in _PREFIXED:  # MySQL indexes as many characters as the members had bytes
        message = f"the index of column {new.name}, whose members become text"
        raise UnclearError(message)
    if not prefix and new.type in _PREFIXED and new.length is None:
        return old.length or 0  # MariaDB: a whole VARCHAR that becomes a TEXT stays indexed by as many characters
    return prefix


def in_server_order(keys: Sequence[Key], columns: Sequence[Column]) -> list[Key]:
    """Return the indexes in the server's order: primary, unique and required, unique, others; whole columns before prefixes."""
    nullable = {column.name.lower(): column.nullable for column in columns}

    def order(key: Key) -> tuple[bool, ...]:
        if not key.unique:
            return (True,)
        may_be_null = any(nullable.get(part.column.lower(), True) for part in key.parts)
        return (False, may_be_null, key.name != PRIMARY, any(part.prefix for part in key.parts))

    return sorted(keys, key=order)


def as_stored(part: KeyPart, columns: Sequence[Column]) -> KeyPart:
    """Return the part with its column's own spelling, and without a prefix that is the whole column."""
    column = next((column for column in columns if column.name.lower() == part.column.lower()), None)
    if column is None:
        return part
    if semantic_of(column) is Semantic.POINT:
        return KeyPart(column.name, _POINT_BYTES)
    is_whole = (
        column.type not in _PREFIXED
        or (column.length is not None and column.length <= part.prefix)
        or (column.type in SPATIAL_TYPES and part.prefix == _SPATIAL_WHOLE)
    )
    return KeyPart(column.name, 0 if is_whole else part.prefix)


def free_name(parts: Sequence[KeyPart], taken: set[str]) -> str:
    """Return the name that the server gives an index that has none: its first column's, numbered where that is taken."""
    first = (parts[0].column if parts else "") or "functional_index"
    if first.lower() not in taken and first.upper() != PRIMARY:
        return first
    return next(name for name in (f"{first}_{number}" for number in range(2, 1000)) if name.lower() not in taken)
