"""Columns of the sink: the Spark type of a source column, and how a decoded Avro field becomes it.

The table is that of DESIGN §6. A field enters as the Avro node that AvroData wrote (base type,
`connect.name`, logical type); a `Field` leaves. Everything is a JVM expression: no Python runs on an
executor.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.errors import UnsupportedTypeError

MAX_PRECISION: Final = 38
_CHUNK_DIGITS: Final = 9
_CHUNKS: Final = 8  # 72 digits; DECIMAL has at most 65
_WORD_DIGITS: Final = 8
_WORD: Final = 16**_WORD_DIGITS
_ISO_DATE_CHARACTERS: Final = 10
_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME has no zone

_NESTED: Final = (T.StructType, T.ArrayType)
_INTEGERS: Final = (T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType())
_DIGITS_OF: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a writer schema.

    `read` turns the decoded Avro value into the sink's type. `fill` is what rows get that were written
    before the column was added: its default, for a required column without one what the server stores
    instead, else None. It is a value as Python has it for `type`.
    """

    name: str
    type: T.DataType
    read: Callable[[Column], Column]
    fill: Any = None


def field_of(avro_field: Mapping[str, Any]) -> Field:
    """Return the field of an Avro record field; `UnsupportedTypeError` for what no source column becomes."""
    node, required = _without_null(avro_field["type"])
    kind = _kind(node)
    if kind is None:
        message = f"column {avro_field['name']}: no column of a sink has the Avro type {node!r}"
        raise UnsupportedTypeError(message)
    default = avro_field.get("default")
    fill = None if default is None else kind.literal(default)
    if fill is None and required:
        fill = kind.implied
    return Field(avro_field["name"], kind.type, kind.read, fill)


def quoted(name: str) -> str:
    """Return an identifier in back quotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Any, kind: T.DataType) -> Column:
    """Return a constant of a sink type."""
    return widened(_constant(value), T.BinaryType() if isinstance(value, (bytes, bytearray)) else T.NullType(), kind)


def _constant(value: Any) -> Column:
    """Return a date or a time by way of its text: PySpark takes one without a zone for one in the zone of this machine."""
    if not isinstance(value, dt.date):
        return F.lit(value)
    if not isinstance(value, dt.datetime):
        return F.lit(value.isoformat()).cast("date")
    return F.lit(value.isoformat()).cast("timestamp_ntz" if value.tzinfo is None else "timestamp")


def widened(value: Column, given: T.DataType, kind: T.DataType) -> Column:
    """Return a value as a type has it that is as wide as its own: bytes by way of text, Spark casts nothing else to them.

    `narrowed` gets the value back out of it.
    """
    if isinstance(kind, (T.StringType, T.BinaryType)) and not isinstance(given, (T.StringType, T.BinaryType)):
        value = F.to_json(value) if isinstance(given, _NESTED) else value.cast(T.StringType())
    return value.cast(kind)


def narrowed(value: Column, given: T.DataType, kind: T.DataType) -> Column:
    """Return a value of a wider type as a type has it, NULL where it is none of that type. Need not be exact: 1.5 becomes 2."""
    if isinstance(given, T.BinaryType):
        value = F.try_validate_utf8(value.cast(T.StringType()))
    if isinstance(kind, _NESTED):
        return F.from_json(value, kind)
    return value.try_cast(kind)


def converted(value: Column, given: T.DataType, kind: T.DataType) -> Column:
    """Return a value as another type has it; NULL where the type is narrower and does not have it."""
    return widened(value, given, kind) if holds(kind, given) else narrowed(value, given, kind)


def holds(kind: T.DataType, given: T.DataType) -> bool:
    """Return whether a type has every value of another one."""
    return widest(given, kind) == kind


def widest(one: T.DataType, other: T.DataType) -> T.DataType:
    """Return the narrowest type that has every value of both; string if no other does, binary if one is binary."""
    if one == other:
        return one
    if isinstance(one, T.NullType):
        return other
    for left, right in ((one, other), (other, one)):
        if left in _INTEGERS and right in _INTEGERS:
            return max(one, other, key=_INTEGERS.index)
        wider = _wider(left, right)
        if wider is not None:
            return wider
    return T.StringType()


def _wider(left: T.DataType, right: T.DataType) -> T.DataType | None:
    if isinstance(left, T.DecimalType) and (isinstance(right, T.DecimalType) or right in _INTEGERS):
        return _decimal_union(left, right)
    if isinstance(left, T.FloatType) and isinstance(right, T.DoubleType):
        return right
    if isinstance(left, (T.ByteType, T.ShortType, T.IntegerType)) and isinstance(right, T.DoubleType):
        return right
    if isinstance(left, T.DateType) and isinstance(right, T.TimestampNTZType):
        return right
    if isinstance(left, T.BooleanType) and right in _INTEGERS:
        return right
    if isinstance(right, T.BinaryType):
        return right  # whatever is no bytes has a text, text is bytes, bytes need not be text
    return None


def _decimal_union(left: T.DecimalType, right: T.DataType) -> T.DataType:
    precision, scale = _digits(right)
    scale = max(left.scale, scale)
    whole = max(left.precision - left.scale, precision - _digits(right)[1])
    return T.DecimalType(whole + scale, scale) if whole + scale <= MAX_PRECISION else T.StringType()


def _digits(kind: T.DataType) -> tuple[int, int]:
    if isinstance(kind, T.DecimalType):
        return kind.precision, kind.scale
    return _DIGITS_OF[kind.simpleString()], 0


# ── Avro nodes ────────────────────


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values of one Avro node are read: the sink's type, the expression, constants out of the schema.

    `implied` is what the server stores for a NOT NULL column without a default in rows that were there
    before.
    """

    type: T.DataType
    read: Callable[[Column], Column]
    literal: Callable[[Any], Any]
    implied: Any = None


def _same(value: Any) -> Any:
    return value


def _plain(kind: T.DataType, implied: Any = None, literal: Callable[[Any], Any] = _same) -> _Kind:
    return _Kind(kind, _same, literal, implied)


def _without_null(node: Any) -> tuple[dict[str, Any], bool]:
    """Return a field's node without its union, as a dictionary, and whether the field is required."""
    branches = [branch for branch in node if branch != "null"] if isinstance(node, list) else [node]
    required = not isinstance(node, list)
    inner = branches[0] if len(branches) == 1 else {"type": branches}
    return ({"type": inner} if isinstance(inner, str) else dict(inner)), required


def _kind(node: Mapping[str, Any]) -> _Kind | None:
    name = node.get("connect.name")
    if isinstance(name, str) and name in _SEMANTIC:
        return _SEMANTIC[name](node)
    base = node.get("type")
    if base == "int" and node.get("connect.type") in ("int8", "int16"):
        return _Kind(T.ShortType(), lambda value: value.cast("smallint"), _same, 0)
    return _BASE.get(base) if isinstance(base, str) else None


def _latin1(text: str) -> bytearray:
    return bytearray(text.encode("latin-1"))


_BASE: Final[Mapping[str, _Kind]] = {
    "int": _plain(T.IntegerType(), 0),
    "long": _plain(T.LongType(), 0),
    "float": _plain(T.FloatType(), 0.0),
    "double": _plain(T.DoubleType(), 0.0),
    "boolean": _plain(T.BooleanType(), implied=False),
    "string": _plain(T.StringType(), ""),
    "bytes": _plain(T.BinaryType(), None, _latin1),
}


def _date(_node: Mapping[str, Any]) -> _Kind:
    return _Kind(T.DateType(), F.date_from_unix_date, lambda days: _EPOCH_DAY + dt.timedelta(days=days))


def _datetime(microseconds: int) -> Callable[[Mapping[str, Any]], _Kind]:
    def read(value: Column) -> Column:
        moment = F.timestamp_micros(value) if microseconds == 1 else F.timestamp_millis(value)
        return moment.cast("timestamp_ntz")  # exact: the session's time zone is UTC

    def moment(value: int) -> dt.datetime:
        return _EPOCH + dt.timedelta(microseconds=value * microseconds)

    return lambda _node: _Kind(T.TimestampNTZType(), read, moment)


def _nano_timestamp(_node: Mapping[str, Any]) -> _Kind:
    inner = _datetime(1)(_node)
    return _Kind(inner.type, lambda value: inner.read(_over_1000(value)), lambda ns: inner.literal(ns // 1000))


def _over_1000(value: Column) -> Column:
    return F.call_function("div", value, F.lit(1000).cast("bigint"))


def _time(numerator: int, denominator: int) -> Callable[[Mapping[str, Any]], _Kind]:
    """Return a time of day as a number: microseconds in the sink, `numerator / denominator` of what was written."""

    def read(value: Column) -> Column:
        wide = value.cast("bigint")
        return wide * F.lit(numerator).cast("bigint") if denominator == 1 else _over_1000(wide)

    return lambda _node: _Kind(T.LongType(), read, lambda value: value * numerator // denominator, 0)


def _iso_date(_node: Mapping[str, Any]) -> _Kind:
    return _Kind(
        T.DateType(),
        lambda value: F.substring(value, 1, _ISO_DATE_CHARACTERS).try_cast("date"),
        lambda text: dt.date.fromisoformat(text[:_ISO_DATE_CHARACTERS]),
    )


def _iso_timestamp(_node: Mapping[str, Any]) -> _Kind:
    def moment(text: str) -> dt.datetime:
        return dt.datetime.fromisoformat(text).replace(tzinfo=None)

    read = lambda value: F.rtrim(value, F.lit("Z")).try_cast("timestamp_ntz")  # noqa: E731
    return _Kind(T.TimestampNTZType(), read, moment)


def _iso_time(_node: Mapping[str, Any]) -> _Kind:
    """`HH:MM:SS[.ffffff]Z` as microseconds of the day."""

    def read(value: Column) -> Column:
        def part(start: int, size: int) -> Column:
            return F.substring(value, start, size).try_cast("bigint")

        seconds = part(1, 2) * F.lit(3600) + part(4, 2) * F.lit(60) + part(7, 2)
        fraction = F.rpad(F.regexp_extract(value, r"\.(\d+)", 1), 6, "0").try_cast("bigint")
        return seconds * F.lit(1_000_000) + fraction

    def microseconds(text: str) -> int:
        whole, _, fraction = text.rstrip("Z").partition(".")
        hours, minutes, seconds = (int(part) for part in whole.split(":"))
        return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(f"{fraction:0<6}")

    return _Kind(T.LongType(), read, microseconds, 0)


def _zoned(_node: Mapping[str, Any]) -> _Kind:
    def moment(text: str) -> dt.datetime:
        return dt.datetime.fromisoformat(text)

    return _Kind(T.TimestampType(), F.try_to_timestamp, moment)


def _enum(node: Mapping[str, Any]) -> _Kind:
    allowed = node.get("connect.parameters", {}).get("allowed", "")
    first = re.split(r"(?<!\\)(?:\\\\)*,", allowed)[0]
    return _plain(T.StringType(), re.sub(r"\\(.)", r"\1", first))


def _decimal(node: Mapping[str, Any]) -> _Kind:
    precision, scale = int(node["precision"]), int(node["scale"])

    def number(text: str) -> Decimal:
        with localcontext() as context:
            context.prec = 100
            return Decimal(int.from_bytes(text.encode("latin-1"), "big", signed=True)).scaleb(-scale)

    if precision <= MAX_PRECISION:
        return _plain(T.DecimalType(precision, scale), Decimal(0), number)
    zero = f"{Decimal(0):.{scale}f}"
    return _Kind(
        T.StringType(),
        lambda value: decimal_text(value, scale),
        lambda text: f"{number(text):f}",
        zero,
    )


_GEOMETRY: Final = T.StructType(
    [T.StructField("srid", T.IntegerType()), T.StructField("wkb", T.BinaryType())]
)


def _geometry(_node: Mapping[str, Any]) -> _Kind:
    """Geometry and Point alike: x and y of a Point are in its WKB."""

    def read(value: Column) -> Column:
        parts = F.struct(value["srid"].alias("srid"), value["wkb"].alias("wkb"))
        return F.when(value.isNotNull(), parts).cast(_GEOMETRY)

    return _Kind(_GEOMETRY, read, _same)


def _vector(_node: Mapping[str, Any]) -> _Kind:
    kind = T.ArrayType(T.FloatType())
    return _Kind(kind, lambda value: value.cast(kind), _same)


_SEMANTIC: Final[Mapping[str, Callable[[Mapping[str, Any]], _Kind]]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.time.Date": _date,
    "io.debezium.time.Timestamp": _datetime(1000),
    "io.debezium.time.MicroTimestamp": _datetime(1),
    "io.debezium.time.ZonedTimestamp": _zoned,
    "io.debezium.time.NanoTime": _time(1, 1000),
    "io.debezium.time.NanoTimestamp": _nano_timestamp,
    "io.debezium.time.IsoDate": _iso_date,
    "io.debezium.time.IsoTime": _iso_time,
    "io.debezium.time.IsoTimestamp": _iso_timestamp,
    "org.apache.kafka.connect.data.Date": _date,
    "org.apache.kafka.connect.data.Time": _time(1000, 1),
    "org.apache.kafka.connect.data.Timestamp": _datetime(1000),
    "io.debezium.data.Enum": _enum,
    "io.debezium.data.geometry.Geometry": _geometry,
    "io.debezium.data.geometry.Point": _geometry,
    "io.debezium.data.FloatVector": _vector,
}


def without_logical_type(node: Any) -> Any:
    """Return an Avro node as Spark shall read it.

    A Decimal of more digits than Spark has is read as bytes, Connect's own times as the numbers they are: Spark
    would refuse those of before 1582.
    """
    if not isinstance(node, dict):
        return node
    if node.get("logicalType") == "decimal":
        return "bytes" if node["precision"] > MAX_PRECISION else node
    return node["type"] if node.get("logicalType") in _TIMES else node


_TIMES: Final = ("date", "time-millis", "timestamp-millis")


def decimal_text(value: Column, scale: int) -> Column:
    """Big-endian two's complement bytes of up to 30 bytes as decimal text with `scale` fraction digits.

    Spark has no integer of more than 38 digits: the bytes are folded, four at a time, into chunks of nine.
    """
    text = _let(F.hex(value), lambda hexes: _decimal_text(hexes, scale))
    return F.when(value.isNotNull(), text)


def _decimal_text(hexes: Column, scale: int) -> Column:
    negative = F.substring(hexes, 1, 1) >= F.lit("8")
    words = F.ceil(F.length(hexes) / _WORD_DIGITS).cast("int")
    padded = F.lpad(hexes, words * _WORD_DIGITS, F.when(negative, F.lit("F")).otherwise(F.lit("0")))
    numbers = _let(
        padded, lambda text: F.transform(F.sequence(F.lit(0), words - 1), lambda index: _word(text, index))
    )
    # |v| = ~v + 1 for a negative v: the complement's words, and 1 added at the end.
    flipped = F.transform(numbers, lambda word: F.when(negative, F.lit(_WORD - 1) - word).otherwise(word))
    zero = F.array(*[F.lit(0).cast("bigint") for _ in range(_CHUNKS)])
    folded = F.aggregate(flipped, zero, lambda chunks, word: _times_plus(chunks, _WORD, word))
    magnitude = _times_plus(folded, 1, F.when(negative, F.lit(1)).otherwise(F.lit(0)).cast("bigint"))
    padded_chunks = F.transform(magnitude, lambda chunk: F.lpad(chunk.cast("string"), _CHUNK_DIGITS, "0"))
    text = _let(F.array_join(F.reverse(padded_chunks), ""), lambda digits: _with_point(digits, scale))
    return F.concat(F.when(negative, F.lit("-")).otherwise(F.lit("")), text)


def _with_point(digits: Column, scale: int) -> Column:
    whole = F.regexp_replace(F.substring(digits, 1, _CHUNKS * _CHUNK_DIGITS - scale), "^0+(?=.)", "")
    return F.concat(whole, F.lit("."), F.substring(digits, -scale, scale)) if scale else whole


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once: an expression used twice is evaluated twice, lambdas always."""
    return F.element_at(F.transform(F.array(value), body), 1)


def _word(hexes: Column, index: Column) -> Column:
    return F.conv(F.substring(hexes, index * _WORD_DIGITS + 1, F.lit(_WORD_DIGITS)), 16, 10).cast("bigint")


def _times_plus(chunks: Column, factor: int, addend: Column) -> Column:
    """Little-endian chunks of base 10^9, times a factor of up to 2^32, plus an addend below that."""
    base = F.lit(10**_CHUNK_DIGITS).cast("bigint")
    start = F.struct(addend.alias("carry"), F.array().cast("array<bigint>").alias("done"))

    def step(state: Column, chunk: Column) -> Column:
        total = chunk * F.lit(factor).cast("bigint") + state["carry"]
        done = F.concat(state["done"], F.array(total % base))
        return F.struct(F.call_function("div", total, base).alias("carry"), done.alias("done"))

    return F.aggregate(chunks, start, step, lambda state: state["done"])
