"""The Kafka Connect schemas of a table's records: Debezium 3.6's envelope, row, key and source block.

A `TableSchema` enters, `ConnectSchema` trees leave; `avro.py` and `jsonschema.py` write them down. Facts are
from Debezium 3.6.1 (`TableSchemaBuilder`, `SchemaFactory`, recorded output). Intended differences:

* BIGINT UNSIGNED is a Decimal of scale 0 and precision 20 (`precise`), never a wrapped int64.
* A default is the value the server would store: `'it''s'` is `it's`, a BINARY default is its bytes, 2^64-1 is
  itself.
* INET4 and INET6 are strings; Debezium drops such columns with a warning.
"""

from __future__ import annotations

import struct
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from enum import StrEnum
from typing import Final, Literal

from schemas.columns import BINARY_TYPES, SPATIAL_TYPES, YEAR_DIGITS, Column, ColumnType, TableSchema
from schemas.errors import SchemaMismatchError
from schemas.names import NameMode, adjusted_field_name, adjusted_schema_name
from schemas.source_types import source_parameters
from schemas.topics import DELIMITER, change_topic

Connector = Literal["mysql", "mariadb"]
DecimalMode = Literal["precise", "double", "string"]
UnsignedMode = Literal["precise", "long"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
TimeMode = Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
DefaultValue = bool | int | float | str | bytes

SOURCE_VERSION: Final = "3.6.1.Final"
DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"
DATE_NAME: Final = "org.apache.kafka.connect.data.Date"
TIME_NAME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP_NAME: Final = "org.apache.kafka.connect.data.Timestamp"
ISO_DATE_NAME: Final = "io.debezium.time.IsoDate"
SNAPSHOT_MARKS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
UNSIGNED_BIGINT_PRECISION: Final = 20
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  DATETIME has no zone: the wall clock counts as UTC
_MILLISECOND_DIGITS: Final = 3
_FIRST_OF_1900: Final = 70
_CENTURY: Final = 100
_DAY_US: Final = 86_400_000_000
_MOST_NANOSECONDS_US: Final = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True)
class ValueModes:
    """What values and names become: Debezium's `*.handling.mode`, `time.precision.mode`, `*.name.adjustment.mode`.

    Schemas are called after the topic of their table, so `topic.delimiter` stands in their names, too.
    """

    decimal: DecimalMode = "precise"
    bigint_unsigned: UnsignedMode = "precise"
    binary: BinaryMode = "bytes"
    time: TimeMode = "adaptive_time_microseconds"
    schema_names: NameMode = "none"
    field_names: NameMode = "none"
    topic_delimiter: str = DELIMITER


PRECISE: Final = ValueModes()


class ConnectType(StrEnum):
    """Connect's types; the values are the names Connect's JsonConverter writes."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    STRUCT = "struct"
    ARRAY = "array"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """One node of a Connect schema.

    `default` is the encoded value (a Decimal's unscaled bytes, days, microseconds ...), None for no default.
    `fields` belong to STRUCT, `items` to ARRAY, `keys` and `values` to MAP.
    """

    type: ConnectType
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: DefaultValue | None = None
    fields: tuple[ConnectField, ...] = ()
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None
    values: ConnectSchema | None = None
    doc: str | None = None

    def field(self, name: str) -> ConnectSchema:
        """The schema of the field of that name; `KeyError` when there is none."""
        for field in self.fields:
            if field.name == name:
                return field.schema
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ConnectField:
    """A named field of a STRUCT."""

    name: str
    schema: ConnectSchema


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
    """The envelope of a table's change records; `before` and `after` are the same `Value` schema."""
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
    """The value of an unwrapped record: the row, and what the envelope said of it.

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
    """The `Value` struct: one field per written column, in table order; primary key columns are always required."""
    written = [column for column in table.columns if column.name not in table.dropped]
    fields = tuple(_told(_field(column, table, modes), column, table) for column in written)
    name = _name_of(table, prefix, "Value", modes)
    return ConnectSchema(ConnectType.STRUCT, optional=True, name=name, fields=fields)


def all_columns(table: TableSchema, modes: ValueModes = PRECISE) -> tuple[ConnectField, ...]:
    """A field for every column of the table, also of those that are not written."""
    return tuple(_field(column, table, modes) for column in table.columns)


def _field(column: Column, table: TableSchema, modes: ValueModes) -> ConnectField:
    return ConnectField(adjusted_field_name(column.name, modes.field_names), _in_table(column, table, modes))


def _told(field: ConnectField, column: Column, table: TableSchema) -> ConnectField:
    """The field, its schema with the source's type where that is asked for; in keys it never is."""
    if column.name not in table.typed:
        return field
    parameters = (*field.schema.parameters, *source_parameters(column, comments=table.comments))
    return ConnectField(field.name, replace(field.schema, parameters=parameters))


def _name_of(table: TableSchema, prefix: str, kind: str, modes: ValueModes) -> str:
    """The topic's name and the kind, adjusted: Debezium names schemas after topics, which hold fewer characters."""
    topic = change_topic(prefix, table.database, table.name, modes.topic_delimiter)
    return adjusted_schema_name(f"{topic}.{kind}", modes.schema_names)


def key_schema(table: TableSchema, prefix: str, modes: ValueModes = PRECISE) -> ConnectSchema | None:
    """The key struct, fields in key definition order; None for a table without a record key."""
    if not table.record_key:
        return None
    fields = tuple(_field(column, table, modes) for column in table.key_columns)
    return ConnectSchema(ConnectType.STRUCT, name=_name_of(table, prefix, "Key", modes), fields=fields)


def source_schema(connector: Connector) -> ConnectSchema:
    """The `source` block of a connector."""
    name = f"io.debezium.connector.{connector}.Source"
    return ConnectSchema(ConnectType.STRUCT, name=name, version=1, fields=SOURCE_FIELDS)


def column_schema(column: Column, modes: ValueModes = PRECISE) -> ConnectSchema:
    """The schema of one column: its base type, optional when nullable, with its default."""
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
    """A default as `column_default` gives it, in the look its column has in these modes; None where it has none."""
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
    """Days of a DATE, microseconds of a TIME or DATETIME in a mode that treats them anew; None for what it cannot hold.

    `connect` and `isostring` hold times within a day, `nanoseconds` DATETIMEs of the years 1677 to 2262.
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
    """A decimal without exponent, with all `scale` fraction digits (Java's `toPlainString`)."""
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
    """Connect's Decimal: unscaled big-endian two's complement bytes; scale and precision in the schema."""
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)


def _bigint(column: Column) -> ConnectSchema:
    if column.unsigned:
        return decimal_schema(UNSIGNED_BIGINT_PRECISION, 0)
    return ConnectSchema(ConnectType.INT64)


def _decimal(column: Column) -> ConnectSchema:
    return decimal_schema(*decimal_digits(column))


def decimal_digits(column: Column) -> tuple[int, int]:
    """`(precision, scale)` of a DECIMAL column; the server's (10, 0) when nothing is said."""
    return (10 if column.precision is None else column.precision), column.scale or 0


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
    r"""An ENUM or SET member as it stands in the parameter `allowed`: `\` becomes `\\`, `,` becomes `\,`."""
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


def column_default(column: Column) -> DefaultValue | None:
    """A column's default as its schema carries it, None for none.

    A literal is encoded as the column's values are. CURRENT_TIMESTAMP becomes the epoch (Debezium's
    placeholder), for a nullable TIMESTAMP none; other expressions and texts that are no value of the type give no
    default. A zero or impossible date is none where the column is nullable, else the epoch.
    """
    if not column.has_default or column.default is None:
        return None
    if column.default_is_expression:
        return _current_timestamp_default(column)
    encode = _DEFAULTS.get(column.type)
    if encode is None:
        return None
    try:
        return encode(column, column.default)
    except (ValueError, InvalidOperation, OverflowError):
        return None


def _current_timestamp_default(column: Column) -> DefaultValue | None:
    if not str(column.default).upper().startswith(("CURRENT_TIMESTAMP", "NOW", "LOCALTIME")):
        return None
    if column.type is ColumnType.TIMESTAMP:
        return None if column.nullable else "1970-01-01T00:00:00Z"
    return 0 if column.type is ColumnType.DATETIME else None


def twos_complement(value: int) -> bytes:
    """Big-endian two's complement in as few bytes as hold the value (Java's `BigInteger.toByteArray`)."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def year_zero(column: Column) -> int:
    """The year that 0 is: of two digits those of 2000."""
    return 2000 if column.display == YEAR_DIGITS else 0


def _rounded(text: str, scale: int) -> int:
    with localcontext() as context:
        context.prec = 100
        return int(Decimal(text).scaleb(scale).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def _integer_default(column: Column, text: str) -> DefaultValue:
    value = _rounded(text, 0)
    wide = column.type is ColumnType.BIGINT and column.unsigned
    return twos_complement(value) if wide else value


def _year_default(column: Column, text: str) -> DefaultValue:
    year = int(text)
    if 0 < year < _CENTURY:
        return year + (2000 if year < _FIRST_OF_1900 else 1900)
    return year or year_zero(column)


def _decimal_default(column: Column, text: str) -> DefaultValue:
    return twos_complement(_rounded(text, decimal_digits(column)[1]))


def _float_default(column: Column, text: str) -> DefaultValue:
    value = float(text)
    if column.type is ColumnType.DOUBLE or column.length is not None:
        return value
    return _shortest_float32(value)


def _shortest_float32(value: float) -> float:
    single = struct.pack("<f", value)
    exact = float(struct.unpack("<f", single)[0])
    candidates = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next((candidate for candidate in candidates if struct.pack("<f", candidate) == single), exact)


def _bit_default(column: Column, text: str) -> DefaultValue:
    value = int(text[2:-1], 2) if text.lower().startswith("b'") else int(text)
    bits = column.length or 1
    return bool(value) if bits == 1 else value.to_bytes((bits + 7) // 8, "little")


def _is_zero_date(text: str) -> bool:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return True
    return False


def _date_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else 0
    return (date.fromisoformat(text[:10]) - _EPOCH.date()).days


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("T", " "))
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _datetime_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else 0
    value = _microseconds(_padded_fraction(text))
    return value if (column.precision or 0) > _MILLISECOND_DIGITS else value // 1000


def _padded_fraction(text: str) -> str:
    whole, dot, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6.6}" if dot else whole


def _timestamp_default(column: Column, text: str) -> DefaultValue | None:
    if _is_zero_date(text):
        return None if column.nullable else "1970-01-01T00:00:00Z"
    moment = datetime.fromisoformat(_padded_fraction(text))
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _time_default(_column: Column, text: str) -> DefaultValue:
    sign = -1 if text.startswith("-") else 1
    whole, _, fraction = text.lstrip("+-").partition(".")
    hours, minutes, seconds = (int(part) for part in whole.split(":"))
    return sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(f"{fraction:0<6.6}"))


def _text_default(_column: Column, text: str) -> DefaultValue:
    return text


def _uuid_default(_column: Column, text: str) -> DefaultValue:
    return str(uuid.UUID(text))


def _binary_default(column: Column, text: str) -> DefaultValue:
    value = bytes.fromhex(text[2:]) if text.lower().startswith("0x") else text.encode()
    length = column.length or 0
    return value.ljust(length, b"\0") if column.type is ColumnType.BINARY else value


_DEFAULTS: Final[dict[ColumnType, Callable[[Column, str], DefaultValue | None]]] = {
    ColumnType.TINYINT: _integer_default,
    ColumnType.SMALLINT: _integer_default,
    ColumnType.MEDIUMINT: _integer_default,
    ColumnType.INT: _integer_default,
    ColumnType.BIGINT: _integer_default,
    ColumnType.YEAR: _year_default,
    ColumnType.DECIMAL: _decimal_default,
    ColumnType.FLOAT: _float_default,
    ColumnType.DOUBLE: _float_default,
    ColumnType.BIT: _bit_default,
    ColumnType.DATE: _date_default,
    ColumnType.TIME: _time_default,
    ColumnType.DATETIME: _datetime_default,
    ColumnType.TIMESTAMP: _timestamp_default,
    ColumnType.CHAR: _text_default,
    ColumnType.VARCHAR: _text_default,
    ColumnType.TINYTEXT: _text_default,
    ColumnType.TEXT: _text_default,
    ColumnType.MEDIUMTEXT: _text_default,
    ColumnType.LONGTEXT: _text_default,
    ColumnType.ENUM: _text_default,
    ColumnType.SET: _text_default,
    ColumnType.UUID: _uuid_default,
    ColumnType.INET4: _text_default,
    ColumnType.INET6: _text_default,
    ColumnType.BINARY: _binary_default,
    ColumnType.VARBINARY: _binary_default,
    ColumnType.TINYBLOB: _binary_default,
    ColumnType.BLOB: _binary_default,
    ColumnType.MEDIUMBLOB: _binary_default,
    ColumnType.LONGBLOB: _binary_default,
}
