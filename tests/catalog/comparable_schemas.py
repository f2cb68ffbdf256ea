"""Schemas as records show them, whatever they come from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mysqlio.definitions.table_parts import Key, KeyPart
from schemas.columns import Column, TableSchema
from schemas.types.semantic_types import column_default


def comparable(schema: TableSchema, uncertain: frozenset[str]) -> dict[str, Any]:
    """A schema with defaults as records carry them, and character sets by one of their two names."""
    return {
        "name": (schema.database, schema.name),
        "columns": [_comparable(column, has_default=column.name not in uncertain) for column in schema.columns],
        "keys": (schema.primary_key, schema.unique_key),
    }


def _comparable(column: Column, *, has_default: bool) -> tuple[Column, Any]:
    """A default of NULL, said or not, is none: records have the same for both."""
    says_default = column.has_default and (column.default is not None or column.default_is_expression)
    bare = replace(
        column,
        default=None,
        has_default=has_default and says_default,
        default_is_expression=has_default and column.default_is_expression,
        collation=comparable_collation(column.collation),
    )
    return bare, column_default(column) if has_default else None


def comparable_keys(keys: tuple[Key, ...]) -> list[Key]:
    """By name (the record key shows which comes first); of a prefix only whether there is one, in unique indexes."""
    plain = [
        Key(
            key.name,
            key.unique,
            tuple(KeyPart(part.column, int(key.unique and part.prefix > 0)) for part in key.parts),
        )
        for key in keys
    ]
    return sorted(plain, key=lambda key: key.name)


def comparable_collation(name: str | None) -> str | None:
    return f"utf8mb3{name[4:]}" if name is not None and name.startswith("utf8_") else name
