"""Which columns a table has at a place in the log.

TABLE_MAP metadata (`binlog_row_metadata=FULL`) decides names, types, sizes, character sets, members,
nullability and the primary key. What it lacks is taken, per column, from information_schema where name and
type agree (it tells of now, the log of then): collation, FLOAT(M,D), default, the unique key. DDL text met in
the log since the start beats it for defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog.charsets import charset_of
from producer.catalog.charsets import BINARY, BYTES_PER_CHARACTER, SUPPORTED
from producer.catalog.conversions import keeps_text, keeps_values
from producer.catalog.ddl import DdlChange, strongest
from producer.catalog.definitions import (
    FLOAT_TYPES,
    FRACTION_TYPES,
    LENGTH_TYPES,
    MEMBER_TYPES,
    TEXT_TYPES,
    ColumnDefinition,
    is_exact,
    to_column,
)
from producer.catalog.information_schema import (
    HIDDEN_HASH,
    TableFacts,
    hidden_column_refusal,
    read_table_facts,
    read_table_schema,
    wait_for_ddl,
)
from producer.codec.types import BinlogLayout
from schemas.columns import ADDRESS_BYTES, SPATIAL_TYPES, Column, ColumnType, TableSchema
from schemas.connect import column_default
from schemas.errors import SourceError, UnsupportedTypeError

if TYPE_CHECKING:
    from producer.binlog.tablemap import TableMap, TableMetadata
    from producer.source.connection import Connection

log = structlog.get_logger(__name__)

_DDL_WAIT_S: Final = 5
_DECIMAL: Final = 246
_STRING: Final = 254
_VARCHAR: Final = 15
_BLOB: Final = 252
_BIT: Final = 16
_COMPRESSED: Final = {140: _BLOB, 141: _VARCHAR}  # MariaDB's; a VARCHAR is one byte longer, for its head

_COMPRESSED_VARCHAR: Final = 141

_PLAIN: Final = {
    1: ColumnType.TINYINT,
    2: ColumnType.SMALLINT,
    3: ColumnType.INT,
    4: ColumnType.FLOAT,
    5: ColumnType.DOUBLE,
    8: ColumnType.BIGINT,
    9: ColumnType.MEDIUMINT,
    10: ColumnType.DATE,
    13: ColumnType.YEAR,
    17: ColumnType.TIMESTAMP,
    18: ColumnType.DATETIME,
    19: ColumnType.TIME,
    245: ColumnType.JSON,
    _DECIMAL: ColumnType.DECIMAL,
    247: ColumnType.ENUM,
    248: ColumnType.SET,
    _BIT: ColumnType.BIT,
    242: ColumnType.VECTOR,
}
_GEOMETRY: Final = 255
_HIDING: Final = (ColumnType.BINARY, ColumnType.VARBINARY)  # what types of MariaDB look like in the log
_TEXTS: Final = (ColumnType.TINYTEXT, ColumnType.TEXT, ColumnType.MEDIUMTEXT, ColumnType.LONGTEXT)
_BLOBS: Final = (ColumnType.TINYBLOB, ColumnType.BLOB, ColumnType.MEDIUMBLOB, ColumnType.LONGBLOB)
_UNSUPPORTED_CODES: Final = {
    0: "DECIMAL as MySQL 4 stored it",
    7: "TIMESTAMP as servers before 5.6 stored it",
    11: "TIME as servers before 5.6 stored it",
    12: "DATETIME as servers before 5.6 stored it",
}


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as one TABLE_MAP announces it: its columns, and how they lie in row images."""

    schema: TableSchema
    layout: BinlogLayout


@dataclass(slots=True)
class _Known:
    """What is remembered about a table, until a DDL touches it.

    `declared` holds column definitions from DDL text, by name; `gone` names dropped or given up since the
    start.
    """

    facts: TableFacts | None = None
    facts_read: bool = False
    latest: TableSchema | None = None
    versions: dict[bytes, TableVersion] = field(default_factory=dict)
    declared: dict[str, ColumnDefinition] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def forget_server(self) -> None:
        """A DDL went by: what the server said before may be out of date."""
        self.facts, self.facts_read = None, False
        self.versions.clear()


class Catalog:
    """The table versions of one source's log. Owned by the log reader's thread."""

    def __init__(self, connect: Callable[[], Connection], flavour: str = "mysql") -> None:
        self._connect = connect
        self._flavour = flavour
        self._tables: dict[tuple[str, str], _Known] = {}

    def version_of(self, table_map: TableMap) -> TableVersion:
        """The version a TABLE_MAP announces; the server is asked once per table and DDL.

        Raises `SourceError` for metadata that is not FULL and for tables that can't be captured,
        `UnsupportedTypeError` for columns that can't.
        """
        known = self._known(table_map.database, table_map.table)
        version = known.versions.get(table_map.fingerprint)
        if version is None:
            version = self._reconcile(table_map, known)
            known.versions[table_map.fingerprint] = version
            log.info("catalog.table_version", table=version.schema.full_name, columns=len(table_map.types))
        known.latest = version.schema
        return version

    def current(self, database: str, table: str) -> TableSchema | None:
        """The table as its rows were last seen in the log, else as the server tells it; None when it is gone."""
        known = self._known(database, table)
        if known.latest is not None:
            return known.latest
        connection = self._connect()
        try:
            return read_table_schema(connection, database, table)
        finally:
            connection.close()

    def apply(self, changes: Iterable[DdlChange]) -> tuple[DdlChange, ...]:
        """Take note of a DDL statement; the same changes, effects refined by the columns known so far."""
        return tuple(self._apply(change) for change in changes)

    def _known(self, database: str, table: str) -> _Known:
        return self._tables.setdefault((database, table), _Known())

    # ---- DDL

    def _apply(self, change: DdlChange) -> DdlChange:
        if change.kind == "drop_database":
            self._tables = {key: known for key, known in self._tables.items() if key[0] != change.database}
            return change
        if change.kind == "other":
            return change
        key = (change.database, change.table)
        if change.kind == "drop":
            self._tables.pop(key, None)
            return change
        if change.kind == "rename":
            self._rename(key, (change.new_database, change.new_table))
            return change
        if change.kind == "create" and not change.conditional:
            self._tables.pop(key, None)
        known = self._known(*key)
        refined = self._refine(change, known)
        self._declare(change, known)
        known.forget_server()
        if change.kind == "alter" and (change.touches_columns or refined.effect != "none"):
            known.latest = None
        return refined

    def _rename(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        known = self._tables.pop(old, _Known())
        known.forget_server()
        known.latest = None
        self._tables[new] = known

    def _declare(self, change: DdlChange, known: _Known) -> None:
        for name in change.dropped:
            known.declared.pop(name.lower(), None)
            known.gone.add(name.lower())
        for added in change.added:
            known.gone.discard(added.name.lower())
            if not (change.conditional or added.definition.conditional):
                known.declared[added.name.lower()] = added.definition
        for changed in change.changed:
            known.declared.pop(changed.old_name.lower(), None)
            if changed.old_name.lower() != changed.definition.name.lower():
                known.gone.add(changed.old_name.lower())
            known.gone.discard(changed.definition.name.lower())
            known.declared[changed.definition.name.lower()] = changed.definition
        for definition in change.defaults:
            declared = known.declared.setdefault(definition.name.lower(), definition)
            declared.default, declared.has_default = definition.default, definition.has_default
            declared.default_is_expression = definition.default_is_expression
            declared.default_is_string = definition.default_is_string

    def _refine(self, change: DdlChange, known: _Known) -> DdlChange:
        effect = change.decided
        if {added.name.lower() for added in change.added} & known.gone:
            effect = strongest(effect, "snapshot")  # the sink still has the dropped column's values
        if change.defaults and not self._are_known(change.defaults, known):
            # Older rows have the default the column was added with, which no table version has told.
            effect = strongest(effect, "snapshot")
        if change.changed or change.dropped or change.charset:
            harmless = known.latest is not None and self._keeps_values(change, known.latest)
            effect = strongest(effect, "none" if harmless else "snapshot")
        return replace(change, effect=effect)

    @staticmethod
    def _are_known(definitions: Iterable[ColumnDefinition], known: _Known) -> bool:
        """Whether rows were seen that had these columns: a version with their first default is registered."""
        columns = () if known.latest is None else known.latest.columns
        names = {column.name.lower() for column in columns}
        return all(definition.name.lower() in names for definition in definitions)

    def _keeps_values(self, change: DdlChange, schema: TableSchema) -> bool:
        columns = {column.name.lower(): column for column in schema.columns}
        keys = {name.lower() for name in schema.record_key}
        if any(name.lower() in keys for name in change.dropped):
            return False
        if change.charset is not None and not all(
            keeps_text(column.charset, change.charset) for column in schema.columns if column.charset
        ):
            return False
        for changed in change.changed:
            old = columns.get(changed.old_name.lower())
            if old is None:
                return False
            new = to_column(changed.definition, change.charset or old.charset, self._flavour)
            if old.name in schema.primary_key and new is not None:
                new = replace(new, nullable=False)
            if new is None or not keeps_values(old, new):
                return False
        return True

    # ---- TABLE_MAP

    def _reconcile(self, table_map: TableMap, known: _Known) -> TableVersion:
        metadata = _full_metadata(table_map)
        facts = self._facts(table_map, known)
        if facts is not None and facts.refusal:
            raise SourceError(facts.refusal)
        columns = []
        for index, name in enumerate(metadata.names):
            column = _column(table_map, metadata, index)
            if isinstance(column, str):
                raise _unsupported(table_map, name, column)
            if facts is not None and name in facts.unsupported and column.type in _HIDING:
                raise _unsupported(table_map, name, facts.unsupported[name])
            column = _hidden_type(column, known.declared.get(name.lower()), _server_column(name, facts))
            columns.append(self._completed(column, facts, known))
        key = tuple(metadata.names[column] for column, _ in metadata.primary_key)
        schema = TableSchema(table_map.database, table_map.table, tuple(columns), *_keys(key, facts))
        _refuse_hidden_columns(schema, facts)
        return TableVersion(schema, BinlogLayout(table_map.types, table_map.metas))

    def _facts(self, table_map: TableMap, known: _Known) -> TableFacts | None:
        if not known.facts_read:
            connection = self._connect()
            try:
                wait_for_ddl(connection, table_map.database, table_map.table, _DDL_WAIT_S)
                known.facts = read_table_facts(connection, table_map.database, table_map.table)
            finally:
                connection.close()
            known.facts_read = True
        return known.facts

    def _completed(self, column: Column, facts: TableFacts | None, known: _Known) -> Column:
        """The column with what the server and DDL text add to it."""
        server = _server_column(column.name, facts)
        if server is not None and _same_type(column, server):
            column = replace(server, nullable=column.nullable)
        elif server is not None and server.type is column.type and server.unsigned == column.unsigned:
            column = _with_default_of(_with_float_digits(column, server), server)
        declared = known.declared.get(column.name.lower())
        return column if declared is None else self._with_declared_default(column, declared)

    def _with_declared_default(self, column: Column, declared: ColumnDefinition) -> Column:
        """The default a DDL in the log gave, unless the server tells the same value, or tells it better.

        TIMESTAMPs are left to the server: a literal is in the time zone of the session that ran the DDL, and
        some get a default without saying so.
        """
        if declared.generated or declared.auto_increment or column.type is ColumnType.TIMESTAMP:
            return column
        told = to_column(declared, column.charset, self._flavour) if declared.type_name else None
        typed = _with_default_of(column, declared if told is None else told)
        certain = is_exact(declared, typed) if typed.has_default else True
        if _same_default(typed, column) or (column.has_default and not certain):
            return column
        return typed


def _full_metadata(table_map: TableMap) -> TableMetadata:
    metadata = table_map.metadata
    if metadata is None or not metadata.is_full:
        message = (
            f"the log does not name the columns of {table_map.database}.{table_map.table}: it was written "
            f"with binlog_row_metadata=MINIMAL. Run SET GLOBAL binlog_row_metadata=FULL (and put it into the "
            f"server's configuration). What is in the log already stays unreadable: start under another "
            f"name, so that the tables are read again"
        )
        raise SourceError(message)
    return metadata


def _unsupported(table_map: TableMap, name: str, kind: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"column {table_map.database}.{table_map.table}.{name} ({kind}) can't be captured yet; leave the "
        f"table out of source.tables"
    )


def _column(table_map: TableMap, metadata: TableMetadata, index: int) -> Column | str:
    """The column as the TABLE_MAP alone tells it, or what it is where it can't be captured."""
    code, meta = table_map.types[index], table_map.metas[index]
    if code in _UNSUPPORTED_CODES:
        return _UNSUPPORTED_CODES[code]
    if code in _COMPRESSED:
        code, meta = _COMPRESSED[code], meta - (code == _COMPRESSED_VARCHAR)
    collation = metadata.collations[index]
    charset = None if collation is None else charset_of(collation) or f"of collation {collation}"
    kind = _type_of(code, meta, binary=charset in (None, BINARY))
    if code == _GEOMETRY:
        kind = _spatial_type(metadata.geometry_types[index])
    if kind is None:
        return f"type code {code}"
    column = Column(metadata.names[index], kind, table_map.nullable[index], unsigned=metadata.unsigned[index])
    if kind is ColumnType.YEAR:
        column = replace(column, unsigned=False)
    if kind in TEXT_TYPES or kind in MEMBER_TYPES:
        if charset not in SUPPORTED:
            return f"{kind} with character set {charset}"
        column = replace(column, charset=charset)
    if kind in MEMBER_TYPES:
        return replace(column, members=metadata.member_texts(index))
    return _with_sizes(column, code, meta)


def _type_of(code: int, meta: int, *, binary: bool) -> ColumnType | None:
    if code == _STRING:
        return ColumnType.BINARY if binary else ColumnType.CHAR
    if code == _VARCHAR:
        return ColumnType.VARBINARY if binary else ColumnType.VARCHAR
    if code == _BLOB:
        return (_BLOBS if binary else _TEXTS)[meta - 1]
    return _PLAIN.get(code)


def _spatial_type(number: int | None) -> ColumnType | None:
    number = number or 0  # a log that does not say holds geometries of any kind
    return SPATIAL_TYPES[number] if number < len(SPATIAL_TYPES) else None


def _with_sizes(column: Column, code: int, meta: int) -> Column:
    if code == _DECIMAL:
        return replace(column, precision=meta >> 8, scale=meta & 0xFF)
    if code == _BIT:
        return replace(column, length=(meta >> 8) * 8 + (meta & 0xFF))
    if column.type in FRACTION_TYPES:
        return replace(column, precision=meta)
    if column.type in LENGTH_TYPES:
        return replace(column, length=meta // BYTES_PER_CHARACTER.get(column.charset or BINARY, 1))
    return column


def _hidden_type(column: Column, declared: ColumnDefinition | None, server: Column | None) -> Column:
    """The column; as what DDL text or else the server says where that looks like BINARY in the log (UUID, INET)."""
    is_declared = declared is not None and declared.type_name
    told = to_column(declared, None, "mariadb") if declared is not None and is_declared else server
    if told is None or column.type is not ColumnType.BINARY or ADDRESS_BYTES.get(told.type) != column.length:
        return column
    return replace(column, type=told.type, length=None)


def _server_column(name: str, facts: TableFacts | None) -> Column | None:
    if facts is None:
        return None
    return next((column for column in facts.schema.columns if column.name == name), None)


def _same_type(column: Column, server: Column) -> bool:
    """Whether the server's column is the log's: all that a TABLE_MAP tells is equal."""
    bare = replace(
        server,
        nullable=column.nullable,
        collation=None,
        default=None,
        has_default=False,
        default_is_expression=False,
    )
    return _with_float_digits(column, server) == bare


def _with_default_of(column: Column, other: Column | ColumnDefinition) -> Column:
    return replace(
        column,
        default=other.default,
        has_default=other.has_default,
        default_is_expression=other.default_is_expression,
    )


def _with_float_digits(column: Column, server: Column) -> Column:
    """FLOAT(M,D) and DOUBLE(M,D): the log tells of neither M nor D."""
    if column.type not in FLOAT_TYPES:
        return column
    return replace(column, length=server.length, scale=server.scale)


def _same_default(one: Column, other: Column) -> bool:
    return (one.has_default, one.default_is_expression) == (
        other.has_default,
        other.default_is_expression,
    ) and column_default(one) == column_default(other)


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
