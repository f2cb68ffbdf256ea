"""The model of a table: its columns, its indexes in the server's order, and what its next DDL depends on.

`reduce` makes one of the clauses of a statement, `information_schema` of what the server reports, and the state topic keeps one
per followed table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mysqlio.definitions.table_parts import Key, KeyPart
from schemas.columns import TableSchema
from schemas.documents import CatalogDocument, IndexDocument

if TYPE_CHECKING:
    from mysqlio.information_schema import TableFacts
    from producer.catalog.effects import Effect

PRIMARY: Final = "PRIMARY"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as far as its next DDL needs it. `keys` are in the server's order.

    `charset` and `collation` are those of columns that name none, "" where not known. `uncertain` names columns
    whose default the text did not give for certain; everything else of them is certain. `unshown` names columns, in small
    letters, that were added to rows and that no row in the log has shown since: no record has the default they were added with.
    `since_copy` is what happened to the table since it was made as a copy of another, None for others; `is_kept_up` says
    that a tool is known to fill it with the same rows.
    """

    schema: TableSchema
    charset: str
    collation: str
    keys: tuple[Key, ...]
    uncertain: frozenset[str] = frozenset()
    unshown: frozenset[str] = frozenset()
    since_copy: Effect | None = None
    is_kept_up: bool = False


def state_of(facts: TableFacts) -> CatalogTable:
    """Return a table that the server reports, as its next DDL needs it."""
    return CatalogTable(facts.schema, facts.charset, facts.collation, facts.keys)


class UnclearError(Exception):
    """The text does not say what the table becomes. It never leaves the catalog."""


def renamed(state: CatalogTable, database: str, table: str) -> CatalogTable:
    """Return the same columns and keys under another name (RENAME, and CREATE TABLE ... LIKE)."""
    return replace(state, schema=replace(state.schema, database=database, name=table), since_copy=None, is_kept_up=False)


def keyed(schema: TableSchema, keys: Sequence[Key]) -> TableSchema:
    """Return the schema with the record key its indexes give it; a unique index on prefixes is none, as for the log."""
    nullable = {column.name.lower(): column.nullable for column in schema.columns}
    primary = next((key for key in keys if key.name == PRIMARY), None)
    if primary is not None:
        return replace(schema, primary_key=tuple(part.column for part in primary.parts), unique_key=())
    unique = next(
        (
            key
            for key in keys
            if key.unique
            and all(
                part.column and not part.prefix and not nullable[part.column.lower()] for part in key.parts
            )
        ),
        None,
    )
    names = () if unique is None else tuple(part.column for part in unique.parts)
    return replace(schema, primary_key=(), unique_key=names)


def to_document(state: CatalogTable) -> CatalogDocument:
    """Return the state document of a table; `from_document` does the opposite."""
    schema = state.schema
    keys = tuple(
        IndexDocument(key.name, key.unique, tuple((part.column, part.prefix) for part in key.parts)) for key in state.keys
    )
    return CatalogDocument(
        schema.database, schema.name, state.charset, state.collation, schema.columns, keys,
        state.uncertain, state.unshown, state.since_copy, state.is_kept_up,
    )  # fmt: skip


def from_document(document: CatalogDocument) -> CatalogTable:
    """Return the state of a table's document; `KeyError` if an index is of a column that the table does not have."""
    keys = tuple(
        Key(key.name, key.unique, tuple(KeyPart(name, prefix) for name, prefix in key.parts)) for key in document.keys
    )
    schema = keyed(TableSchema(document.database, document.table, document.columns), keys)
    unshown = document.unshown
    if unshown is None:
        unshown = frozenset(column.name.lower() for column in document.columns)
    return CatalogTable(
        schema, document.charset, document.collation, keys,
        document.uncertain, unshown, document.since_copy, document.is_kept_up,
    )  # fmt: skip
