"""The Kafka Connect schemas of a table's records: Debezium 3.6's envelope, row, key and source block.

A `TableSchema` enters, `ConnectSchema` trees leave; `avro.py` and `jsonschema.py` write them down. Facts are
from Debezium 3.6.1 (`TableSchemaBuilder`, `SchemaFactory`, recorded output). Intended differences:

* BIGINT UNSIGNED is a Decimal of scale 0 and precision 20 (`precise`), never a wrapped int64.
* A default is the value the server would store: `'it''s'` is `it's`, a BINARY default is its bytes, 2^64-1 is
  itself.
* INET4 and INET6 are strings; Debezium drops such columns with a warning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from schemas.columns import Column, TableSchema
from schemas.connect_types import (
    PRECISE,
    ConnectField,
    Connector,
    ConnectSchema,
    ConnectType,
    ValueModes,
)
from schemas.envelope_blocks import TRANSACTION_BLOCK, source_schema
from schemas.errors import SchemaMismatchError
from schemas.names import adjusted_field_name, adjusted_schema_name
from schemas.topics import change_topic
from schemas.types.semantic_types import column_schema
from schemas.types.source_types import source_parameters

_STRING: Final = ConnectSchema(ConnectType.STRING)
_OPTIONAL_STRING: Final = ConnectSchema(ConnectType.STRING, optional=True)
_OPTIONAL_INT64: Final = ConnectSchema(ConnectType.INT64, optional=True)


def value_schema(
    table: TableSchema, prefix: str, connector: Connector, modes: ValueModes = PRECISE
) -> ConnectSchema:
    """Return the envelope of a table's change records; `before` and `after` are the same `Value` schema."""
    row = row_schema(table, prefix, modes)
    fields = (
        ConnectField("before", row),
        ConnectField("after", row),
        ConnectField("source", source_schema(connector)),
        ConnectField("transaction", TRANSACTION_BLOCK),
        ConnectField("op", _STRING),
        ConnectField("ts_ms", _OPTIONAL_INT64),
        ConnectField("ts_us", _OPTIONAL_INT64),
        ConnectField("ts_ns", _OPTIONAL_INT64),
    )
    name = _name_of(table, prefix, "Envelope", modes)
    return ConnectSchema(ConnectType.STRUCT, name=name, version=2, fields=fields)


def flat_schema(table: TableSchema, prefix: str, modes: ValueModes = PRECISE) -> ConnectSchema:
    """Return the value of an unwrapped record: the row, and what the envelope said of it.

    Raises `SchemaMismatchError` for a column that has the name of what is added: one of the two values would be lost.
    """
    row = row_schema(table, prefix, modes)
    more = (
        ConnectField("__deleted", _OPTIONAL_STRING),
        ConnectField("__op", _OPTIONAL_STRING),
        ConnectField("__source_ts_ms", _OPTIONAL_INT64),
    )
    added = {field.name for field in more}
    taken = [field.name for field in row.fields if field.name in added]
    if taken:
        message = (
            f"{table.full_name} has a column {', '.join(taken)}, which is what records.unwrap calls a field of its own: rename "
            f"the column, leave it out (records.column_exclude_list), or turn records.unwrap off"
        )
        raise SchemaMismatchError(message)
    return replace(row, optional=False, fields=(*row.fields, *more))


def row_schema(table: TableSchema, prefix: str, modes: ValueModes = PRECISE) -> ConnectSchema:
    """Return the `Value` struct: one field per written column, in table order; primary key columns are always required."""
    written = [column for column in table.columns if column.name not in table.dropped]
    fields = tuple(_described(_field(column, table, modes), column, table) for column in written)
    name = _name_of(table, prefix, "Value", modes)
    return ConnectSchema(ConnectType.STRUCT, optional=True, name=name, fields=fields)


def all_columns(table: TableSchema, modes: ValueModes = PRECISE) -> tuple[ConnectField, ...]:
    """Return a field for every column of the table, also of those that are not written."""
    return tuple(_field(column, table, modes) for column in table.columns)


def _field(column: Column, table: TableSchema, modes: ValueModes) -> ConnectField:
    return ConnectField(adjusted_field_name(column.name, modes.field_names), _in_table(column, table, modes))


def _described(field: ConnectField, column: Column, table: TableSchema) -> ConnectField:
    """Return the field, its schema with the source's type where that is asked for; in keys it never is."""
    if column.name not in table.typed:
        return field
    parameters = (*field.schema.parameters, *source_parameters(column, comments=table.comments))
    return ConnectField(field.name, replace(field.schema, parameters=parameters))


def _name_of(table: TableSchema, prefix: str, kind: str, modes: ValueModes) -> str:
    """Return the topic's name and the kind, adjusted: Debezium names schemas after topics, which may have fewer characters."""
    topic = change_topic(prefix, table.database, table.name, modes.topic_delimiter)
    return adjusted_schema_name(f"{topic}.{kind}", modes.schema_names)


def key_schema(table: TableSchema, prefix: str, modes: ValueModes = PRECISE) -> ConnectSchema | None:
    """Return the key struct, fields in key definition order; None for a table without a record key."""
    if not table.record_key:
        return None
    fields = tuple(_field(column, table, modes) for column in table.key_columns)
    return ConnectSchema(ConnectType.STRUCT, name=_name_of(table, prefix, "Key", modes), fields=fields)


def _in_table(column: Column, table: TableSchema, modes: ValueModes) -> ConnectSchema:
    required = column.name in (table.primary_key or table.unique_key)
    schema = column_schema(replace(column, nullable=False) if required else column, modes)
    if table.comments and column.comment:
        schema = replace(schema, doc=column.comment)
    mask = table.mask_of(column.name)
    return schema if mask is None else replace(schema, parameters=(*schema.parameters, mask.parameter))
