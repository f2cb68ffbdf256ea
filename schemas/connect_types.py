"""Kafka Connect's schemas as values, and the modes that change what columns become (Debezium 3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from schemas.names import NameMode
from schemas.topics import DELIMITER

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
SOURCE_PARAMETER: Final = "__debezium.source.column."
"""The beginning of the names of parameters that are about a column in the source."""


@dataclass(frozen=True, slots=True)
class ValueModes:
    """What values and names become: Debezium's `*.handling.mode`, `time.precision.mode`, `*.name.adjustment.mode`.

    Schemas are called after the topic of their table, so `topic.delimiter` is in their names, too.
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
        """Return the schema of the field of that name; `KeyError` when there is none."""
        for field in self.fields:
            if field.name == name:
                return field.schema
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ConnectField:
    """A named field of a STRUCT."""

    name: str
    schema: ConnectSchema
