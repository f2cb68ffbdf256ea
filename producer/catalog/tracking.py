"""The tables of a log that does not name columns, as they are at the position of the log reader.

One state per table: that of the committed offset is in the state topic, written with it, so that a restart continues from
there; statements are applied as they are read and never replayed. A table whose state is lost (a statement whose text
does not say it, a rename of a table that was not followed) has a reason instead, until it is read from the server again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from mysqlio.definitions.character_sets import charset_name, charset_of_collation
from mysqlio.definitions.table_parts import Rules
from producer.catalog.dropped_columns import DroppedColumns
from producer.catalog.model import CatalogTable, from_document, keyed, renamed, to_document
from producer.catalog.reduce import Unknown, altered, created
from producer.catalog.statements.clauses import Copy, DatabaseCharset
from schemas.documents import CatalogDocument, DatabasesDocument
from schemas.errors import StateError
from schemas.identity import TableId
from schemas.json_codec import encode
from schemas.state import parse

if TYPE_CHECKING:
    from producer.catalog.effects import DdlChange, Effect
    from schemas.columns import Column, TableSchema

log = structlog.get_logger(__name__)

_NEVER_READ: Final = "what it was at this position of the log is not known"


class TrackedTables:
    """Table states by name. `wants` says which tables to follow; others are forgotten at once.

    `dropped_columns` are the columns they had, whatever the log says of columns.
    """

    def __init__(self, rules: Rules, wants: Callable[[str, str], bool]) -> None:
        self._rules = rules
        self._wants = wants
        self.dropped_columns = DroppedColumns(wants)
        self._states: dict[TableId, CatalogTable] = {}
        self._lost: dict[TableId, str] = {}
        self._unsaved: dict[str, dict[str, Any] | None] = {}
        self._databases: dict[str, tuple[str, str]] | None = None

    @property
    def knows_databases(self) -> bool:
        """Whether the character sets of databases were read once."""
        return self._databases is not None

    def charsets(self) -> dict[str, tuple[str, str]]:
        """Return (character set, collation) of tables that name none, by database, as far as they are known."""
        return dict(self._databases or {})

    def start_over(self, documents: Mapping[str, Any]) -> None:
        """Restore only what sinks may still have: all else was true at a position of a log that is lost."""
        self.dropped_columns.restore(documents)
        self._unsaved |= {key: None for key in documents if key == DatabasesDocument.KEY or key.startswith(CatalogDocument.PREFIX)}

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Restore the tables and databases of an earlier process at the committed offset."""
        self.dropped_columns.restore(documents)
        if DatabasesDocument.KEY in documents:
            databases = parse(DatabasesDocument, DatabasesDocument.KEY, documents[DatabasesDocument.KEY])
            self._databases = dict(databases.charsets)
        for key, document in documents.items():
            if not key.startswith(CatalogDocument.PREFIX):
                continue
            try:
                state = from_document(parse(CatalogDocument, key, document))
            except KeyError as error:
                message = f"the table in the state topic's document {key} has an index of a column that it has not: {error}"
                raise StateError(message) from error
            self._states[state.schema.database, state.schema.name] = state

    def pop_unsaved(self) -> dict[str, dict[str, Any] | None]:
        """State documents that changed since the last call; None deletes one."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved | self.dropped_columns.pop_unsaved()

    def state(self, database: str, table: str) -> CatalogTable | None:
        """Return the table here, None where that is not known (`why`)."""
        return self._states.get((database, table))

    def states(self, database: str, table: str) -> list[CatalogTable]:
        """Return the table here, or those of a whole database where `table` is ""; none that are not known."""
        return [state for key, state in self._states.items() if key[0] == database and table in ("", key[1])]

    def why(self, database: str, table: str) -> str:
        """Why a table's state is not known."""
        return self._lost.get((database, table), _NEVER_READ)

    def adopt(self, state: CatalogTable) -> None:
        """Replace the state of a table by the one that was read from the server."""
        self._put((state.schema.database, state.schema.name), state)

    def adopt_databases(self, charsets: Mapping[str, tuple[str, str]]) -> None:
        """(character set, collation) of tables that name none, by database; of others they are not known."""
        self._databases = dict(charsets)
        self._save_databases()

    def show(self, database: str, table: str) -> None:
        """Note that a row of the table is in the log: a record has the defaults of all its columns."""
        state = self._states.get((database, table))
        if state is not None and state.unshown:
            self._put((database, table), replace(state, unshown=frozenset()))

    def note_copy(self, database: str, table: str, since_copy: Effect | None, *, is_kept_up: bool) -> None:
        """Note the progress of a tool that makes the table as a copy of another."""
        state = self._states.get((database, table))
        if state is not None and (state.since_copy, state.is_kept_up) != (since_copy, is_kept_up):
            self._put((database, table), replace(state, since_copy=since_copy, is_kept_up=is_kept_up))

    def observe(self, schema: TableSchema, server: CatalogTable | None = None) -> None:
        """Note the columns of a TABLE_MAP; full metadata wins over what text made of them.

        Defaults that were uncertain stay so. So do those of columns that the state did not have: they are from the
        server, which may be ahead of the log. A table that is not known becomes that of the server, if it has these columns and
        this key; its character set may be another by now.
        """
        state = self._states.get((schema.database, schema.name))
        if state is None and server is not None and server.schema == schema:
            defaults = frozenset(column.name for column in schema.columns if column.has_default)
            self._put((schema.database, schema.name), replace(server, charset="", collation="", uncertain=defaults))
        if state is not None and state.schema.columns != schema.columns:
            try:
                merged = keyed(replace(state.schema, columns=schema.columns), state.keys)
            except KeyError:  # an index of a column that there is not
                self._lose((schema.database, schema.name), "its indexes are not those of its columns")
                return
            known = {column.name: column for column in state.schema.columns}
            certain = {column.name for column in schema.columns if _is_known(column, known.get(column.name))}
            uncertain = {column.name for column in schema.columns} - (certain - state.uncertain)
            self._put((schema.database, schema.name), replace(state, schema=merged, uncertain=frozenset(uncertain)))

    # ---- DDL

    def drop_database(self, database: str) -> None:
        """Forget the tables of a database, and its character set: IF NOT EXISTS may make it again with another one."""
        for state in self.states(database, ""):
            self.drop((state.schema.database, state.schema.name))
        if self._databases is not None and self._databases.pop(database, None) is not None:
            self._save_databases()

    def set_charset(self, clause: DatabaseCharset) -> None:
        """Note the character set that a statement gives a database."""
        says_nothing = clause.charset is None and clause.collation is None and not clause.is_new and not clause.is_unclear
        if self._databases is None or says_nothing:
            return
        charset = charset_name(clause.charset or "") or (charset_of_collation(clause.collation) if clause.collation else "")
        collation = clause.collation or self._rules.collations.get(charset, "")
        self._databases.pop(clause.database, None)
        if charset in self._rules.collations:
            self._databases[clause.database] = (charset, collation)
        self._save_databases()

    def _save_databases(self) -> None:
        self._unsaved[DatabasesDocument.KEY] = encode(DatabasesDocument(dict(self._databases or {})))

    def create(self, change: DdlChange) -> None:
        """Make the table of a CREATE TABLE."""
        key = change.name
        if change.conditional:
            if key not in self._states:
                self._lose(key, "a CREATE TABLE IF NOT EXISTS, which may have found one")
            return
        origin = next((clause for clause in change.clauses if isinstance(clause, Copy)), None)
        if origin is not None:
            state = self._states.get((origin.database, origin.table))
            if state is None:
                self._lose(key, f"a copy of {origin.database}.{origin.table}, which is not followed")
            else:
                self._put(key, renamed(state, *key))
            return
        charset, collation = (self._databases or {}).get(key[0], ("", ""))
        self._note(key, created(*key, change.clauses, self._rules, charset, collation))

    def alter(self, change: DdlChange) -> None:
        """Apply the clauses of a statement to its table, or to all tables of its database."""
        for state in self.states(*change.name):
            self._note((state.schema.database, state.schema.name), altered(state, change.clauses, self._rules))

    def _note(self, key: TableId, outcome: CatalogTable | Unknown) -> None:
        if isinstance(outcome, Unknown):
            self._lose(key, outcome.why)
        else:
            self._put(key, outcome)

    def rename(self, old: TableId, new: TableId) -> None:
        """Keep a table under its new name."""
        state, why = self._states.get(old), self._lost.get(old)
        self.drop(old)
        if state is not None:
            self._put(new, renamed(state, *new))
        else:
            self._lose(new, why or f"a rename of {old[0]}.{old[1]}, which is not followed")

    def _put(self, key: TableId, state: CatalogTable) -> None:
        self.drop(key)
        if self._wants(*key):
            self._states[key] = state
            self._unsaved[_document_key(key)] = encode(to_document(state))

    def _lose(self, key: TableId, why: str) -> None:
        self.drop(key)
        if self._wants(*key):
            self._lost[key] = why
            log.info("catalog.history_lost", table=".".join(key), reason=why)

    def drop(self, key: TableId) -> None:
        """Forget a table."""
        self._lost.pop(key, None)
        if self._states.pop(key, None) is not None:
            self._unsaved[_document_key(key)] = None


def _is_known(column: Column, known: Column | None) -> bool:
    """Whether a column is the known one, however its default is spelled."""
    if known is None:
        return False
    same = replace(column, nullable=known.nullable, default=known.default, has_default=known.has_default)
    return same == known


def _document_key(key: TableId) -> str:
    return f"{CatalogDocument.PREFIX}{key[0]}.{key[1]}"
