"""Schema-change records (topic `<prefix>`): a DDL statement, and what its tables look like after it.

Names, fields and values are Debezium 3.6's (`HistoryRecord`, `SchemaFactory`), recorded in its golden `ddl` scenario.
The value objects know the `table` of a record; how statements change one is `producer.catalog.model_records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from schemas.connect_types import SOURCE_VERSION, ConnectField, Connector, ConnectSchema, ConnectType
from schemas.envelope_blocks import source_schema
from schemas.json_codec import Form, json_field
from schemas.position import Position

ChangeType = Literal["CREATE", "ALTER", "DROP"]

_STRING: Final = ConnectSchema(ConnectType.STRING)
_OPTIONAL_STRING: Final = ConnectSchema(ConnectType.STRING, optional=True)
_INT32: Final = ConnectSchema(ConnectType.INT32)
_OPTIONAL_INT32: Final = ConnectSchema(ConnectType.INT32, optional=True)
_INT64: Final = ConnectSchema(ConnectType.INT64)
_OPTIONAL_BOOLEAN: Final = ConnectSchema(ConnectType.BOOLEAN, optional=True)
_OPTIONAL_STRINGS: Final = ConnectSchema(ConnectType.ARRAY, optional=True, items=_STRING)

_COLUMN: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.schema.Column",
    version=1,
    fields=(
        ConnectField("name", _STRING),
        ConnectField("jdbcType", _INT32),
        ConnectField("nativeType", _OPTIONAL_INT32),
        ConnectField("typeName", _STRING),
        ConnectField("typeExpression", _OPTIONAL_STRING),
        ConnectField("charsetName", _OPTIONAL_STRING),
        ConnectField("length", _OPTIONAL_INT32),
        ConnectField("scale", _OPTIONAL_INT32),
        ConnectField("position", _INT32),
        ConnectField("optional", _OPTIONAL_BOOLEAN),
        ConnectField("autoIncremented", _OPTIONAL_BOOLEAN),
        ConnectField("generated", _OPTIONAL_BOOLEAN),
        ConnectField("comment", _OPTIONAL_STRING),
        ConnectField("defaultValueExpression", _OPTIONAL_STRING),
        ConnectField("enumValues", _OPTIONAL_STRINGS),
    ),
)
_TABLE: Final = ConnectSchema(
    ConnectType.STRUCT,
    optional=True,
    name="io.debezium.connector.schema.Table",
    version=1,
    fields=(
        ConnectField("defaultCharsetName", _OPTIONAL_STRING),
        ConnectField("primaryKeyColumnNames", _OPTIONAL_STRINGS),
        ConnectField("columns", ConnectSchema(ConnectType.ARRAY, items=_COLUMN)),
        ConnectField("comment", _OPTIONAL_STRING),
    ),
)
_CHANGE: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.schema.Change",
    version=1,
    fields=(ConnectField("type", _STRING), ConnectField("id", _STRING), ConnectField("table", _TABLE)),
)


def schema_change_key(connector: Connector) -> ConnectSchema:
    """Return the schema of a record's key."""
    name = f"io.debezium.connector.{connector}.SchemaChangeKey"
    return ConnectSchema(
        ConnectType.STRUCT, name=name, version=1, fields=(ConnectField("databaseName", _STRING),)
    )


def schema_change_value(connector: Connector) -> ConnectSchema:
    """Return the schema of a record's value."""
    return ConnectSchema(
        ConnectType.STRUCT,
        name=f"io.debezium.connector.{connector}.SchemaChangeValue",
        version=1,
        fields=(
            ConnectField("source", source_schema(connector)),
            ConnectField("ts_ms", _INT64),
            ConnectField("databaseName", _OPTIONAL_STRING),
            ConnectField("schemaName", _OPTIONAL_STRING),
            ConnectField("ddl", _OPTIONAL_STRING),
            ConnectField("tableChanges", ConnectSchema(ConnectType.ARRAY, items=_CHANGE)),
        ),
    )


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column as a DDL statement defines it. `members` are SQL literals, quotes included."""

    JSON: ClassVar = Form(refuses_unknown=True)

    name: str
    jdbc_type: int
    type_name: str
    charset: str | None = None
    length: int | None = None
    scale: int | None = None
    optional: bool = True
    auto_increment: bool = False
    default: str | None = None
    members: tuple[str, ...] | None = None
    comment: str | None = None

    def payload(self, position: int, *, comments: bool = False) -> dict[str, Any]:
        """Return the column in a record; `generated` is what Debezium says of auto-increment columns, and only of those."""
        return {
            "name": self.name,
            "jdbcType": self.jdbc_type,
            "nativeType": None,
            "typeName": self.type_name,
            "typeExpression": self.type_name,
            "charsetName": self.charset,
            "length": self.length,
            "scale": self.scale,
            "position": position,
            "optional": self.optional,
            "autoIncremented": self.auto_increment,
            "generated": self.auto_increment,
            "comment": self.comment if comments else None,
            "defaultValueExpression": self.default,
            "enumValues": None if self.members is None else list(self.members),
        }


@dataclass(frozen=True, slots=True)
class TableModel:
    """A table after a statement. `primary_key` is the first unique NOT NULL index where there is no primary key."""

    JSON: ClassVar = Form(head=lambda _: {"v": 1})
    PREFIX: ClassVar = "schema/"

    database: str
    name: str
    charset: str | None
    primary_key: tuple[str, ...]
    columns: tuple[ModelColumn, ...]
    comment: str | None = None

    def payload(self, *, comments: bool = False) -> dict[str, Any]:
        """Return the table in a record, with its comments where they are asked for."""
        return {
            "defaultCharsetName": self.charset,
            "primaryKeyColumnNames": list(self.primary_key),
            "columns": [
                column.payload(index, comments=comments) for index, column in enumerate(self.columns, 1)
            ],
            "comment": self.comment if comments else None,
        }

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class DefaultCharsets:
    """The character set of tables that name none, by database, at the committed offset: for the records of schema changes."""

    JSON: ClassVar = Form(head=lambda _: {"v": 1})
    KEY: ClassVar = "schema-charsets"

    charsets: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One record: a statement on one table of a database, or on a database (`id` None).

    `tables` names the tables of the whole statement, None for a statement on no table. `table` is None where
    the table is gone.
    """

    ddl: str
    database: str
    type: ChangeType | None = None
    id: tuple[str, str] | None = None
    table: TableModel | None = None
    tables: str | None = None


@dataclass(frozen=True, slots=True)
class StatementSession:
    """How the session of a statement reads it: its default database, and the bits of its sql_mode, None if not reported.

    `is_captured`: the statement is on a captured table, or on a database that has one.
    """

    JSON: ClassVar = Form(refuses_unknown=True)
    HEADER: ClassVar = "tidemark.session"

    database: str = ""
    sql_mode: int | None = None
    is_captured: bool = json_field(default=True, name="captured", required=True)


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """The position of a statement: `ts_us` is the source's time, `pos` where its event begins."""

    position: Position
    ts_us: int
    file: str
    pos: int
    gtid: str | None = None
    server_id: int = 0
    snapshot: Literal["true", "false"] = "false"


def change_key(change: SchemaChange) -> dict[str, Any]:
    """Return the key's payload."""
    return {"databaseName": change.database}


def change_value(
    change: SchemaChange,
    origin: ChangeOrigin,
    prefix: str,
    connector: Connector,
    ts_ms: int,
    *,
    comments: bool = False,
) -> dict[str, Any]:
    """Return the value's payload; `ts_ms` is our clock."""
    source = {
        "version": SOURCE_VERSION,
        "connector": connector,
        "name": prefix,
        "ts_ms": origin.ts_us // 1000,
        "snapshot": origin.snapshot,
        "db": change.database,
        "sequence": origin.position.text,
        "ts_us": origin.ts_us,
        "ts_ns": origin.ts_us * 1000,
        "table": change.tables,
        "server_id": origin.server_id,
        "gtid": origin.gtid,
        "file": origin.file,
        "pos": origin.pos,
        "row": 0,
        "thread": None,
        "query": None,
    }
    changes = []
    if change.id is not None:
        quoted = ".".join(f'"{name}"' for name in change.id)
        table = None if change.table is None else change.table.payload(comments=comments)
        changes = [{"type": change.type, "id": quoted, "table": table}]
    return {
        "source": source,
        "ts_ms": ts_ms,
        "databaseName": change.database,
        "schemaName": None,
        "ddl": change.ddl,
        "tableChanges": changes,
    }
