"""The blocks of an envelope that every table has, as Debezium 3.6 writes them: the source, and the transaction."""

from __future__ import annotations

from typing import Final

from schemas.connect_types import SNAPSHOT_MARKS, ConnectField, Connector, ConnectSchema, ConnectType

_STRING: Final = ConnectSchema(ConnectType.STRING)
_OPTIONAL_STRING: Final = ConnectSchema(ConnectType.STRING, optional=True)
_INT32: Final = ConnectSchema(ConnectType.INT32)
_INT64: Final = ConnectSchema(ConnectType.INT64)
_OPTIONAL_INT64: Final = ConnectSchema(ConnectType.INT64, optional=True)

_SNAPSHOT: Final = ConnectSchema(
    ConnectType.STRING,
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    parameters=(("allowed", SNAPSHOT_MARKS),),
    default="false",
)

SOURCE_FIELDS: Final = (
    ConnectField("version", _STRING),
    ConnectField("connector", _STRING),
    ConnectField("name", _STRING),
    ConnectField("ts_ms", _INT64),
    ConnectField("snapshot", _SNAPSHOT),
    ConnectField("db", _STRING),
    ConnectField("sequence", _OPTIONAL_STRING),
    ConnectField("ts_us", _OPTIONAL_INT64),
    ConnectField("ts_ns", _OPTIONAL_INT64),
    ConnectField("table", _OPTIONAL_STRING),
    ConnectField("server_id", _INT64),
    ConnectField("gtid", _OPTIONAL_STRING),
    ConnectField("file", _STRING),
    ConnectField("pos", _INT64),
    ConnectField("row", _INT32),
    ConnectField("thread", _OPTIONAL_INT64),
    ConnectField("query", _OPTIONAL_STRING),
)

TRANSACTION_BLOCK: Final = ConnectSchema(
    ConnectType.STRUCT,
    optional=True,
    name="event.block",
    version=1,
    fields=(
        ConnectField("id", _STRING),
        ConnectField("total_order", _INT64),
        ConnectField("data_collection_order", _INT64),
    ),
)


def source_schema(connector: Connector) -> ConnectSchema:
    """Return the `source` block of a connector."""
    name = f"io.debezium.connector.{connector}.Source"
    return ConnectSchema(ConnectType.STRUCT, name=name, version=1, fields=SOURCE_FIELDS)
