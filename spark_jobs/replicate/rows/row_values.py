"""Change records as rows, and the values of rows as SQL literals of MySQL and MariaDB.

What enters: the bytes of a record (Avro, Confluent's framing) and its headers. What leaves: `RowChange`, and for a table of the
target the columns of a record with the literal of each value.

Literals are bytes of a statement in utf8mb4. The session has the time zone +00:00, and the sql_mode `STRICT_TRANS_TABLES,
ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO`: with NO_BACKSLASH_ESCAPES a literal would mean another text.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple

from mysqlio.quoting import quoted_bytes
from schemas.applied.avro_decoding import AvroDecoder
from schemas.avro import avro_field_name
from schemas.columns import Column, TableSchema
from schemas.connect_types import DECIMAL_NAME, PRECISE, ValueModes
from schemas.errors import ConfigError, DecodeError
from schemas.exact_values import EXACT_HEADER, NO_EXACT_VALUES, ExactValues
from schemas.names import adjusted_field_name
from schemas.types import connect_bases as bases
from schemas.types.column_facts import Semantic, is_beyond_long, semantic_of
from spark_jobs.arrow import literal_kernels as kernels
from spark_jobs.replicate.rows.record_heads import HeadReader, RecordHead, head_of

Writer = Callable[[Any], bytes]
"""Returns the literal of a value that is not NULL."""
Row = Mapping[str, Any]
"""The values of a row by the names of fields."""

_DAY_US: Final = 86_400_000_000
_ERA_DAYS: Final = 146_097
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LONGS: Final = 1 << 64
_MICRO_TIMESTAMP: Final = "io.debezium.time.MicroTimestamp"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A record: its operation (Debezium's letter), both images, and its source block. A zero or impossible date is a text."""

    schema_id: int
    op: str
    before: Row | None
    after: Row | None
    source: Mapping[str, Any]
    foreign_key_checks: bool = True

    @property
    def head(self) -> RecordHead:
        """The head of the record."""
        return head_of(self.schema_id, self.op, self.source)


class RowRecord(NamedTuple):
    """The bytes of a record that has a row, and the header `tidemark.exact`, b"" without it."""

    value: bytes
    exact: bytes = b""

    @property
    def checks_keys(self) -> bool:
        """Whether foreign keys were checked for the change. `DecodeError` for a damaged header."""
        return not self.exact or ExactValues.parse(self.exact).foreign_key_checks != 0


class LiteralForm(NamedTuple):
    """How a kernel writes the literals of a column: a kind of `literal_kernels`, the digits behind the point or the unit in µs.

    `floating`: the bytes of a FLOAT or DOUBLE, whose texts Python makes.
    """

    kind: int
    scale: int = 0
    floating: int = 0


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the target, the field of the record that has its values, and the writer of their literals.

    `lacks_empty`: an ENUM without the member '': this is its error value then, which a strict session refuses. `form` is None if no
    kernel writes the same literals.
    """

    name: str
    field: str
    write: Writer
    lacks_empty: bool = False
    form: LiteralForm | None = None

    def literal(self, row: Row) -> bytes:
        """Return the literal of the row's value."""
        value = row[self.field]
        return b"NULL" if value is None else self.write(value)


def is_refused_if_strict(columns: Iterable[RowColumn], row: Row) -> bool:
    """Return whether a row has the error value of an ENUM: its statement needs a sql_mode without STRICT_TRANS_TABLES."""
    return any(column.lacks_empty and row[column.field] == "" for column in columns)


class RowDecoder:
    """A decoder of change records. Each schema is fetched once, by its id: `HttpRegistry.text_of`."""

    def __init__(self, fetch: Callable[[int], str]) -> None:
        self._avro = AvroDecoder(fetch)
        self.columns = cache(self._columns)
        self.schema = self._avro.schema
        """Returns the schema with an id, as the registry has it."""
        self.heads = HeadReader(self._avro.schema, self.head).heads
        """Returns the heads of the values of records. Errors as `decode`."""

    def decode(self, value: bytes, headers: Iterable[tuple[str, bytes | None]] | None = None) -> RowChange:
        """Return the change of a record's value and headers.

        Raises `DecodeError` for damaged bytes and for a value without an envelope, `RegistryError` for an unknown schema.
        """
        schema_id, envelope = self._envelope(value)
        note = exact_note(headers or ())
        exact = ExactValues.parse(note) if note else NO_EXACT_VALUES
        return RowChange(
            schema_id,
            envelope["op"],
            _overridden(envelope["before"], exact.before),
            _overridden(envelope["after"], exact.after),
            envelope["source"],
            exact.foreign_key_checks != 0,
        )

    def head(self, value: bytes) -> RecordHead:
        """Return the head of a record's value. Errors as `decode`."""
        schema_id, envelope = self._envelope(value)
        return head_of(schema_id, envelope["op"], envelope["source"])

    def old_row(self, record: RowRecord) -> Row | None:
        """Return the row before a change, None without one. Errors as `decode`."""
        return self._row(record, "before")

    def new_row(self, record: RowRecord) -> Row | None:
        """Return the row after a change, None without one. Errors as `decode`."""
        return self._row(record, "after")

    def _row(self, record: RowRecord, image: str) -> Row | None:
        row = self._envelope(record.value)[1][image]
        return _overridden(row, getattr(ExactValues.parse(record.exact), image)) if record.exact else row

    def _envelope(self, value: bytes) -> tuple[int, dict[str, Any]]:
        decoded = self._avro.decode(value)
        envelope = decoded.payload
        if not isinstance(envelope, dict) or not {"op", "before", "after", "source"} <= envelope.keys():
            raise DecodeError(f"a value of schema id {decoded.schema_id} has no envelope: turn records.unwrap off at the producer")
        return decoded.schema_id, envelope

    def payload(self, value: bytes) -> Any:
        """Return the payload of any other value. Errors as `decode`."""
        return self._avro.decode(value).payload

    def _columns(
        self, schema_id: int, table: TableSchema, filled: frozenset[str] = frozenset(), modes: ValueModes = PRECISE
    ) -> tuple[RowColumn, ...]:
        """Return the columns of the target's table that records of a schema have values for, in the table's order.

        `filled` are columns that the target fills itself: they may be missing, and are left out. `modes` are the producer's.
        Raises `ConfigError` for a column without values, and if the values may differ from the source's.
        """
        fields = _row_fields(self._avro.schema(schema_id))
        return tuple(_column(column, fields, table, modes) for column in table.columns if column.name not in filled)


def exact_note(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Return the header `tidemark.exact` of a record, b"" without it."""
    return next((value or b"" for name, value in headers if name == EXACT_HEADER), b"")


def _overridden(row: Row | None, texts: Mapping[str, str]) -> Row | None:
    return row if row is None or not texts else {**row, **texts}


# ── the schema of a record ────────────────────


def _row_fields(schema: Any) -> dict[str, Mapping[str, Any]]:
    """Return the type of each field of a row, without its union, in a dictionary."""
    before = next(field["type"] for field in schema["fields"] if field["name"] == "before")
    return {field["name"]: _node(field["type"]) for field in _node(before)["fields"]}


def _node(union: Any) -> dict[str, Any]:
    node = next(branch for branch in union if branch != "null") if isinstance(union, list) else union
    return dict(node) if isinstance(node, dict) else {"type": node}


def _column(column: Column, fields: Mapping[str, Mapping[str, Any]], table: TableSchema, modes: ValueModes) -> RowColumn:
    name = avro_field_name(adjusted_field_name(column.name, modes.field_names))
    where = f"{table.full_name}.{column.name}"
    node = fields.get(name)
    if node is None:
        reason = "the records have no values of it: check records.column_include_list and column_exclude_list at the producer"
        raise ConfigError(f"{where}: {reason}")
    lacks_empty = semantic_of(column) is Semantic.ENUM and "" not in column.members
    write, form = _writer(node, column, where, modes)
    return RowColumn(column.name, name, write, lacks_empty, form)


def _writer(node: Mapping[str, Any], column: Column, where: str, modes: ValueModes) -> tuple[Writer, LiteralForm | None]:
    """Return how a field's values are written for a column. `ConfigError` if they are not the source's, or not certain."""
    kind, semantic = node.get("connect.name") or node["type"], semantic_of(column)
    parameters = node.get("connect.parameters", {})
    if "masked" in parameters or "truncateLength" in parameters:
        raise ConfigError(f"{where}: its values are masked: remove the column from records.column_mask_… at the producer")
    if kind in _LOSSY_TIMES:
        raise _inexact(where, "time", _LOSSY_TIMES[kind], "adaptive_time_microseconds, or microseconds")
    if kind == "double" and semantic is Semantic.DECIMAL:
        raise _inexact(where, "decimal", "double", "precise")
    if kind == "string" and semantic is Semantic.DECIMAL:
        return _number_text, LiteralForm(kernels.DIGITS)
    if kind == "string" and semantic is Semantic.BINARY:
        if modes.binary not in _FROM_TEXT:
            raise _inexact(where, "binary", "a mode of texts", "bytes")
        return _binary_of(_FROM_TEXT[modes.binary]), None
    if kind == "long" and is_beyond_long(column) and modes.bigint_unsigned == "long":
        return lambda value: b"%d" % (value % _LONGS), LiteralForm(kernels.UNSIGNED)
    if kind not in _WRITERS:
        raise ConfigError(f"{where}: its values have the type {kind!r}, which no column of MySQL or MariaDB has")
    write, form = _WRITERS[kind]
    return write, LiteralForm(kernels.DECIMAL, int(node["scale"])) if kind == DECIMAL_NAME else form


def _inexact(where: str, setting: str, mode: str, exact: str) -> ConfigError:
    return ConfigError(f"{where}: format.{setting} is {mode}, which loses values: set {exact} at the producer")


# ── literals ────────────────────


def _number(value: int) -> bytes:
    return b"%d" % value


def _number_text(value: str) -> bytes:
    return f"{Decimal(value):f}".encode()


def floating_literal(value: float) -> bytes:
    """Return the shortest digits of a double, with an exponent: without one they would be a DECIMAL.

    A FLOAT is widened. Its double has the digits that become the same FLOAT.
    """
    text = repr(value)
    return (text if "e" in text else f"{text}e0").encode()


def _text(value: str) -> bytes:
    return quoted_bytes(value.encode())


def _binary(value: bytes) -> bytes:
    return b"_binary%b" % quoted_bytes(value)


def _binary_of(read: Callable[[str], bytes]) -> Writer:
    return lambda value: _binary(read(value))


def _bits(value: bytes) -> bytes:
    return _number(int.from_bytes(value, "little"))


def _geometry(value: Mapping[str, Any]) -> bytes:
    """Return the server's own form: the SRID, then the WKB, whose first coordinate is x in every SRID."""
    return _binary(struct.pack("<i", value["srid"] or 0) + value["wkb"])


def _vector(value: list[float]) -> bytes:
    return _binary(struct.pack(f"<{len(value)}f", *value))


def _decimal(value: Decimal) -> bytes:
    return f"{value:f}".encode()


def _date_text(days: int) -> str:
    """Return days since 1970 as a date; Python's dates have no year 0, and a calendar repeats itself after 400 years."""
    ordinal = _EPOCH_DAY + days
    if ordinal > 0:
        return date.fromordinal(ordinal).isoformat()
    later = date.fromordinal(ordinal + _ERA_DAYS)
    return f"{later.year - 400:04}{later.isoformat()[4:]}"


def _clock_text(microseconds: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    sign = "-" if microseconds < 0 else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _temporal(text_of: Callable[[int], str]) -> Writer:
    """Return the writer of a date or time; a text is one that the envelope cannot say."""
    return lambda value: f"'{value if isinstance(value, str) else text_of(value)}'".encode()


def _moment_text(unit: int) -> Callable[[int], str]:
    def text(value: int) -> str:
        days, rest = divmod(value * unit, _DAY_US)
        return f"{_date_text(days)} {_clock_text(rest)}"

    return text


def _zoned(value: str) -> bytes:
    return f"'{value.rstrip('Z').replace('T', ' ')}'".encode()


_LOSSY_TIMES: Final = {
    schema.name: mode
    for mode, schemas in bases.TIMES.items()
    for schema in schemas.values()
    if schema.name is not None and schema.name != _MICRO_TIMESTAMP
}
_FROM_TEXT: Final[Mapping[str, Callable[[str], bytes]]] = {
    "base64": base64.b64decode,
    "base64-url-safe": base64.urlsafe_b64decode,
    "hex": bytes.fromhex,
}
_NUMBER: Final = (_number, LiteralForm(kernels.NUMBER))
_TEXT: Final = (_text, LiteralForm(kernels.TEXT))
_GEOMETRY: Final = (_geometry, LiteralForm(kernels.GEOMETRY))
_WRITERS: Final[Mapping[str, tuple[Writer, LiteralForm | None]]] = {
    "int": _NUMBER,
    "long": _NUMBER,
    "float": (floating_literal, LiteralForm(kernels.PLAIN, floating=4)),
    "double": (floating_literal, LiteralForm(kernels.PLAIN, floating=8)),
    "boolean": _NUMBER,
    "string": _TEXT,
    "bytes": (_binary, LiteralForm(kernels.BINARY)),
    DECIMAL_NAME: (_decimal, None),
    "io.debezium.data.Bits": (_bits, LiteralForm(kernels.BITS)),
    "io.debezium.data.Enum": _TEXT,
    "io.debezium.data.EnumSet": _TEXT,
    "io.debezium.data.Json": _TEXT,
    "io.debezium.data.Uuid": _TEXT,
    "io.debezium.data.FloatVector": (_vector, None),
    "io.debezium.data.geometry.Geometry": _GEOMETRY,
    "io.debezium.data.geometry.Point": _GEOMETRY,
    "io.debezium.time.Date": (_temporal(_date_text), LiteralForm(kernels.DATE)),
    "io.debezium.time.MicroTime": (_temporal(_clock_text), LiteralForm(kernels.CLOCK)),
    "io.debezium.time.Timestamp": (_temporal(_moment_text(1000)), LiteralForm(kernels.MOMENT, 1000)),
    _MICRO_TIMESTAMP: (_temporal(_moment_text(1)), LiteralForm(kernels.MOMENT, 1)),
    "io.debezium.time.Year": _NUMBER,
    "io.debezium.time.ZonedTimestamp": (_zoned, LiteralForm(kernels.ZONED)),
}
"""By Connect's name of a type, or Avro's if it has none: one for each schema of `schemas.types.semantic_types`."""
