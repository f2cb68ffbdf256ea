"""The Kafka Connect schemas of a table's records: Debezium 3.6's envelope, row, key and source block.

A `TableSchema` enters, `ConnectSchema` trees leave; `avro.py` and `jsonschema.py` write them down. Facts are
from Debezium 3.6.1 (`TableSchemaBuilder`, `SchemaFactory`, recorded output). Intended differences:

* BIGINT UNSIGNED is a Decimal of scale 0 and precision 20 (`precise`), never a wrapped int64.
* A default is the value the server would store: `'it''s'` is `it's`, a BINARY default is its bytes, 2^64-1 is
  itself.
* INET4 and INET6 are strings; Debezium drops such columns with a warning.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from schemas.column_defaults import column_default, decimal_digits, twos_complement, year_zero
from schemas.columns import BINARY_TYPES, SPATIAL_TYPES, Column, ColumnType, TableSchema
from schemas.connect_types import (
    DATE_NAME,
    DECIMAL_NAME,
    ISO_DATE_NAME,
    PRECISE,
    SNAPSHOT_MARKS,
    SOURCE_VERSION,
    TIME_NAME,
    TIMESTAMP_NAME,
    UNSIGNED_BIGINT_PRECISION,
    BinaryMode,
    ConnectField,
    Connector,
    ConnectSchema,
    ConnectType,
    DecimalMode,
    DefaultValue,
    TimeMode,
    UnsignedMode,
    ValueModes,
)
from schemas.errors import SchemaMismatchError
from schemas.names import adjusted_field_name, adjusted_schema_name
from schemas.source_types import source_parameters
from schemas.topics import change_topic

__all__ = [
    "DATE_NAME",
    "DECIMAL_NAME",
    "ISO_DATE_NAME",
    "PRECISE",
    "SNAPSHOT_MARKS",
    "SOURCE_FIELDS",
    "SOURCE_VERSION",
    "TIMESTAMP_NAME",
    "TIME_NAME",
    "TRANSACTION_BLOCK",
    "UNSIGNED_BIGINT_PRECISION",
    "BinaryMode",
    "ConnectField",
    "ConnectSchema",
    "ConnectType",
    "Connector",
    "DecimalMode",
    "DefaultValue",
    "TimeMode",
    "UnsignedMode",
    "ValueModes",
    "all_columns",
    "binary_text",
    "column_default",
    "column_schema",
    "decimal_digits",
    "decimal_schema",
    "escape_member",
    "flat_schema",
    "key_schema",
    "row_schema",
    "scaled_text",
    "source_schema",
    "temporal_value",
    "twos_complement",
    "value_schema",
    "year_zero",
]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  DATETIME has no zone: the wall clock counts as UTC
_MILLISECOND_DIGITS: Final = 3
_DAY_US: Final = 86_400_000_000
_MOST_NANOSECONDS_US: Final = (2**63 - 1) // 1000


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


def source_schema(connector: Connector) -> ConnectSchema:
    """Return the `source` block of a connector."""
    name = f"io.debezium.connector.{connector}.Source"
    return ConnectSchema(ConnectType.STRUCT, name=name, version=1, fields=SOURCE_FIELDS)


def column_schema(column: Column, modes: ValueModes = PRECISE) -> ConnectSchema:
    """Return the schema of one column: its base type, optional when nullable, with its default."""
    base = _base(column, modes)
    default = column_default(column)
    if default is not None:
        default = _default_in(column, default, modes)
    return replace(base, optional=base.optional or column.nullable, default=default)


def _in_table(column: Column, table: TableSchema, modes: ValueModes) -> ConnectSchema:
    required = column.name in (table.primary_key or table.unique_key)
    schema = column_schema(replace(column, nullable=False) if required else column, modes)
    if table.comments and column.comment:
        schema = replace(schema, doc=column.comment)
    mask = table.mask_of(column.name)
    return schema if mask is None else replace(schema, parameters=(*schema.parameters, mask.parameter))


def _base(column: Column, modes: ValueModes) -> ConnectSchema:
    if column.type is ColumnType.DECIMAL and modes.decimal != "precise":
        return ConnectSchema(ConnectType.FLOAT64 if modes.decimal == "double" else ConnectType.STRING)
    if column.type is ColumnType.BIGINT and modes.bigint_unsigned == "long":
        return ConnectSchema(ConnectType.INT64)
    if column.type in BINARY_TYPES and modes.binary != "bytes":
        return _STRING
    return _TEMPORAL[modes.time].get(column.type) or _BASES[column.type](column)


def _default_in(column: Column, default: DefaultValue, modes: ValueModes) -> DefaultValue | None:
    """Return a default as `column_default` gives it, in the look its column has in these modes; None where it has none."""
    if column.type in _TEMPORAL[modes.time] and isinstance(default, int):
        is_milliseconds = column.type is ColumnType.DATETIME and (column.precision or 0) <= _MILLISECOND_DIGITS
        return temporal_value(column.type, default * 1000 if is_milliseconds else default, modes.time)
    if not isinstance(default, bytes):
        return default
    if column.type is ColumnType.DECIMAL and modes.decimal != "precise":
        text = scaled_text(int.from_bytes(default, "big", signed=True), decimal_digits(column)[1])
        return float(text) if modes.decimal == "double" else text
    if column.type is ColumnType.BIGINT and modes.bigint_unsigned == "long":
        return int.from_bytes(default[-8:].rjust(8, b"\0"), "big", signed=True)
    if column.type in BINARY_TYPES and modes.binary != "bytes":
        return binary_text(default, modes.binary)
    return default


def temporal_value(kind: ColumnType, value: int, mode: TimeMode) -> DefaultValue | None:
    """Days of a DATE, microseconds of a TIME or DATETIME in a mode that converts them; None for what it cannot represent.

    `connect` and `isostring` represent times within a day, `nanoseconds` DATETIMEs of the years 1677 to 2262.
    """
    last = _DAY_US if mode == "connect" else _DAY_US - 1
    if kind is ColumnType.TIME and mode in ("connect", "isostring") and not 0 <= value <= last:
        return None
    if mode == "nanoseconds":
        return value * 1000 if abs(value) <= _MOST_NANOSECONDS_US else None
    if mode == "isostring":
        return _iso_text(kind, value)
    return value // 1000 if mode == "connect" and kind is not ColumnType.DATE else value


def _iso_text(kind: ColumnType, value: int) -> str:
    if kind is ColumnType.DATE:
        return f"{_EPOCH.date() + timedelta(days=value)}Z"
    moment = _EPOCH + timedelta(microseconds=value)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    date_part = "" if kind is ColumnType.TIME else f"{moment.date()}T"
    return f"{date_part}{moment:%H:%M:%S}{fraction}Z"


def scaled_text(unscaled: int, scale: int) -> str:
    """Return a decimal without exponent, with all `scale` fraction digits (Java's `toPlainString`)."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{fraction}"


def binary_text(value: bytes, mode: BinaryMode) -> str:
    """Bytes as text: base64 of one of its two alphabets, padded, or lower-case hexadecimal."""
    if mode == "hex":
        return value.hex()
    return (b64encode if mode == "base64" else urlsafe_b64encode)(value).decode()


# ── types ────────────────────


def _plain(kind: ConnectType) -> Callable[[Column], ConnectSchema]:
    schema = ConnectSchema(kind)
    return lambda _column: schema


def _semantic(kind: ConnectType, name: str) -> Callable[[Column], ConnectSchema]:
    schema = ConnectSchema(kind, name=name, version=1)
    return lambda _column: schema


def _integer(signed: ConnectType, unsigned: ConnectType) -> Callable[[Column], ConnectSchema]:
    plain, wide = ConnectSchema(signed), ConnectSchema(unsigned)
    return lambda column: wide if column.unsigned else plain


def decimal_schema(precision: int, scale: int) -> ConnectSchema:
    """Return Connect's Decimal: unscaled big-endian two's complement bytes; scale and precision in the schema."""
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)


def _bigint(column: Column) -> ConnectSchema:
    if column.unsigned:
        return decimal_schema(UNSIGNED_BIGINT_PRECISION, 0)
    return ConnectSchema(ConnectType.INT64)


def _decimal(column: Column) -> ConnectSchema:
    return decimal_schema(*decimal_digits(column))


def _float(column: Column) -> ConnectSchema:
    return ConnectSchema(ConnectType.FLOAT32 if column.length is None else ConnectType.FLOAT64)


def _bit(column: Column) -> ConnectSchema:
    bits = column.length or 1
    if bits == 1:
        return ConnectSchema(ConnectType.BOOLEAN)
    parameters = (("length", str(bits)),)
    return ConnectSchema(ConnectType.BYTES, name="io.debezium.data.Bits", version=1, parameters=parameters)


def _datetime(column: Column) -> ConnectSchema:
    digits = column.precision or 0
    name = "Timestamp" if digits <= _MILLISECOND_DIGITS else "MicroTimestamp"
    return ConnectSchema(ConnectType.INT64, name=f"io.debezium.time.{name}", version=1)


def _members(name: str) -> Callable[[Column], ConnectSchema]:
    def schema(column: Column) -> ConnectSchema:
        allowed = ",".join(escape_member(member) for member in column.members)
        return ConnectSchema(ConnectType.STRING, name=name, version=1, parameters=(("allowed", allowed),))

    return schema


def escape_member(member: str) -> str:
    r"""Return an ENUM or SET member as it is in the parameter `allowed`: `\` becomes `\\`, `,` becomes `\,`."""
    return member.replace("\\", "\\\\").replace(",", "\\,")


_GEOMETRY: Final = ConnectSchema(
    ConnectType.STRUCT,
    optional=True,  # also of a NOT NULL column: so is Debezium's
    name="io.debezium.data.geometry.Geometry",
    version=1,
    doc="Geometry",
    fields=(
        ConnectField("wkb", ConnectSchema(ConnectType.BYTES)),
        ConnectField("srid", ConnectSchema(ConnectType.INT32, optional=True)),
    ),
)
_POINT: Final = ConnectSchema(
    ConnectType.STRUCT,
    optional=True,
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        ConnectField("x", ConnectSchema(ConnectType.FLOAT64)),
        ConnectField("y", ConnectSchema(ConnectType.FLOAT64)),
        ConnectField("wkb", ConnectSchema(ConnectType.BYTES, optional=True)),
        ConnectField("srid", ConnectSchema(ConnectType.INT32, optional=True)),
    ),
)
_VECTOR: Final = ConnectSchema(
    ConnectType.ARRAY,
    name="io.debezium.data.FloatVector",
    version=1,
    items=ConnectSchema(ConnectType.FLOAT32),
)


def _named(kind: ConnectType, name: str) -> ConnectSchema:
    return ConnectSchema(kind, name=name, version=1)


# What the modes of `time.precision.mode` make of types; the others are as in `_BASES`.
_TEMPORAL: Final[dict[TimeMode, dict[ColumnType, ConnectSchema]]] = {
    "adaptive_time_microseconds": {},
    "microseconds": {ColumnType.DATETIME: _named(ConnectType.INT64, "io.debezium.time.MicroTimestamp")},
    "nanoseconds": {
        ColumnType.TIME: _named(ConnectType.INT64, "io.debezium.time.NanoTime"),
        ColumnType.DATETIME: _named(ConnectType.INT64, "io.debezium.time.NanoTimestamp"),
    },
    "connect": {
        ColumnType.DATE: _named(ConnectType.INT32, DATE_NAME),
        ColumnType.TIME: _named(ConnectType.INT32, TIME_NAME),
        ColumnType.DATETIME: _named(ConnectType.INT64, TIMESTAMP_NAME),
    },
    "isostring": {
        ColumnType.DATE: _named(ConnectType.STRING, ISO_DATE_NAME),
        ColumnType.TIME: _named(ConnectType.STRING, "io.debezium.time.IsoTime"),
        ColumnType.DATETIME: _named(ConnectType.STRING, "io.debezium.time.IsoTimestamp"),
    },
}

_TEXT: Final = _plain(ConnectType.STRING)
_BINARY: Final = _plain(ConnectType.BYTES)

_BASES: Final[dict[ColumnType, Callable[[Column], ConnectSchema]]] = {
    ColumnType.TINYINT: _plain(ConnectType.INT16),
    ColumnType.SMALLINT: _integer(ConnectType.INT16, ConnectType.INT32),
    ColumnType.MEDIUMINT: _plain(ConnectType.INT32),
    ColumnType.INT: _integer(ConnectType.INT32, ConnectType.INT64),
    ColumnType.BIGINT: _bigint,
    ColumnType.DECIMAL: _decimal,
    ColumnType.FLOAT: _float,
    ColumnType.DOUBLE: _plain(ConnectType.FLOAT64),
    ColumnType.BIT: _bit,
    ColumnType.YEAR: _semantic(ConnectType.INT32, "io.debezium.time.Year"),
    ColumnType.DATE: _semantic(ConnectType.INT32, "io.debezium.time.Date"),
    ColumnType.TIME: _semantic(ConnectType.INT64, "io.debezium.time.MicroTime"),
    ColumnType.DATETIME: _datetime,
    ColumnType.TIMESTAMP: _semantic(ConnectType.STRING, "io.debezium.time.ZonedTimestamp"),
    ColumnType.CHAR: _TEXT,
    ColumnType.VARCHAR: _TEXT,
    ColumnType.TINYTEXT: _TEXT,
    ColumnType.TEXT: _TEXT,
    ColumnType.MEDIUMTEXT: _TEXT,
    ColumnType.LONGTEXT: _TEXT,
    ColumnType.BINARY: _BINARY,
    ColumnType.VARBINARY: _BINARY,
    ColumnType.TINYBLOB: _BINARY,
    ColumnType.BLOB: _BINARY,
    ColumnType.MEDIUMBLOB: _BINARY,
    ColumnType.LONGBLOB: _BINARY,
    ColumnType.ENUM: _members("io.debezium.data.Enum"),
    ColumnType.SET: _members("io.debezium.data.EnumSet"),
    ColumnType.JSON: _semantic(ConnectType.STRING, "io.debezium.data.Json"),
    **dict.fromkeys(SPATIAL_TYPES, lambda _column: _GEOMETRY),
    ColumnType.POINT: lambda _column: _POINT,
    ColumnType.VECTOR: lambda _column: _VECTOR,
    ColumnType.UUID: _semantic(ConnectType.STRING, "io.debezium.data.Uuid"),
    ColumnType.INET4: _TEXT,
    ColumnType.INET6: _TEXT,
}


# ── defaults ────────────────────
