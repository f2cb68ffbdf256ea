"""Connect schemas of single values, as Debezium 3.6 has them: of each semantic type, and of times in each mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.columns import Column
from schemas.connect_types import (
    DATE_NAME,
    DECIMAL_NAME,
    ISO_DATE_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    UNSIGNED_BIGINT_PRECISION,
    ConnectField,
    ConnectSchema,
    ConnectType,
    TimeMode,
)
from schemas.types.column_defaults import MILLISECOND_DIGITS, decimal_digits
from schemas.types.column_facts import FACTS, FLOAT_BYTES, Semantic

_INTEGERS: Final = ((16, ConnectType.INT16), (32, ConnectType.INT32), (64, ConnectType.INT64))


def named(kind: ConnectType, name: str) -> ConnectSchema:
    """Return a schema with Debezium's or Connect's name of it."""
    return ConnectSchema(kind, name=name, version=1)


def integer(column: Column) -> ConnectSchema:
    """Return the schema of the narrowest signed integer that has every value; a BIGINT UNSIGNED is a Decimal."""
    bits = 8 * FACTS[column.type].size + column.unsigned
    kind = next((kind for room, kind in _INTEGERS if bits <= room), None)
    return decimal_schema(UNSIGNED_BIGINT_PRECISION, 0) if kind is None else ConnectSchema(kind)


def decimal_schema(precision: int, scale: int) -> ConnectSchema:
    """Return Connect's Decimal: unscaled big-endian two's complement bytes; scale and precision in the schema."""
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)


def decimal(column: Column) -> ConnectSchema:
    """Return the schema of a DECIMAL."""
    return decimal_schema(*decimal_digits(column))


def floating(column: Column) -> ConnectSchema:
    """Return the schema of a FLOAT or DOUBLE; FLOAT(M,D) is a double."""
    is_single = FACTS[column.type].size == FLOAT_BYTES and column.length is None
    return ConnectSchema(ConnectType.FLOAT32 if is_single else ConnectType.FLOAT64)


def bit(column: Column) -> ConnectSchema:
    """Return the schema of a BIT; BIT(1) is a boolean."""
    bits = column.length or 1
    if bits == 1:
        return ConnectSchema(ConnectType.BOOLEAN)
    parameters = (("length", str(bits)),)
    return ConnectSchema(ConnectType.BYTES, name="io.debezium.data.Bits", version=1, parameters=parameters)


def moment(column: Column) -> ConnectSchema:
    """Return the schema of a DATETIME."""
    digits = column.precision or 0
    name = "Timestamp" if digits <= MILLISECOND_DIGITS else "MicroTimestamp"
    return named(ConnectType.INT64, f"io.debezium.time.{name}")


def members(name: str) -> Callable[[Column], ConnectSchema]:
    """Return the builder of the schema of an ENUM or SET."""

    def schema(column: Column) -> ConnectSchema:
        allowed = ",".join(escape_member(member) for member in column.members)
        return ConnectSchema(ConnectType.STRING, name=name, version=1, parameters=(("allowed", allowed),))

    return schema


def escape_member(member: str) -> str:
    r"""Return an ENUM or SET member as it is in the parameter `allowed`: `\` becomes `\\`, `,` becomes `\,`."""
    return member.replace("\\", "\\\\").replace(",", "\\,")


GEOMETRY: Final = ConnectSchema(
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
POINT: Final = ConnectSchema(
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
VECTOR: Final = ConnectSchema(
    ConnectType.ARRAY,
    name="io.debezium.data.FloatVector",
    version=1,
    items=ConnectSchema(ConnectType.FLOAT32),
)
TIMES: Final[dict[TimeMode, dict[Semantic, ConnectSchema]]] = {
    "adaptive_time_microseconds": {},
    "microseconds": {Semantic.DATETIME: named(ConnectType.INT64, "io.debezium.time.MicroTimestamp")},
    "nanoseconds": {
        Semantic.TIME: named(ConnectType.INT64, "io.debezium.time.NanoTime"),
        Semantic.DATETIME: named(ConnectType.INT64, "io.debezium.time.NanoTimestamp"),
    },
    "connect": {
        Semantic.DATE: named(ConnectType.INT32, DATE_NAME),
        Semantic.TIME: named(ConnectType.INT32, TIME_NAME),
        Semantic.DATETIME: named(ConnectType.INT64, TIMESTAMP_NAME),
    },
    "isostring": {
        Semantic.DATE: named(ConnectType.STRING, ISO_DATE_NAME),
        Semantic.TIME: named(ConnectType.STRING, "io.debezium.time.IsoTime"),
        Semantic.DATETIME: named(ConnectType.STRING, "io.debezium.time.IsoTimestamp"),
    },
}
"""The schemas of types that a mode of `time.precision.mode` changes; the others are as in the table."""
