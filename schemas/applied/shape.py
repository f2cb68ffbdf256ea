"""What the column options make of a table: which columns are written, which are masked, and what the key is.

Patterns are Debezium's: regular expressions on `database.table.column` (`database.table` for keys), anchored,
upper and lower case alike. Debezium applies no mask in keys and lets a mask on a number pass without effect;
here both would let out what is to be hidden, so masks apply to keys too and a mask that cannot be is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from schemas.columns import Mask, TableSchema
from schemas.errors import ConfigError
from schemas.types.column_facts import TEXT_TYPES
from schemas.types.source_types import type_name

if TYPE_CHECKING:
    from schemas.settings import RecordSettings


def shaped(table: TableSchema, records: RecordSettings) -> TableSchema:
    """Return the table with its described, dropped and masked columns and its chosen key; itself without such options.

    Where the options leave no column its rows are empty, as Debezium's. Raises `ConfigError` when they name a key column that is
    not there, or mask what cannot be masked.
    """
    table = described(table, records)
    if not records.shapes_columns:
        return table
    dropped = frozenset(
        name for name in _names(table) if not _is_written(f"{table.full_name}.{name}", records)
    )
    keyed = replace(table, message_key=_chosen_key(table, records), dropped=dropped)
    return replace(keyed, masks=tuple(_masks(keyed, records)))


def described(table: TableSchema, records: RecordSettings) -> TableSchema:
    """Return the table as its schemas are to describe it: with comments, and the source's types of some columns."""
    by_name, by_type = records.column_propagate_source_type, records.datatype_propagate_source_type
    typed = frozenset(
        column.name
        for column in table.columns
        if _matches(by_name, f"{table.full_name}.{column.name}")
        or _matches(by_type, f"{table.full_name}.{type_name(column)}")
    )
    if not typed and not records.include_schema_comments:
        return table
    return replace(table, typed=typed, comments=records.include_schema_comments)


def hides_values(full_name: str, records: RecordSettings) -> bool:
    """Whether the values of a column (`database.table.column`) leave changed, or not at all."""
    masked = any(_matches(patterns, full_name) for _, patterns, _ in records.masks())
    return masked or not _is_written(full_name, records)


def _names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def _is_written(full_name: str, records: RecordSettings) -> bool:
    if records.column_include_list:
        return _matches(records.column_include_list, full_name)
    return not _matches(records.column_exclude_list, full_name)


def _chosen_key(table: TableSchema, records: RecordSettings) -> tuple[str, ...]:
    names = {name.lower(): name for name in _names(table)}
    for pattern, columns in records.message_key_columns.items():
        if _matches([pattern], table.full_name):
            wanted = [column.strip() for column in columns.split(",")]
            missing = [column for column in wanted if column.lower() not in names]
            if missing:
                message = f"records.message_key_columns: {table.full_name} has no column {', '.join(missing)}"
                raise ConfigError(message)
            return tuple(names[column.lower()] for column in wanted)
    return ()


def _masks(table: TableSchema, records: RecordSettings) -> Iterator[tuple[str, Mask]]:
    for column in table.columns:
        name = f"{table.full_name}.{column.name}"
        found = [(key, mask) for key, patterns, mask in records.masks() if _matches(patterns, name)]
        in_key = column.name in table.record_key
        if not found or (column.name in table.dropped and not in_key):
            continue
        key, mask = found[0]
        if len(found) > 1:
            message = f"{found[1][0]}: {name} is masked by {key} already; let one pattern match it"
            raise ConfigError(message)
        if column.type not in TEXT_TYPES:
            message = (
                f"{key}: {name} is {column.type.value}, only texts can be masked; leave it out of the records"
            )
            raise ConfigError(message)
        if in_key and mask.kind != "hash":
            message = (
                f"{key}: {name} is in the record key, where different rows would get one key; hash it "
                f"(records.column_mask_hash_v2), or choose another key (records.message_key_columns)"
            )
            raise ConfigError(message)
        yield column.name, mask


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
