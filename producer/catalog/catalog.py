"""Which columns a table has at a place in the log.

TABLE_MAP metadata (`binlog_row_metadata=FULL`) decides names, types, sizes, character sets, members,
nullability and the primary key. What it lacks (collation, FLOAT(M,D), default) is taken, per column, from the
followed state of the table (`tracking`), which is that of this place in the log. Where there is none, or where its column
is another one, information_schema tells it, if name and type agree (it tells of now, the log of then); DDL text that
was read since the start beats that for defaults. The unique key is information_schema's.

Where TABLE_MAPs do not name columns, the followed state does, and all that they do tell has
to fit it. Where there is none, or it does not fit, the server is asked, and its answer counts if no DDL on the table
lies between that place of the log and now. Else the reader stops: columns are never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from producer.catalog.character_sets import charset_name, charset_of_collation
from producer.catalog.column_types import default_text, is_exact, to_column
from producer.catalog.conversions import keeps_text, keeps_values, looks_the_same
from producer.catalog.dropped_columns import FormerColumns
from producer.catalog.effects import DdlChange, Effect, strongest
from producer.catalog.information_schema import (
    HIDDEN_HASH,
    TableFacts,
    hidden_column_refusal,
    read_table_facts,
    read_table_schema,
    wait_for_ddl,
)
from producer.catalog.online_ddl import is_kept_up, keeps_up, real_table
from producer.catalog.reduce import keeps_dropped_default
from producer.catalog.statements.clauses import AddColumn, AddKey, Copy, RenameColumn, TableCharset, Trigger
from producer.catalog.statements.column_definition import ColumnDefinition
from producer.catalog.table_map import (
    announced_column,
    disagreement,
    hidden_type,
    same_type,
    told_by_log,
    with_float_digits,
)
from producer.codec.types import BinlogLayout
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect import column_default
from schemas.errors import DecodeError, SourceError, UnsupportedTypeError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from producer.binlog.tablemap import TableMap, TableMetadata
    from producer.catalog.tracking import TrackedTables
    from producer.source.connection import Connection

log = structlog.get_logger(__name__)

_DDL_WAIT_S: Final = 5
_SHORT_WAIT_S: Final = 1
"""For a question that is asked again: the log of all tables stands still meanwhile."""
_HIDING: Final = (ColumnType.BINARY, ColumnType.VARBINARY)  # what types of MariaDB look like in the log
@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as one TABLE_MAP announces it: its columns, and how they lie in row images."""

    schema: TableSchema
    layout: BinlogLayout


@dataclass(slots=True)
class _Known:
    """What is remembered about a table, until a DDL touches it.

    `declared` holds column definitions from DDL text, by name; `charset` is that of columns that name none, "" where not
    known. `since_copy` is what happened to the table since it was made as a copy of another, None for others; `is_kept_up` says
    that a tool is known to fill it with the same rows. `originals` are the tables it was made LIKE, the nearest first: a copy
    that is gone has their defaults.
    """

    facts: TableFacts | None = None
    facts_read: bool = False
    latest: TableSchema | None = None
    versions: dict[bytes, TableVersion] = field(default_factory=dict)
    declared: dict[str, ColumnDefinition] = field(default_factory=dict)
    charset: str = ""
    since_copy: Effect | None = None
    is_kept_up: bool = False
    originals: tuple[tuple[str, str], ...] = ()

    def forget_server(self) -> None:
        """A DDL went by: what the server said before may be out of date."""
        self.facts, self.facts_read = None, False
        self.versions.clear()


class Catalog:
    """The table versions of one source's log. Owned by the log reader's thread."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection]],
        flavour: str = "mysql",
        tracked: TrackedTables | None = None,
        look: Callable[[str, str], TableFacts | str] | None = None,
    ) -> None:
        """`look` reads a table from the server for the place the log is at, or tells why that is not possible."""
        self._connect = connect
        self._flavour = flavour
        self._tracked = tracked
        self._former = FormerColumns() if tracked is None else tracked.former
        self._look = look
        self._tables: dict[tuple[str, str], _Known] = {}

    def version_of(self, table_map: TableMap) -> TableVersion:
        """The version a TABLE_MAP announces; the server is asked once per table and DDL.

        Raises `SourceError` for a log that does not name columns where they are not known otherwise, and for
        tables that can't be captured, `UnsupportedTypeError` for columns that can't.
        """
        known = self._known(table_map.database, table_map.table)
        version = known.versions.get(table_map.fingerprint)
        if version is None:
            version = self._reconcile(table_map, known)
            known.versions[table_map.fingerprint] = version
            self._former.show(version.schema)
            log.info("catalog.table_version", table=version.schema.full_name, columns=len(table_map.types))
        known.latest = version.schema
        return version

    def current(self, database: str, table: str) -> TableSchema | None:
        """The table as its rows were last seen in the log, else as the server tells it; None when it is gone."""
        known = self._known(database, table)
        if known.latest is not None:
            return known.latest
        state = None if self._tracked is None else self._tracked.state(database, table)
        if state is not None:
            return state.schema
        with self._connect() as connection:
            return read_table_schema(connection, database, table)

    def as_it_is_now(self, database: str, table: str) -> TableSchema | None:
        """The table as the server has it, wherever the log is read; None when it is gone. Raises as `read_table_schema`."""
        with self._connect() as connection:
            wait_for_ddl(connection, database, table, _SHORT_WAIT_S)
            return read_table_schema(connection, database, table)

    def apply(self, changes: Iterable[DdlChange]) -> tuple[DdlChange, ...]:
        """Take note of a DDL statement; the same changes, effects refined by the columns known so far."""
        changes = tuple(changes)
        leaving = {(change.database, change.table) for change in changes if change.kind == "rename"}
        return tuple(self._apply(change, leaving) for change in changes)

    def take_unsaved(self) -> dict[str, dict[str, Any] | None]:
        """State documents of followed tables that changed since the last call; None deletes one."""
        return {} if self._tracked is None else self._tracked.take_unsaved()

    def _known(self, database: str, table: str) -> _Known:
        return self._tables.setdefault((database, table), _Known())

    # ---- DDL

    def _apply(self, change: DdlChange, leaving: set[tuple[str, str]]) -> DdlChange:
        if self._tracked is not None:
            before = [] if change.kind == "other" else self._tracked.states(change.database, change.table)
            for state in before:
                self._former.show(state.schema)
            self._tracked.apply(change)
        refined = self._take(change, leaving)
        self._former.apply(change)
        for clause in change.clauses:
            if isinstance(clause, Trigger) and keeps_up(clause.name):
                self._note_trigger(clause)
        if change.kind == "create":
            self._note_shadow(change)
        return refined

    def _take(self, change: DdlChange, leaving: set[tuple[str, str]]) -> DdlChange:
        """Take note of a change, but for its names; with the effect it has."""
        if change.kind == "drop_database":
            self._tables = {key: known for key, known in self._tables.items() if key[0] != change.database}
            return change
        if change.kind == "other":
            return change
        key = (change.database, change.table)
        if change.kind == "drop":
            self._tables.pop(key, None)
            self._rename_original(key, None)
            return change
        if change.kind == "rename":
            return self._rename(change, leaving)
        if change.kind == "create" and not change.conditional:
            self._tables.pop(key, None)
        known = self._known(*key)
        refined = self._refine(change, known)
        if known.since_copy is not None and change.kind != "create":
            lossy: Effect = "snapshot" if _may_drop_rows(change) else "none"
            known.since_copy = strongest(known.since_copy, refined.effect, lossy)
        if change.kind == "create" and not change.conditional:
            self._copy(change, known)
        self._declare(change, known)
        known.charset = _named_charset(change) or known.charset
        known.forget_server()
        if change.kind == "alter" and (change.touches_columns or refined.effect != "none"):
            known.latest = None
        return refined

    def _rename(self, change: DdlChange, leaving: set[tuple[str, str]]) -> DdlChange:
        """The same change; of no more effect than what a tool did to its copy of the table it now replaces."""
        old, new = (change.database, change.table), (change.new_database, change.new_table)
        known = self._tables.pop(old, _Known())
        known.forget_server()
        known.latest = None
        self._tables[new] = known
        self._rename_original(old, new)
        is_swap = new in leaving and old[0] == new[0] and real_table(old[1]) == new[1]
        effect, known.since_copy = known.since_copy if known.is_kept_up else None, None
        return replace(change, effect=effect) if is_swap and effect is not None else change

    def _copy(self, change: DdlChange, known: _Known) -> None:
        """Take over what is known of the table that a new one is made LIKE."""
        origin = next((clause for clause in change.clauses if isinstance(clause, Copy)), None)
        if origin is None:
            return
        original = self._tables.get((origin.database, origin.table), _Known())
        known.originals = ((origin.database, origin.table), *original.originals)
        known.declared = {name: replace(definition) for name, definition in original.declared.items()}
        known.charset = original.charset

    def _rename_original(self, old: tuple[str, str], new: tuple[str, str] | None) -> None:
        """Copies follow a table that they were made LIKE to its new name, and lose one that is gone."""
        for known in self._tables.values():
            if old in known.originals:
                named = (new if name == old else name for name in known.originals)
                known.originals = tuple(name for name in named if name is not None)

    def _note_shadow(self, change: DdlChange) -> None:
        """A tool makes a copy of a table, to alter it, fill it with the same rows and swap it in."""
        real = real_table(change.table)
        if real is None:
            return
        original, known = self._tables.get((change.database, real)), self._known(change.database, change.table)
        if original is None or original.latest is None or not _is_copy(change, original.latest, self._flavour):
            return
        known.since_copy, known.is_kept_up = "none", is_kept_up(change.table)
        known.latest = replace(original.latest, name=change.table)
        known.declared = original.declared | known.declared
        known.charset = known.charset or original.charset
        self._former.copy((change.database, real), (change.database, change.table))

    def _note_trigger(self, trigger: Trigger) -> None:
        """A tool has a table's changes made in its copy, too."""
        for (database, table), known in self._tables.items():
            if database == trigger.database and real_table(table) == trigger.table:
                known.is_kept_up = True

    @staticmethod
    def _declare(change: DdlChange, known: _Known) -> None:
        """Take note of the definitions a statement gives; its clauses speak of the columns as they were before it."""
        declared = dict(known.declared)
        for given in change.defaults:
            declared[given.name.lower()] = _with_given_default(declared.get(given.name.lower()), given)
        kept = dict(declared)
        made: dict[str, ColumnDefinition] = {}
        for name in change.dropped:
            kept.pop(name.lower(), None)
        for rename in (clause for clause in change.clauses if isinstance(clause, RenameColumn)):
            renamed = kept.pop(rename.name.lower(), None)
            if renamed is not None:
                made[rename.new_name.lower()] = replace(renamed, name=rename.new_name)
        for changed in change.changed:
            is_renamed = changed.name.lower() != changed.definition.name.lower()
            if kept.pop(changed.name.lower(), None) is None and changed.conditional and is_renamed:
                continue  # there may be no such column, and another one of the new name
            made[changed.definition.name.lower()] = changed.definition
        for added in (clause for clause in change.clauses if isinstance(clause, AddColumn)):
            if not (change.conditional or added.conditional):
                made[added.definition.name.lower()] = added.definition
        known.declared = kept | made

    def _refine(self, change: DdlChange, known: _Known) -> DdlChange:
        effect = change.decided
        names = {added.name.lower() for added in change.added}
        if change.kind == "alter" and names & self._former.gone(change.database, change.table):
            effect = strongest(effect, "snapshot")  # the sink still has the former column's values
        if change.defaults and not self._are_known(change.defaults, known):
            # Older rows have the default the column was added with, which no table version has told.
            effect = strongest(effect, "snapshot")
        if change.changed or change.dropped or change.charset:
            charset = self._charset_for(change, known)
            harmless = known.latest is not None and self._keeps_values(change, known.latest, charset)
            effect = strongest(effect, "none" if harmless else "snapshot")
        return replace(change, effect=effect)

    @staticmethod
    def _are_known(definitions: Iterable[ColumnDefinition], known: _Known) -> bool:
        """Whether rows were seen that had these columns: a version with their first default is registered.

        A default that is the new one before it is given was not told by the log, but by a server that is ahead of it.
        """
        columns = {} if known.latest is None else {column.name.lower(): column for column in known.latest.columns}
        for definition in definitions:
            column = columns.get(definition.name.lower())
            if column is None:
                return False
            given = replace(_with_default_of(column, definition), default=default_text(definition, column))
            if definition.name.lower() not in known.declared and _same_default(given, column):
                return False
        return True

    def _charset_for(self, change: DdlChange, known: _Known) -> str:
        """The character set of columns that a statement defines anew and that name none: the table's; "" where not known."""
        state = None if self._tracked is None else self._tracked.state(change.database, change.table)
        return _named_charset(change) or (state.charset if state is not None else "") or known.charset

    def _keeps_values(self, change: DdlChange, schema: TableSchema, charset: str) -> bool:
        columns = {column.name.lower(): column for column in schema.columns}
        keys = {name.lower() for name in schema.record_key}
        if any(name.lower() in keys for name in change.dropped):
            return False
        if change.charset is not None and not all(
            keeps_text(column.charset, change.charset) for column in schema.columns if column.charset
        ):
            return False
        has_expressions = any(column.filled_by == "expression" for column in schema.columns)
        # Expressions may be of bytes. MariaDB's members keep their bytes, and rows that have one of them lose it.
        loses_members = self._flavour == "mariadb" and any(map(_has_wide_members, schema.columns))
        if change.charset is not None and (has_expressions or loses_members):
            return False
        for changed in change.changed:
            old = columns.get(changed.name.lower())
            if old is None:
                return False
            is_json = changed.definition.type_name == "JSON"
            new = to_column(changed.definition, "utf8mb4" if is_json else charset or None, self._flavour)
            if old.name in schema.primary_key and new is not None:
                new = replace(new, nullable=False)
            if new is None or not keeps_values(old, new) or _is_numbered(old, new):
                return False
            if has_expressions and not looks_the_same(old, new):
                return False
        return True

    # ---- TABLE_MAP

    def _reconcile(self, table_map: TableMap, known: _Known) -> TableVersion:
        metadata = table_map.metadata
        if metadata is None or not metadata.is_full:
            return TableVersion(self._known_schema(table_map), BinlogLayout(table_map.types, table_map.metas))
        version = self._told_version(table_map, metadata, known)
        if self._tracked is not None:
            self._tracked.observe(version.schema)
        return version

    def _known_schema(self, table_map: TableMap) -> TableSchema:
        """The table as it was followed, or else as the server has it: where that is certain."""
        database, table = table_map.database, table_map.table
        if self._tracked is None or self._look is None:
            raise _nameless(table_map, "tables are not followed")
        state = self._tracked.state(database, table)
        why = self._tracked.why(database, table) if state is None else disagreement(table_map, state.schema)
        if state is not None and not why:
            return state.schema
        facts = self._look(database, table)
        if isinstance(facts, str):
            raise _nameless(table_map, f"{why}; and it cannot be read from the server, for {facts}")
        if facts.refusal:
            raise SourceError(facts.refusal)
        for name, kind in facts.unsupported.items():
            raise _unsupported(table_map, name, kind)
        differs = disagreement(table_map, facts.schema)
        if differs:
            raise _nameless(table_map, f"{why}; and as the server has it now it does not fit: {differs}")
        log.info("catalog.table_read", table=facts.schema.full_name, reason=why)
        self._tracked.adopt(facts.state)
        return facts.schema

    def _told_version(self, table_map: TableMap, metadata: TableMetadata, known: _Known) -> TableVersion:
        facts = self._facts(table_map, known)
        if facts is not None and facts.refusal:
            raise SourceError(facts.refusal)
        state = None if self._tracked is None else self._tracked.state(table_map.database, table_map.table)
        columns = []
        for index, name in enumerate(metadata.names):
            server = None if facts is None else _named(name, facts.schema)
            try:
                told = told_by_log(table_map, metadata, index, server)
            except DecodeError as error:
                raise _unreadable_members(table_map, name, error) from error
            column = announced_column(table_map, index, told)
            if isinstance(column, str):
                raise _unsupported(table_map, name, column)
            if facts is not None and name in facts.unsupported and column.type in _HIDING:
                raise _unsupported(table_map, name, facts.unsupported[name])
            followed = None if state is None else _named(name, state.schema)
            declared = known.declared.get(name.lower())
            column = hidden_type(column, declared, followed or server)
            is_certain = state is not None and name not in state.uncertain
            columns.append(self._completed(column, server, followed, declared, is_certain=is_certain))
        key = tuple(metadata.names[column] for column, _ in metadata.primary_key)
        schema = TableSchema(table_map.database, table_map.table, tuple(columns), *_keys(key, facts))
        _refuse_hidden_columns(schema, facts)
        return TableVersion(schema, BinlogLayout(table_map.types, table_map.metas))

    def _facts(self, table_map: TableMap, known: _Known) -> TableFacts | None:
        if not known.facts_read:
            with self._connect() as connection:
                wait_for_ddl(connection, table_map.database, table_map.table, _DDL_WAIT_S)
                for name in ((table_map.database, table_map.table), *known.originals):
                    known.facts = read_table_facts(connection, *name)
                    if known.facts is not None:
                        break
            known.facts_read = True
            known.charset = known.charset if known.facts is None else known.facts.charset
        return known.facts

    def _completed(
        self,
        column: Column,
        server: Column | None,
        followed: Column | None,
        declared: ColumnDefinition | None,
        *,
        is_certain: bool,
    ) -> Column:
        """The column with what the log does not tell of it.

        The followed state is that of this place in the log; the server is asked for a default of which the state is not
        certain, and for all the rest where the state does not have the column. DDL text beats the server for defaults.
        """
        is_same = server is not None and same_type(column, server)
        if followed is not None and same_type(column, followed):
            if server is not None and is_same and (not is_certain or _shows_same_default(server, followed)):
                followed = _with_default_of(followed, server)
            column = replace(followed, nullable=column.nullable)
            return column if is_certain or declared is None else self._with_declared_default(column, declared)
        if server is not None and is_same:
            column = replace(server, nullable=column.nullable)
        elif server is not None and server.type is column.type and server.unsigned == column.unsigned:
            untold = replace(
                with_float_digits(column, server),
                comment=server.comment,
                display=server.display,
                zerofill=server.zerofill,
                filled_by=server.filled_by,
            )
            column = _with_default_of(untold, server)
        return column if declared is None else self._with_declared_default(column, declared)

    def _with_declared_default(self, column: Column, declared: ColumnDefinition) -> Column:
        """The default a DDL in the log gave, unless the server tells the same value, or tells it better.

        TIMESTAMPs are left to the server: a literal is in the time zone of the session that ran the DDL, and
        some get a default without saying so.
        """
        if declared.generated or declared.auto_increment or column.type is ColumnType.TIMESTAMP:
            return column
        is_untold = declared.compressed and not declared.has_default
        if is_untold or (declared.default_dropped and keeps_dropped_default(column, self._flavour)):
            return column
        told = to_column(declared, column.charset, self._flavour) if declared.type_name else None
        if told is None:
            told = replace(_with_default_of(column, declared), default=default_text(declared, column))
        typed = _with_default_of(column, told)
        certain = is_exact(declared, typed, self._flavour) if typed.has_default else True
        if _same_default(typed, column) or (column.has_default and not certain):
            return column
        return typed


def _named_charset(change: DdlChange) -> str:
    """The character set a statement gives its table, "" for none."""
    if change.charset is not None:
        return change.charset
    told = [clause for clause in change.clauses if isinstance(clause, TableCharset)]
    if not told:
        return ""
    return charset_name(told[-1].charset or "") or charset_of_collation(told[-1].collation or "")


def _is_numbered(old: Column, new: Column) -> bool:
    """Whether a row that has 0 there is given a number: the column becomes AUTO_INCREMENT."""
    return new.filled_by == "counter" and old.filled_by != "counter"


def _has_wide_members(column: Column) -> bool:
    return not all(member.isascii() for member in column.members)


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


def _nameless(table_map: TableMap, why: str) -> SourceError:
    return SourceError(
        f"the log does not name the columns of {table_map.database}.{table_map.table}, and which they were there is "
        f"not certain: {why}. Run SET GLOBAL binlog_row_metadata=FULL where the server has it (MySQL 8.0.1, "
        f"MariaDB 10.5; and put it into its configuration). What is in the log already stays unreadable: start "
        f"under another name, so that the tables are read again"
    )


def _unreadable_members(table_map: TableMap, name: str, error: DecodeError) -> SourceError:
    table = f"{table_map.database}.{table_map.table}"
    return SourceError(
        f"table {table}: {error.reason}. MariaDB's CONVERT TO CHARACTER SET leaves the bytes of ENUM and SET members as they "
        f"were, and can then not show them itself. Make the column anew: ALTER TABLE {table} ADD COLUMN made_anew with the "
        f"members spelled out in the same order; give every row made_anew = {name} + 0; drop {name}, rename made_anew to it, "
        f"and start again: what is in the log is then read with these members. Or leave the table out of source.tables"
    )


def _unsupported(table_map: TableMap, name: str, kind: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"column {table_map.database}.{table_map.table}.{name} ({kind}) can't be captured yet; leave the "
        f"table out of source.tables"
    )


def _named(name: str, schema: TableSchema) -> Column | None:
    return next((column for column in schema.columns if column.name == name), None)


def _with_given_default(declared: ColumnDefinition | None, given: ColumnDefinition) -> ColumnDefinition:
    """A definition with the default of another: SET DEFAULT and DROP DEFAULT."""
    return replace(
        given if declared is None else declared,
        default=given.default,
        has_default=given.has_default,
        default_is_expression=given.default_is_expression,
        default_is_string=given.default_is_string,
        default_has_escapes=given.default_has_escapes,
        default_dropped=not given.has_default,
    )


def _with_default_of(column: Column, other: Column | ColumnDefinition) -> Column:
    return replace(
        column,
        default=other.default,
        has_default=other.has_default,
        default_is_expression=other.default_is_expression,
    )


def _same_default(one: Column, other: Column) -> bool:
    return (one.has_default, one.default_is_expression) == (
        other.has_default,
        other.default_is_expression,
    ) and column_default(one) == column_default(other)


def _shows_same_default(one: Column, other: Column) -> bool:
    """Whether two defaults are the same in records; one of NULL is none there, said or not."""
    has = [column.has_default and (column.default is not None or column.default_is_expression) for column in (one, other)]
    return _same_default(one, other) or not any(has)


def _refuse_hidden_columns(schema: TableSchema, facts: TableFacts | None) -> None:
    told = {column.name for column in facts.schema.columns} if facts is not None else set()
    for column in schema.columns:
        hashed = column.name.startswith(HIDDEN_HASH)
        expression = len(column.name) == 32 and not column.name.strip("0123456789abcdef")
        if column.name not in told and (hashed or expression):
            raise SourceError(hidden_column_refusal(schema.full_name, f"an index made {column.name}"))


def _keys(told: tuple[str, ...], facts: TableFacts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(primary key, unique key) of a version whose TABLE_MAP tells of the key `told`.

    Where there is no primary key, the log tells of the first unique index of required columns instead.
    """
    if facts is not None and not facts.schema.primary_key and told == facts.schema.unique_key:
        return (), told
    return told, ()
