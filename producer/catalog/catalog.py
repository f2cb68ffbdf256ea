"""Which columns a table has at a position in the log.

TABLE_MAP metadata (`binlog_row_metadata=FULL`) decides names, types, sizes, character sets, members,
nullability and the primary key. What it lacks (collation, FLOAT(M,D), default) is taken, per column, from the
followed state of the table (`tracking`), which is that of this position in the log. Where there is none, or where its column
is another one, information_schema has it, if name and type agree (it describes now, the log another time); DDL text that
was read since the start goes before it for defaults. The unique key is information_schema's.

Where TABLE_MAPs do not name columns, the followed state does, and all that they contain has
to fit it. Where there is none, or it does not fit, the server is asked, and its answer counts if no DDL on the table
is between that position of the log and now. Else the reader stops: columns are never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.definitions.character_sets import charset_name, charset_of_collation
from mysqlio.definitions.column_definition import ColumnDefinition
from mysqlio.definitions.column_types import default_text, to_column
from mysqlio.information_schema import TableFacts, read_table_facts, read_table_schema, wait_for_ddl
from producer.catalog.conversions import keeps_values, keeps_values_of_table
from producer.catalog.declared_columns import completed_column, declared_after, same_default, with_default_of
from producer.catalog.effects import DdlChange, Effect, strongest
from producer.catalog.model import state_of
from producer.catalog.online_ddl import is_kept_up, keeps_up, real_table
from producer.catalog.statements.clauses import AddKey, Copy, DatabaseCharset, TableCharset, Trigger
from producer.catalog.table_map import (
    announced_by_log,
    announced_column,
    disagreement,
    hidden_type,
    nameless_columns,
    refuse_hidden_columns,
    unreadable_members,
    unsupported_column,
)
from rowcodec.types import BinlogLayout
from schemas.columns import Column, TableSchema
from schemas.errors import DecodeError, SourceError
from schemas.identity import TableId
from schemas.types.column_facts import SHORT_BINARIES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mysqlio.connection import Connection
    from producer.binlog.tablemap import TableMap, TableMetadata
    from producer.catalog.model import CatalogTable
    from producer.catalog.tracking import TrackedTables

log = structlog.get_logger(__name__)

_SHORT_WAIT_S: Final = 1
"""For a question that is asked again: the log of all tables waits meanwhile."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as one TABLE_MAP announces it: its columns, and how they lie in row images."""

    schema: TableSchema
    layout: BinlogLayout


@dataclass(slots=True)
class _Known:
    """What is remembered about a table, until a DDL touches it.

    `declared` holds column definitions from DDL text, by name; `charset` is that of columns that name none, "" where not
    known. `since_copy` and `is_kept_up` are as in `CatalogTable`. `originals` are the tables it was made LIKE, the nearest first:
    a copy that is gone has their defaults.
    """

    facts: TableFacts | None = None
    facts_read: bool = False
    latest: TableSchema | None = None
    versions: dict[bytes, TableVersion] = field(default_factory=dict)
    declared: dict[str, ColumnDefinition] = field(default_factory=dict)
    charset: str = ""
    since_copy: Effect | None = None
    is_kept_up: bool = False
    originals: tuple[TableId, ...] = ()

    def forget_server(self) -> None:
        """Forget the server's answers: after a DDL they may be out of date."""
        self.facts, self.facts_read = None, False
        self.versions.clear()

    def note_text(self, change: DdlChange) -> None:
        """Note the definitions in the text of a change, and forget the server's answers."""
        self.declared = {} if change.is_unclear else declared_after(change, self.declared)
        self.charset = _named_charset(change) or self.charset
        self.forget_server()

    def forget_text(self) -> None:
        """Forget all that DDL text and rows before it said: a text is not understood."""
        self.forget_server()
        self.latest, self.declared = None, {}


class Catalog:
    """The table versions of one source's log. Owned by the log reader's thread."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection]],
        flavour: str,
        tracked: TrackedTables,
        look: Callable[[str, str], TableFacts | str],
    ) -> None:
        """`look` reads a table from the server for the current position in the log, or returns why that is not possible."""
        self._connect = connect
        self._flavour = flavour
        self._tracked = tracked
        self._dropped = tracked.dropped_columns
        self._look = look
        self._tables: dict[TableId, _Known] = {}

    def version_of(self, table_map: TableMap) -> TableVersion:
        """Return the version that a TABLE_MAP announces; the server is asked once per table and DDL.

        Raises `SourceError` for a log that does not name columns where they are not known otherwise, and for
        tables that can't be captured, `UnsupportedTypeError` for columns that can't.
        """
        known = self._known(table_map.database, table_map.table)
        version = known.versions.get(table_map.fingerprint)
        if version is None:
            version = self._reconcile(table_map, known)
            known.versions[table_map.fingerprint] = version
            self._dropped.show(version.schema)
            self._tracked.show(table_map.database, table_map.table)
            log.info("catalog.table_version", table=version.schema.full_name, columns=len(table_map.types))
        known.latest = version.schema
        return version

    def current(self, database: str, table: str) -> TableSchema | None:
        """Return the table as its rows were last seen in the log, else as the server has it; None when it is gone."""
        known = self._known(database, table)
        if known.latest is not None:
            return known.latest
        state = self._tracked.state(database, table)
        if state is not None:
            return state.schema
        with self._connect() as connection:
            return read_table_schema(connection, database, table)

    def as_it_is_now(self, database: str, table: str) -> TableSchema | None:
        """Return the table as the server has it, wherever the log is read; None when it is gone. Raises as `read_table_schema`."""
        with self._connect() as connection:
            wait_for_ddl(connection, database, table, _SHORT_WAIT_S)
            return read_table_schema(connection, database, table)

    def apply(self, changes: Iterable[DdlChange]) -> tuple[DdlChange, ...]:
        """Note a DDL statement; return its changes, with effects refined by the columns known so far."""
        changes = tuple(changes)
        leaving = {change.name for change in changes if change.kind == "rename"}
        return tuple(self._apply(change, leaving) for change in changes)

    def _known(self, database: str, table: str) -> _Known:
        known = self._tables.get((database, table))
        if known is None:
            known = self._tables[database, table] = _restored(self._tracked.state(database, table))
        return known

    # ---- DDL

    def _apply(self, change: DdlChange, leaving: set[TableId]) -> DdlChange:
        """Carry out a change on all that is kept of the table; return it with the effect that it has on the table `before`."""
        before, tracked, dropped = self._tracked.state(*change.name), self._tracked, self._dropped
        if change.kind == "other":
            self._note_other(change)
            return change
        for state in tracked.states(*change.name):
            dropped.show(state.schema)
        match change.kind:
            case "drop_database":
                tracked.drop_database(change.database)
                dropped.drop_database(change.database)
                self._tables = {key: known for key, known in self._tables.items() if key[0] != change.database}
            case "drop":
                tracked.drop(change.name)
                dropped.drop(change.name)
                self._tables.pop(change.name, None)
                self._rename_original(change.name, None)
            case "rename":
                tracked.rename(change.name, change.new_name)
                dropped.rename(change.name, change.new_name)
                return self._rename(change, leaving, before)
            case "create":
                tracked.create(change)
                refined = self._create(change, before)
                dropped.create(change)
                self._note_shadow(change)
                return refined
            case "alter":
                tracked.alter(change)
                refined = self._alter(change, before)
                dropped.alter(change)
                return refined
            case "truncate":
                return self._change_rows(change, before)
        return change

    def _note_other(self, change: DdlChange) -> None:
        for clause in change.clauses:
            if isinstance(clause, DatabaseCharset):
                self._tracked.set_charset(clause)
            elif isinstance(clause, Trigger) and keeps_up(clause.name):
                self._note_trigger(clause)

    def _create(self, change: DdlChange, before: CatalogTable | None) -> DdlChange:
        if not change.conditional:
            self._tables.pop(change.name, None)
        known = self._known(*change.name)
        refined = self._refine(change, known, before)
        if not change.conditional:
            self._copy(change, known)
        known.note_text(change)
        return refined

    def _alter(self, change: DdlChange, before: CatalogTable | None) -> DdlChange:
        if change.is_suspected and change.name not in self._tables:
            for (database, _), known in self._tables.items():
                if not change.table and database == change.database:
                    known.forget_text()
            return change
        refined = self._change_rows(change, before)
        if change.touches_columns or refined.effect != "none":
            self._tables[change.name].latest = None
        return refined

    def _change_rows(self, change: DdlChange, before: CatalogTable | None) -> DdlChange:
        """Note a change of a table that stays; return it with the effect it has."""
        known = self._known(*change.name)
        refined = self._refine(change, known, before)
        if known.since_copy is not None:
            lossy: Effect = "snapshot" if _may_drop_rows(change) else "none"
            known.since_copy = strongest(known.since_copy, refined.effect, lossy)
            self._save_copy(change.name, known)
        known.note_text(change)
        return refined

    def _rename(self, change: DdlChange, leaving: set[TableId], before: CatalogTable | None) -> DdlChange:
        """Return the same change; of no more effect than the changes that a tool made to its copy of the table it now replaces."""
        old, new = change.name, change.new_name
        known = self._tables.pop(old, None) or _restored(before)
        known.forget_server()
        known.latest = None
        self._tables[new] = known
        self._rename_original(old, new)
        is_swap = new in leaving and old[0] == new[0] and real_table(old[1]) == new[1]
        effect, known.since_copy = known.since_copy if known.is_kept_up else None, None
        return replace(change, effect=effect) if is_swap and effect is not None else change

    def _copy(self, change: DdlChange, known: _Known) -> None:
        """Copy the definitions of the table that a new one is made LIKE."""
        origin = next((clause for clause in change.clauses if isinstance(clause, Copy)), None)
        if origin is None:
            return
        original = self._tables.get((origin.database, origin.table), _Known())
        known.originals = ((origin.database, origin.table), *original.originals)
        known.declared = {name: replace(definition) for name, definition in original.declared.items()}
        known.charset = original.charset

    def _rename_original(self, old: TableId, new: TableId | None) -> None:
        """Have copies follow a table that they were made LIKE to its new name, and lose one that is gone."""
        for known in self._tables.values():
            if old in known.originals:
                named = (new if name == old else name for name in known.originals)
                known.originals = tuple(name for name in named if name is not None)

    def _note_shadow(self, change: DdlChange) -> None:
        """Note that a tool makes a copy of a table, to alter it, fill it with the same rows and swap it in."""
        real = real_table(change.table)
        if real is None:
            return
        origin = (change.database, real)
        original, known = self._tables.get(origin, _Known()), self._known(*change.name)
        schema = _schema(original, self._tracked.state(*origin))
        if schema is None or not _is_copy(change, schema, self._flavour):
            return
        known.since_copy, known.is_kept_up = "none", is_kept_up(change.table)
        self._save_copy(change.name, known)
        known.latest = replace(schema, name=change.table)
        known.declared = original.declared | known.declared
        known.charset = known.charset or original.charset
        self._dropped.copy(origin, change.name)

    def _note_trigger(self, trigger: Trigger) -> None:
        """Note that a tool has a table's changes made in its copy, too."""
        followed = self._tracked.states(trigger.database, "")
        for name in {*self._tables, *((state.schema.database, state.schema.name) for state in followed)}:
            if name[0] == trigger.database and real_table(name[1]) == trigger.table:
                known = self._known(*name)
                known.is_kept_up = True
                self._save_copy(name, known)

    def _save_copy(self, name: TableId, known: _Known) -> None:
        self._tracked.note_copy(*name, known.since_copy, is_kept_up=known.is_kept_up)

    def _refine(self, change: DdlChange, known: _Known, before: CatalogTable | None) -> DdlChange:
        """Return the change with the effect it has on the table `before` it, whether or not this process has seen a row of it."""
        effect, schema = change.decided, _schema(known, before)
        names = {added.name.lower() for added in change.added}
        if change.kind == "alter" and names & self._dropped.gone(*change.name):
            effect = strongest(effect, "snapshot")  # the sink still has the former column's values
        if change.defaults and not self._are_known(change.defaults, known, before):
            # Older rows have the default the column was added with, which no table version has shown.
            effect = strongest(effect, "snapshot")
        if change.changed or change.dropped or change.charset:
            charset = self._charset_for(change, known)
            harmless = schema is not None and keeps_values_of_table(change, schema, charset, self._flavour)
            effect = strongest(effect, "none" if harmless else "snapshot")
        return replace(change, effect=effect)

    @staticmethod
    def _are_known(definitions: Iterable[ColumnDefinition], known: _Known, before: CatalogTable | None) -> bool:
        """Whether rows were seen that had these columns: a version with their first default is registered.

        A default that is the new one before it is given was not in the log: it comes from a server that is ahead of it.
        """
        if known.latest is None and before is not None:
            certain = {column.name.lower() for column in before.schema.columns if column.name not in before.uncertain}
            return all(definition.name.lower() in certain - before.unshown for definition in definitions)
        columns = {} if known.latest is None else {column.name.lower(): column for column in known.latest.columns}
        for definition in definitions:
            column = columns.get(definition.name.lower())
            if column is None:
                return False
            given = replace(with_default_of(column, definition), default=default_text(definition, column))
            if definition.name.lower() not in known.declared and same_default(given, column):
                return False
        return True

    def _charset_for(self, change: DdlChange, known: _Known) -> str:
        """Return the character set of redefined columns that name none: the table's; "" where not known."""
        state = self._tracked.state(*change.name)
        return _named_charset(change) or (state.charset if state is not None else "") or known.charset

    # ---- TABLE_MAP

    def _reconcile(self, table_map: TableMap, known: _Known) -> TableVersion:
        metadata = table_map.metadata
        if metadata is None or not metadata.is_full:
            return TableVersion(self._known_schema(table_map), BinlogLayout(table_map.types, table_map.metas))
        version = self._announced_version(table_map, metadata, known)
        self._tracked.observe(version.schema, None if known.facts is None else state_of(known.facts))
        return version

    def _known_schema(self, table_map: TableMap) -> TableSchema:
        """Return the table as it was followed, or else as the server has it: where that is certain."""
        database, table = table_map.database, table_map.table
        state = self._tracked.state(database, table)
        why = self._tracked.why(database, table) if state is None else disagreement(table_map, state.schema)
        if state is not None and not why:
            return state.schema
        facts = self._look(database, table)
        if isinstance(facts, str):
            raise nameless_columns(table_map, f"{why}; and it cannot be read from the server, for {facts}")
        if facts.refusal:
            raise SourceError(facts.refusal)
        for name, kind in facts.unsupported.items():
            raise unsupported_column(table_map, name, kind)
        differs = disagreement(table_map, facts.schema)
        if differs:
            raise nameless_columns(table_map, f"{why}; and as the server has it now it does not fit: {differs}")
        log.info("catalog.table_read", table=facts.schema.full_name, reason=why)
        self._tracked.adopt(state_of(facts))
        return facts.schema

    def _announced_version(self, table_map: TableMap, metadata: TableMetadata, known: _Known) -> TableVersion:
        facts = self._facts(table_map, known)
        if facts is not None and facts.refusal:
            raise SourceError(facts.refusal)
        state = self._tracked.state(table_map.database, table_map.table)
        columns = []
        for index, name in enumerate(metadata.names):
            server = None if facts is None else _named(name, facts.schema)
            try:
                facts_of_log = announced_by_log(table_map, metadata, index, server)
            except DecodeError as error:
                raise unreadable_members(table_map, name, error) from error
            column = announced_column(table_map, index, facts_of_log)
            if isinstance(column, str):
                raise unsupported_column(table_map, name, column)
            if facts is not None and name in facts.unsupported and column.type in SHORT_BINARIES:
                raise unsupported_column(table_map, name, facts.unsupported[name])
            followed = None if state is None else _named(name, state.schema)
            declared = known.declared.get(name.lower())
            column = hidden_type(column, declared, followed or server)
            is_certain = state is not None and name not in state.uncertain
            columns.append(completed_column(
                    column, server, followed, declared, is_certain=is_certain, flavour=self._flavour
                ))
        key = tuple(metadata.names[column] for column, _ in metadata.primary_key)
        schema = TableSchema(table_map.database, table_map.table, tuple(columns), *_keys(key, facts))
        refuse_hidden_columns(schema, facts)
        return TableVersion(schema, BinlogLayout(table_map.types, table_map.metas))

    def _facts(self, table_map: TableMap, known: _Known) -> TableFacts | None:
        if not known.facts_read:
            with self._connect() as connection:
                wait_for_ddl(connection, table_map.database, table_map.table)
                for name in ((table_map.database, table_map.table), *known.originals):
                    known.facts = read_table_facts(connection, *name)
                    if known.facts is not None:
                        break
            known.facts_read = True
            known.charset = known.charset if known.facts is None else known.facts.charset
        return known.facts


def _restored(state: CatalogTable | None) -> _Known:
    """Return the followed part of a table of which this process has seen nothing yet."""
    return _Known() if state is None else _Known(since_copy=state.since_copy, is_kept_up=state.is_kept_up)


def _schema(known: _Known, state: CatalogTable | None) -> TableSchema | None:
    """Return a table as its rows were last seen, or as it was followed."""
    return known.latest if known.latest is not None or state is None else state.schema


def _named_charset(change: DdlChange) -> str:
    """Return the character set a statement gives its table, "" for none."""
    if change.charset is not None:
        return change.charset
    options = [clause for clause in change.clauses if isinstance(clause, TableCharset)]
    if not options:
        return ""
    return charset_name(options[-1].charset or "") or charset_of_collation(options[-1].collation or "")


def _may_drop_rows(change: DdlChange) -> bool:
    """Whether copying rows into the table may lose some: a new unique key lets INSERT IGNORE pass over duplicates."""
    return any(isinstance(clause, AddKey) and clause.kind != "other" for clause in change.clauses)


def _is_copy(change: DdlChange, original: TableSchema, flavour: str) -> bool:
    """Whether a CREATE TABLE makes the same columns: LIKE the table, or spelled out."""
    for clause in change.clauses:
        if isinstance(clause, Copy):
            return (clause.database, clause.table) == (original.database, original.name)
    charset = next((c.charset for c in change.clauses if isinstance(c, TableCharset)), None)
    columns = [to_column(definition, charset and charset_name(charset), flavour) for definition in change.added]
    return len(columns) == len(original.columns) and all(
        made is not None and made.name == column.name and keeps_values(column, replace(made, nullable=True))
        and keeps_values(made, replace(column, nullable=True))
        for made, column in zip(columns, original.columns, strict=True)
    )


def _named(name: str, schema: TableSchema) -> Column | None:
    return next((column for column in schema.columns if column.name == name), None)


def _keys(announced: tuple[str, ...], facts: TableFacts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(primary key, unique key) of a version whose TABLE_MAP has the key `announced`.

    Where there is no primary key, the log has the first unique index of required columns instead.
    """
    if facts is not None and not facts.schema.primary_key and announced == facts.schema.unique_key:
        return (), announced
    return announced, ()
