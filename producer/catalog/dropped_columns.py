"""Columns that rows of a table had and that it no longer has: a sink keeps them, with their values.

A client that adds such a column again has old values in the sink where the server has NULL or a default. They were dropped,
renamed, or belonged to another table of that name. One document per table in the state topic, written with the offset, so
that a restart between the two statements makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from producer.catalog.statements.clauses import Copy, RenameColumn
from schemas.documents import ColumnsDocument
from schemas.identity import TableId
from schemas.json_codec import encode
from schemas.state import parse

if TYPE_CHECKING:
    from producer.catalog.effects import DdlChange
    from schemas.columns import TableSchema


@dataclass(slots=True)
class _Names:
    """The columns a table has, as far as the log has shown, and those it had before. In small letters."""

    present: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def become(self, names: Collection[str]) -> None:
        """Note that the table has these columns now, and no others."""
        self.gone |= self.present
        self.present = set(names)
        self.gone -= self.present


class DroppedColumns:
    """Dropped columns by table. `wants` says which tables to remember."""

    def __init__(self, wants: Callable[[str, str], bool]) -> None:
        self._wants = wants
        self._tables: dict[TableId, _Names] = {}
        self._unsaved: dict[str, dict[str, Any] | None] = {}

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Restore the columns of an earlier process at the committed offset."""
        for key, document in documents.items():
            if key.startswith(ColumnsDocument.PREFIX):
                one = parse(ColumnsDocument, key, document)
                self._tables[one.database, one.table] = _Names(set(one.present), set(one.gone))

    def pop_unsaved(self) -> dict[str, dict[str, Any] | None]:
        """Return the documents that changed since the last call."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def gone(self, database: str, table: str) -> frozenset[str]:
        """Return the names, in small letters, that columns of the table had and that none has now."""
        names = self._tables.get((database, table))
        return frozenset() if names is None else frozenset(names.gone)

    def show(self, schema: TableSchema) -> None:
        """Note that the table has these columns, here in the log."""
        self._become((schema.database, schema.name), {column.name.lower() for column in schema.columns})

    def copy(self, origin: TableId, table: TableId) -> None:
        """Note that the table is made to replace another, and to have its rows."""
        known = self._tables.get(origin)
        if known is not None and self._wants(*table):
            self._tables[table] = _Names(set(known.present), set(known.gone))
            self._save(table)

    def drop_database(self, database: str) -> None:
        """Note that all tables of a database are dropped."""
        for table in [table for table in self._tables if table[0] == database]:
            self._become(table, ())

    def drop(self, table: TableId) -> None:
        """Note that a table is dropped: another one of its name may follow."""
        self._become(table, ())

    def rename(self, old: TableId, new: TableId) -> None:
        """Note that a table has another name, and that its columns are gone from the old one."""
        names = self._present(old)
        self._become(old, ())
        self._become(new, names)

    def create(self, change: DdlChange) -> None:
        """Note the columns of a CREATE TABLE, unless there may have been such a table."""
        if change.conditional:
            return
        origin = next((clause for clause in change.clauses if isinstance(clause, Copy)), None)
        made = {added.name.lower() for added in change.added}
        self._become(change.name, made if origin is None else self._present((origin.database, origin.table)))

    def alter(self, change: DdlChange) -> None:
        """Note the columns that an ALTER TABLE adds, renames and drops."""
        table = change.name
        renamed = {clause.name: clause.new_name for clause in change.clauses if isinstance(clause, RenameColumn)}
        renamed |= {changed.name: changed.definition.name for changed in change.changed}
        left = {name.lower() for name in (*change.dropped, *renamed)}
        made = {name.lower() for name in (*renamed.values(), *(added.name for added in change.added))}
        if left or made:
            present = self._present(table) | left  # none of them may have been seen
            names = self._tables.setdefault(table, _Names()) if self._wants(*table) else _Names()
            names.present = present
            self._become(table, (present - left) | made)

    def _present(self, table: TableId) -> set[str]:
        names = self._tables.get(table)
        return set() if names is None else set(names.present)

    def _become(self, table: TableId, present: Collection[str]) -> None:
        if not self._wants(*table):
            return
        names = self._tables.get(table)
        if names is None:
            if not present:
                return
            names = self._tables[table] = _Names()
        before = set(names.present), set(names.gone)
        names.become(present)
        if before != (names.present, names.gone):
            self._save(table)

    def _save(self, table: TableId) -> None:
        names = self._tables[table]
        document = ColumnsDocument(*table, tuple(sorted(names.present)), tuple(sorted(names.gone)))
        self._unsaved[document.key] = encode(document)
