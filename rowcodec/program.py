"""Compiles a table version into a column program: one int64 array and one byte pool that kernels run.

What enters is a `TableSchema`, a wire format and how the source lays its bytes out; what leaves is a `Program`.
The array: a head (ops.H_*), a row of ops.PROGRAM_WIDTH numbers per column, the same per key column, the
envelope's template, and the member tables of ENUM and SET columns. Nothing here runs per row.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from rowcodec import ops
from rowcodec.charset_maps import PYTHON_CHARSETS, SINGLE_BYTE_CHARSETS, UTF8_CHARSETS, utf8_table
from rowcodec.codec_kernels import Bytes, Ints
from rowcodec.decimals import packed_size
from rowcodec.json_binary import OVERRUN, TEXT_FACTOR, TEXT_SLACK
from rowcodec.memory import BLOCK
from rowcodec.python_cells import (
    CellEncoder,
    address_cell,
    compressed_cell,
    decimal_cell,
    java_text,
    masking,
    packed_decimal,
    printed_decimal,
    spatial_cell,
    text_cell,
    vector_cell,
)
from rowcodec.types import BinlogLayout, RecordOptions, SourceConstants, WireSchemas
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ISO_DATE_NAME, ConnectSchema, ConnectType
from schemas.errors import SchemaMismatchError, UnsupportedTypeError
from schemas.names import adjusted_field_name
from schemas.overriding import override
from schemas.types.column_defaults import decimal_digits, year_zero
from schemas.types.column_facts import (
    ADDRESS_TYPES,
    FACTS,
    FLOAT_BYTES,
    FLOAT_TYPES,
    FRACTION_TYPES,
    INTEGER_TYPES,
    MEMBER_TYPES,
    TEXT_TYPES,
    Semantic,
    fixed_length,
    is_beyond_long,
    types_of,
)
from schemas.types.connect import all_columns
from schemas.types.semantic_types import binary_text, scaled_text

_BIGGEST_TEXT: Final = 12  # a varint of ten bytes, or two quotes
_NUMBER_BOUND: Final = 32
_DECIMAL_BOUND: Final = 72
_ISO_BOUND: Final = 40
_LONG_LENGTH: Final = 255

_BLOB_CODES: Final = frozenset({249, 250, 251, 252})
_STRUCTURED: Final = types_of(Semantic.GEOMETRY, Semantic.POINT, Semantic.VECTOR)
_OLD_TEMPORAL: Final = {7: "TIMESTAMP", 11: "TIME", 12: "DATETIME"}
_COMPRESSED_BLOB: Final = 140
_PREFIXED_CODES: Final = frozenset({242, 245, 255})  # VECTOR, JSON, spatial: metadata is the length's bytes
_COMPRESSED: Final = {140: 252, 141: 15}  # MariaDB's, and the codes of what they hold


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled table version for one source of bytes.

    `string_slots` counts nothing at run time: strings of a context follow each other in template order.
    `python_cells` are the encoders of the Python column path, in the order of their ordinals.
    """

    numbers: Ints
    pool: Bytes
    python_cells: tuple[CellEncoder, ...]
    head_bound: int  # bytes of the expanded template beside six times the context's strings


@dataclass(frozen=True, slots=True)
class _Cell:
    """How one column is found, converted and bounded."""

    locate: int
    width: int
    op: int
    a: int = 0
    b: int = 0
    bound: int = _NUMBER_BOUND
    growth: int = 0  # 0 = the layout's


@dataclass(slots=True)
class _Pool:
    """Constant bytes, each distinct piece once."""

    data: bytearray = field(default_factory=bytearray)
    seen: dict[bytes, int] = field(default_factory=dict)

    def add(self, piece: bytes) -> tuple[int, int]:
        if piece not in self.seen:
            self.seen[piece] = len(self.data)
            self.data += piece
        return self.seen[piece], len(piece)


# ── constants of the two layouts ────────────────────


def avro_number(value: int) -> bytes:
    """Avro's zigzag varint of an int or long."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def json_text(text: str) -> bytes:
    """Return a JSON string as Jackson writes it (control characters in upper-case hex), in UTF-8."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(
        r"\\u00[0-9a-f]{2}", lambda match: match.group()[:2] + match.group()[2:].upper(), quoted
    ).encode()


class _Avro:
    """The pieces of Avro in Confluent's wire format."""

    layout = ops.AVRO
    null = b"\x00"
    open = b"\x02"
    close = b""
    after = b""
    key_close = b""
    factor = 1

    def __init__(self, wire: WireSchemas, *, has_columns: bool = True) -> None:
        del has_columns  # names stand in the schema alone
        self.frame = struct.pack(">bI", 0, wire.value_id)
        self.key_frame = struct.pack(">bI", 0, wire.key_id)

    def number(self, value: int) -> bytes:
        return avro_number(value)

    def flag(self, value: str) -> bytes:
        """Return a value of `__deleted`, which flat rows have."""
        return self.text(value)

    def text(self, value: str) -> bytes:
        return self.member(value.encode())

    def member(self, value: bytes) -> bytes:
        return avro_number(len(value)) + value

    def bare(self, value: str) -> bytes:
        return value.encode()

    def blob(self, value: bytes) -> bytes:
        return self.member(value)

    def floating(self, value: bytes) -> bytes:
        return value

    def present(self, value: bytes | None) -> bytes:
        return b"\x00" if value is None else b"\x02" + value

    def struct(self, members: Sequence[tuple[str, bytes]]) -> bytes:
        return b"".join(value for _, value in members)

    def array(self, items: Sequence[bytes]) -> bytes:
        return (avro_number(len(items)) if items else b"") + b"".join(items) + b"\x00"

    def leads(self, _name: str, _first: bool, schema: ConnectSchema) -> tuple[bytes, bytes]:
        """(before a value, instead of a value): the branches of the column's union."""
        if not schema.optional:
            return b"", b""
        return (b"\x00", b"\x02") if schema.default is not None else (b"\x02", b"\x00")

    def _transaction(self) -> list[tuple[int, bytes | int]]:
        return [
            (ops.T_CONSTANT, b"\x02"),
            (ops.T_STRING, ops.S_TRANSACTION),
            (ops.T_MARK, 0),
            (ops.T_MARK, 0),
        ]

    def template(
        self, constants: SourceConstants, database: str, table: str, *, transactions: bool
    ) -> list[tuple[int, bytes | int]]:
        return [
            (
                ops.T_CONSTANT,
                self.text(constants.version) + self.text(constants.connector) + self.text(constants.name),
            ),
            (ops.T_NUMBER, ops.S_TS_MS),
            (ops.T_CONSTANT, b"\x00"),
            (ops.T_STRING, ops.S_SNAPSHOT),
            (ops.T_CONSTANT, self.text(database) + b"\x02" + avro_number(39)),
            (ops.T_RAW_STRING, ops.S_POSITION),
            (ops.T_CONSTANT, b"."),
            (ops.T_MARK, 0),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_US),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_NS),
            (ops.T_CONSTANT, b"\x02" + self.text(table)),
            (ops.T_NUMBER, ops.S_SERVER_ID),
            (ops.T_OPTIONAL_STRING, ops.S_GTID),
            (ops.T_STRING, ops.S_FILE),
            (ops.T_NUMBER, ops.S_POS),
            (ops.T_MARK, 0),
            (ops.T_OPTIONAL_NUMBER, ops.S_THREAD),
            (ops.T_OPTIONAL_STRING, ops.S_QUERY),
            *(self._transaction() if transactions else [(ops.T_CONSTANT, b"\x00")]),
            (ops.T_CONSTANT, b"\x02"),
            (ops.T_MARK, 0),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_MS),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_US),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_NS),
            (ops.T_MARK, 0),
        ]


class _FlatAvro(_Avro):
    """Flat rows in Avro: no envelope, no union around the row."""

    open = b""

    @override
    def flag(self, value: str) -> bytes:
        return b"\x02" + self.text(value)

    @override
    def template(
        self, _constants: SourceConstants, _database: str, _table: str, *, transactions: bool
    ) -> list[tuple[int, bytes | int]]:
        del transactions  # a flat row has no block
        return [
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b"\x02\x02"),
            (ops.T_MARK, 0),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_MS),
            (ops.T_MARK, 0),
        ]


class _Json:
    """The pieces of JSON as Connect's JsonConverter writes it, with or without the schema block."""

    layout = ops.JSON
    null = b"null"
    close = b"}"
    after = b',"after":'
    factor = 6

    def __init__(self, wire: WireSchemas, *, has_columns: bool = True) -> None:
        """`has_columns`: any is written; the first one's name comes with the brace that opens the row."""
        self._has_columns = has_columns
        self.open = b"" if has_columns else b"{"
        self._wrapped = wire.format == "json_schema"
        self.frame = self._wrap(wire.value_schema_json) + b'{"before":'
        self.key_frame = self._wrap(wire.key_schema_json)
        self.key_close = b"}}" if self._wrapped else b"}"

    def _wrap(self, schema: str | None) -> bytes:
        if not self._wrapped:
            return b""
        return b'{"schema":' + (schema or "null").encode() + b',"payload":'

    def number(self, value: int) -> bytes:
        return str(value).encode()

    def flag(self, value: str) -> bytes:
        """Return a value of `__deleted`, which flat rows have."""
        return self.text(value)

    def text(self, value: str) -> bytes:
        return json_text(value)

    def member(self, value: bytes) -> bytes:
        return b'"' + value + b'"'

    def bare(self, value: str) -> bytes:
        return json_text(value)[1:-1]

    def blob(self, value: bytes) -> bytes:
        return self.member(base64.b64encode(value))

    def floating(self, value: bytes) -> bytes:
        return java_text(value)

    def present(self, value: bytes | None) -> bytes:
        return self.null if value is None else value

    def struct(self, members: Sequence[tuple[str, bytes]]) -> bytes:
        return b"{" + b",".join(json_text(name) + b":" + value for name, value in members) + b"}"

    def array(self, items: Sequence[bytes]) -> bytes:
        return b"[" + b",".join(items) + b"]"

    def leads(self, name: str, first: bool, _schema: ConnectSchema) -> tuple[bytes, bytes]:
        """(before a value, instead of a value): the column's name, and null."""
        lead = (b"{" if first else b",") + json_text(name) + b":"
        return lead, lead + b"null"

    def _transaction(self) -> list[tuple[int, bytes | int]]:
        return [
            (ops.T_CONSTANT, b'{"id":'),
            (ops.T_STRING, ops.S_TRANSACTION),
            (ops.T_CONSTANT, b',"total_order":'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b',"data_collection_order":'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b"}"),
        ]

    def template(
        self, constants: SourceConstants, database: str, table: str, *, transactions: bool
    ) -> list[tuple[int, bytes | int]]:
        return [
            (
                ops.T_CONSTANT,
                b',"source":{"version":%b,"connector":%b,"name":%b,"ts_ms":'
                % (json_text(constants.version), json_text(constants.connector), json_text(constants.name)),
            ),
            (ops.T_NUMBER, ops.S_TS_MS),
            (ops.T_CONSTANT, b',"snapshot":'),
            (ops.T_STRING, ops.S_SNAPSHOT),
            (ops.T_CONSTANT, b',"db":%b,"sequence":"' % json_text(database)),
            (ops.T_RAW_STRING, ops.S_POSITION),
            (ops.T_CONSTANT, b"."),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b'","ts_us":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_US),
            (ops.T_CONSTANT, b',"ts_ns":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_NS),
            (ops.T_CONSTANT, b',"table":%b,"server_id":' % json_text(table)),
            (ops.T_NUMBER, ops.S_SERVER_ID),
            (ops.T_CONSTANT, b',"gtid":'),
            (ops.T_OPTIONAL_STRING, ops.S_GTID),
            (ops.T_CONSTANT, b',"file":'),
            (ops.T_STRING, ops.S_FILE),
            (ops.T_CONSTANT, b',"pos":'),
            (ops.T_NUMBER, ops.S_POS),
            (ops.T_CONSTANT, b',"row":'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b',"thread":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_THREAD),
            (ops.T_CONSTANT, b',"query":'),
            (ops.T_OPTIONAL_STRING, ops.S_QUERY),
            (ops.T_CONSTANT, b'},"transaction":'),
            *(self._transaction() if transactions else [(ops.T_CONSTANT, b"null")]),
            (ops.T_CONSTANT, b',"op":"'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b'","ts_ms":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_MS),
            (ops.T_CONSTANT, b',"ts_us":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_US),
            (ops.T_CONSTANT, b',"ts_ns":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_NOW_NS),
            (ops.T_CONSTANT, b"}}" if self._wrapped else b"}"),
            (ops.T_MARK, 0),
        ]


class _FlatJson(_Json):
    """Flat rows in JSON; the row stays open for the fields that follow."""

    close = b""

    def __init__(self, wire: WireSchemas, *, has_columns: bool = True) -> None:
        super().__init__(wire, has_columns=has_columns)
        self.frame = self._wrap(wire.value_schema_json)

    @override
    def template(
        self, _constants: SourceConstants, _database: str, _table: str, *, transactions: bool
    ) -> list[tuple[int, bytes | int]]:
        del transactions  # a flat row has no block
        return [
            (ops.T_CONSTANT, (b"," if self._has_columns else b"") + b'"__deleted":'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b',"__op":"'),
            (ops.T_MARK, 0),
            (ops.T_CONSTANT, b'","__source_ts_ms":'),
            (ops.T_OPTIONAL_NUMBER, ops.S_TS_MS),
            (ops.T_CONSTANT, b"}}" if self._wrapped else b"}"),
            (ops.T_MARK, 0),
        ]


# ── columns ────────────────────


def _named(column: Column) -> str:
    return f"{column.name} ({column.type.value})"


class _Compiler:
    """Collects the pool, the member tables and the Python cells while columns are compiled."""

    def __init__(
        self,
        table: TableSchema,
        wire: WireSchemas,
        constants: SourceConstants,
        options: RecordOptions,
        *,
        bare_doubles: bool = False,
    ) -> None:
        self.table = table
        self._bare_doubles = bare_doubles
        self.constants = constants
        self.modes = constants.modes
        self.options = options
        kinds = (_FlatAvro, _FlatJson) if options.unwrap else (_Avro, _Json)
        kind = kinds[0] if wire.format == "avro" else kinds[1]
        self.layout: _Avro | _Json = kind(wire, has_columns=len(table.dropped) < len(table.columns))
        self.pool = _Pool()
        self.python_cells: list[CellEncoder] = []
        self.members: list[int] = []

    @property
    def bytes_growth(self) -> int:
        """Base64 in JSON, with room to round up."""
        return 1 if self.is_avro else 2

    @property
    def is_avro(self) -> bool:
        return self.layout.layout == ops.AVRO

    def refuse(self, column: Column, reason: str) -> UnsupportedTypeError:
        return UnsupportedTypeError(f"{self.table.full_name}.{column.name}: {reason}")

    # -- what both sources share

    def floating(self, column: Column) -> _Cell:
        width = FACTS[column.type].size
        if width != FLOAT_BYTES:
            return _Cell(ops.FIXED, width, ops.V_DOUBLE)
        return _Cell(ops.FIXED, width, ops.V_FLOAT if column.length is None else ops.V_FLOAT_WIDENED)

    def integer(self, column: Column, width: int) -> _Cell:
        if not column.unsigned:
            return _Cell(ops.FIXED, width, ops.V_SIGNED)
        if is_beyond_long(column):
            if self.modes.bigint_unsigned == "long":
                return _Cell(ops.FIXED, width, ops.V_SIGNED)
            return _Cell(ops.FIXED, width, ops.V_UNSIGNED_DECIMAL, bound=_DECIMAL_BOUND)
        return _Cell(ops.FIXED, width, ops.V_UNSIGNED)

    def bit(self, column: Column, locate: int, width: int) -> _Cell:
        bits = column.length or 1
        return _Cell(locate, width, ops.V_BOOLEAN if bits == 1 else ops.V_BITS, bits)

    def temporal_form(self, column: Column) -> int:
        """ARG_B of a temporal column: microseconds (DATE: days) per unit written, or one of ops.AS_..."""
        kind, mode = column.type, self.modes.time
        if kind is ColumnType.TIMESTAMP:
            return 1
        if mode == "isostring":
            return ops.AS_ISO
        if kind is ColumnType.DATE:
            return 1
        if mode == "nanoseconds":
            return ops.AS_NANOSECONDS
        if kind is ColumnType.TIME:
            return ops.AS_MILLISECONDS if mode == "connect" else 1
        in_milliseconds = mode == "connect" or (mode != "microseconds" and (column.precision or 0) <= 3)
        return ops.AS_MILLISECONDS if in_milliseconds else 1

    def python_cell(self, locate: int, width: int, encode: CellEncoder) -> _Cell:
        """Return a cell of the Python column path."""
        self.python_cells.append(encode)
        return _Cell(locate, width, ops.V_PYTHON, len(self.python_cells) - 1)

    def compressed(self, column: Column) -> CellEncoder:
        """Return the encoder of a column that MariaDB stores COMPRESSED."""
        name = _named(column)
        if column.type in TEXT_TYPES:
            return compressed_cell(name, self.text_encoder(column, self.require_charset(column)))
        return compressed_cell(name, self.binary_encoder(0))

    def structured(self, column: Column) -> CellEncoder:
        """Return the encoder of a spatial column or a vector: both sources have the same bytes."""
        if column.type is ColumnType.VECTOR:
            return vector_cell(_named(column), self.layout)
        return spatial_cell(_named(column), column.type, self.layout)

    def decimal(self, column: Column) -> Callable[[int], bytes]:
        """Return what writes the unscaled value of a DECIMAL that is not `precise`."""
        scale = decimal_digits(column)[1]
        if self.modes.decimal == "string":
            return lambda unscaled: self.layout.text(scaled_text(unscaled, scale))
        return lambda unscaled: self.layout.floating(struct.pack("<d", float(scaled_text(unscaled, scale))))

    def binary(self, column: Column, locate: int, width: int) -> _Cell:
        """BINARY of the column's length, which the log trims, VARBINARY and BLOB."""
        size = fixed_length(column)
        if self.modes.binary != "bytes":
            return self.python_cell(locate, width, self.binary_encoder(size))
        if column.type is ColumnType.BINARY:
            return self.padded(locate, width, size)
        return _Cell(locate, width, ops.V_BYTES, bound=_NUMBER_BOUND, growth=self.bytes_growth)

    def binary_encoder(self, size: int) -> CellEncoder:
        """Return what writes bytes, padded to `size`, as the mode wants them."""
        mode = self.modes.binary
        if mode == "bytes":
            return self.layout.blob
        return lambda data: self.layout.text(binary_text(data.ljust(size, b"\0"), mode))

    def padded(self, locate: int, width: int, size: int) -> _Cell:
        return _Cell(locate, width, ops.V_BYTES, size, bound=3 * size + _NUMBER_BOUND)

    # -- binary protocol

    def result_cell(self, column: Column) -> _Cell:
        """Return a column of a prepared statement's result set."""
        kind = column.type
        if kind in INTEGER_TYPES:
            width = FACTS[kind].size
            return self.integer(column, 4 if kind is ColumnType.MEDIUMINT else width)
        if kind in FLOAT_TYPES:
            return self.floating(column)
        if kind is ColumnType.YEAR:
            return _Cell(ops.FIXED, 2, ops.V_YEAR_NUMBER, year_zero(column))
        if kind is ColumnType.DECIMAL:
            precision, scale = decimal_digits(column)
            if self.modes.decimal != "precise":
                return self.python_cell(ops.LENENC, 0, decimal_cell(printed_decimal, self.decimal(column)))
            return _Cell(ops.LENENC, 0, ops.V_DECIMAL_TEXT, precision, scale, _DECIMAL_BOUND)
        if kind is ColumnType.BIT:
            return self.bit(column, ops.LENENC, 0)
        struct_op = {
            ColumnType.DATE: ops.V_DATE_STRUCT,
            ColumnType.TIME: ops.V_TIME_STRUCT,
            ColumnType.DATETIME: ops.V_DATETIME_STRUCT,
            ColumnType.TIMESTAMP: ops.V_TIMESTAMP_STRUCT,
        }.get(kind)
        if struct_op is not None:
            return _Cell(ops.PREFIXED, 1, struct_op, column.precision or 0, self.temporal_form(column), _ISO_BOUND)
        if kind is ColumnType.JSON and self.constants.connector == "mysql":
            growth = 2 if self.is_avro else 0  # a line break becomes two characters
            return _Cell(ops.LENENC, 0, ops.V_JSON_TEXT, bound=_BIGGEST_TEXT, growth=growth)
        if kind in (*TEXT_TYPES, *MEMBER_TYPES, ColumnType.JSON):
            self.require_charset(
                column
            )  # the server converts, but what the binlog path refuses is refused here
            if self.table.mask_of(column.name) is not None:
                return self.text(column, "utf8mb4", ops.LENENC)
            return _Cell(ops.LENENC, 0, ops.V_TEXT, bound=_BIGGEST_TEXT)
        if kind in ADDRESS_TYPES:
            return _Cell(ops.LENENC, 0, ops.V_TEXT, bound=_BIGGEST_TEXT)
        if kind in _STRUCTURED:
            return self.python_cell(ops.LENENC, 0, self.structured(column))
        return self.binary(column, ops.LENENC, 0)

    # -- binlog

    def binlog_cell(self, column: Column, code: int, meta: int) -> _Cell:
        """Return a column of a row image in a rows event."""
        self._check_code(column, code)
        self._check_meta(column, meta)
        kind = column.type
        if kind in INTEGER_TYPES:
            return self.integer(column, FACTS[kind].size)
        if kind in FLOAT_TYPES:
            return self.floating(column)
        if kind is ColumnType.YEAR:
            return _Cell(ops.FIXED, 1, ops.V_YEAR, year_zero(column))
        if kind is ColumnType.DECIMAL:
            precision, scale = decimal_digits(column)
            width = packed_size(precision, scale)
            if self.modes.decimal != "precise":
                read = partial(packed_decimal, precision, scale)
                return self.python_cell(ops.FIXED, width, decimal_cell(read, self.decimal(column)))
            return _Cell(ops.FIXED, width, ops.V_DECIMAL_PACKED, precision, scale, _DECIMAL_BOUND)
        if kind is ColumnType.BIT:
            return self.bit(column, ops.FIXED, ((column.length or 1) + 7) // 8)
        if kind in MEMBER_TYPES:
            return self._member_cell(column, meta & 255)
        if kind is ColumnType.DATE or kind in FRACTION_TYPES:
            return self._packed_temporal(column)
        width = self._length_bytes(code, meta)
        if code in _COMPRESSED:
            return self.python_cell(ops.PREFIXED, width, self.compressed(column))
        if kind is ColumnType.BINARY and column.length is None:
            column = replace(column, length=meta)
        if kind is ColumnType.JSON and code not in _BLOB_CODES:
            growth = TEXT_FACTOR if self.is_avro else 2 * TEXT_FACTOR
            bound = 2 * TEXT_SLACK + OVERRUN
            is_bare = int(self._bare_doubles)
            return _Cell(ops.PREFIXED, width, ops.V_JSON_BINARY, is_bare, bound=bound, growth=growth)
        if kind in TEXT_TYPES or kind is ColumnType.JSON:
            op, table = self.text_op(column)
            growth = 3 if op == ops.V_SINGLE_BYTE_TEXT and self.is_avro else 0
            return _Cell(ops.PREFIXED, width, op, table, bound=_BIGGEST_TEXT, growth=growth)
        if kind in ADDRESS_TYPES:
            encode = address_cell(_named(column), kind, FACTS[kind].size, self.layout)
            return self.python_cell(ops.PREFIXED, width, encode)
        if kind in _STRUCTURED:
            return self.python_cell(ops.PREFIXED, width, self.structured(column))
        return self.binary(column, ops.PREFIXED, width)

    def _check_code(self, column: Column, code: int) -> None:
        if code in _OLD_TEMPORAL:
            reason = (
                f"{_OLD_TEMPORAL[code]} in the format of MySQL before 5.6 is not captured; on MariaDB set "
                f"mysql56_temporal_format=ON and run ALTER TABLE {self.table.full_name} FORCE"
            )
            raise self.refuse(column, reason)
        code = _COMPRESSED.get(code, code)
        if code not in FACTS[column.type].log:
            message = (
                f"{self.table.full_name}.{column.name}: the catalog says {column.type.value}, "
                f"the binlog has type code {code}"
            )
            raise SchemaMismatchError(message)

    def _check_meta(self, column: Column, meta: int) -> None:
        """Refuse a layout whose digits, bits or member width are not the column's: bytes would be misread."""
        kind = column.type
        if kind is ColumnType.DECIMAL:
            precision, scale = decimal_digits(column)
            expected = precision << 8 | scale
        elif kind in FRACTION_TYPES:
            expected = column.precision or 0
        elif kind is ColumnType.BIT:
            meta, expected = (meta >> 8) * 8 + (meta & 255), column.length or 1
        elif kind is ColumnType.ENUM:
            meta, expected = meta & 255, 1 if len(column.members) <= _LONG_LENGTH else 2
        else:
            return
        if meta != expected:
            message = (
                f"{self.table.full_name}.{column.name}: the catalog's {kind.value} does not fit the binlog's "
                f"metadata ({expected} expected, {meta} found)"
            )
            raise SchemaMismatchError(message)

    @staticmethod
    def _length_bytes(code: int, meta: int) -> int:
        if code in _BLOB_CODES or code in _PREFIXED_CODES or code == _COMPRESSED_BLOB:
            return meta
        return 2 if meta > _LONG_LENGTH else 1

    def _packed_temporal(self, column: Column) -> _Cell:
        digits = column.precision or 0
        op, width = {
            ColumnType.DATE: (ops.V_DATE_PACKED, 3),
            ColumnType.TIME: (ops.V_TIME_PACKED, 3 + (digits + 1) // 2),
            ColumnType.DATETIME: (ops.V_DATETIME_PACKED, 5 + (digits + 1) // 2),
            ColumnType.TIMESTAMP: (ops.V_TIMESTAMP_PACKED, 4 + (digits + 1) // 2),
        }[column.type]
        return _Cell(ops.FIXED, width, op, digits, self.temporal_form(column), _ISO_BOUND)

    def _member_cell(self, column: Column, width: int) -> _Cell:
        """ENUM and SET: labels go to the pool; the table's place is counted from the members' start."""
        first = len(self.members)
        is_enum = column.type is ColumnType.ENUM
        labels = [self.layout.bare(member) for member in column.members]
        pieces = [self.layout.member(label) for label in (b"", *labels)] if is_enum else labels
        for piece in pieces:
            self.members.extend(self.pool.add(piece))
        longest = max((len(piece) for piece in pieces), default=0)
        total = longest if is_enum else sum(len(piece) + 1 for piece in pieces)
        op = ops.V_ENUM if is_enum else ops.V_SET
        return _Cell(ops.FIXED, width, op, first, len(column.members), total + _BIGGEST_TEXT)

    def require_charset(self, column: Column) -> str:
        """Return the character set of a text column; refuses those not yet known."""
        charset = column.charset or "utf8mb4"
        if charset not in UTF8_CHARSETS | SINGLE_BYTE_CHARSETS | PYTHON_CHARSETS:
            raise self.refuse(column, f"character set {charset} is not captured yet")
        return charset

    def text_op(self, column: Column) -> tuple[int, int]:
        """Return the operation of a character column in the binlog, and its argument."""
        charset = self.require_charset(column)
        if self.table.mask_of(column.name) is not None:
            return ops.V_PYTHON, self.text(column, charset, ops.PREFIXED).a
        if charset in UTF8_CHARSETS:
            return ops.V_TEXT, 0
        if charset in SINGLE_BYTE_CHARSETS:
            return ops.V_SINGLE_BYTE_TEXT, self.pool.add(utf8_table(charset))[0]
        return ops.V_PYTHON, self.text(column, charset, ops.PREFIXED).a

    def text(self, column: Column, charset: str, locate: int) -> _Cell:
        """Return a cell of the Python path for a text column, masked if it has a mask."""
        return self.python_cell(locate, 0, self.text_encoder(column, charset))

    def text_encoder(self, column: Column, charset: str) -> CellEncoder:
        """Return the encoder of a text column, which masks it if it has a mask."""
        mask = self.table.mask_of(column.name)
        masked = None if mask is None else masking(mask, column)
        return text_cell(_named(column), charset, self.layout, masked)


def compile_binlog(
    table: TableSchema,
    layout: BinlogLayout,
    wire: WireSchemas,
    constants: SourceConstants,
    options: RecordOptions,
) -> Program:
    """Compile the program for row images of rows events.

    Raises `UnsupportedTypeError` for what is not captured, `SchemaMismatchError` when the layout is another
    table's.
    """
    if len(layout.types) != len(table.columns):
        message = f"{table.full_name} has {len(table.columns)} columns, the binlog {len(layout.types)}"
        raise SchemaMismatchError(message)
    compiler = _Compiler(table, wire, constants, options, bare_doubles=layout.bare_doubles)
    codes = zip(table.columns, layout.types, layout.metas, strict=True)
    cells = [compiler.binlog_cell(column, code, meta) for column, code, meta in codes]
    return _assemble(compiler, cells, null_bit=0)


def compile_result(
    table: TableSchema, wire: WireSchemas, constants: SourceConstants, options: RecordOptions
) -> Program:
    """Compile the program for rows of `SELECT <all columns in table order>` in the binary protocol.

    Rows of a SELECT belong to no transaction of the log.
    """
    compiler = _Compiler(table, wire, constants, replace(options, transactions=False))
    cells = [compiler.result_cell(column) for column in table.columns]
    return _assemble(compiler, cells, null_bit=2)


# ── assembly ────────────────────


def _zero(compiler: _Compiler, schema: ConnectSchema) -> bytes:
    """Return what a zero date becomes in a NOT NULL column: the schema's default, else the epoch."""
    layout = compiler.layout
    if schema.type is ConnectType.STRING:
        epoch = "1970-01-01Z" if schema.name == ISO_DATE_NAME else "1970-01-01T00:00:00Z"
        return layout.text(schema.default if isinstance(schema.default, str) else epoch)
    return layout.number(schema.default if isinstance(schema.default, int) else 0)


def _column_row(
    compiler: _Compiler, cell: _Cell, column: int, schema: ConnectSchema, leads: tuple[bytes, bytes]
) -> tuple[list[int], int]:
    """Return the numbers of one column and the most bytes it may take beside GROWTH times its input."""
    lead, null = leads
    zero = _zero(compiler, schema) if ops.V_DATE_PACKED <= cell.op <= ops.V_TIMESTAMP_STRUCT else b""
    row = [0] * ops.PROGRAM_WIDTH
    row[ops.LOCATE], row[ops.WIDTH], row[ops.OP] = cell.locate, cell.width, cell.op
    row[ops.ARG_A], row[ops.ARG_B] = cell.a, cell.b
    row[ops.NULLABLE] = int(schema.optional)
    row[ops.NULL_AT], row[ops.NULL_SIZE] = compiler.pool.add(null)
    row[ops.LEAD_AT], row[ops.LEAD_SIZE] = compiler.pool.add(lead)
    row[ops.ZERO_AT], row[ops.ZERO_SIZE] = compiler.pool.add(zero)
    row[ops.COLUMN] = column
    row[ops.GROWTH] = cell.growth or compiler.layout.factor
    return row, max(len(null), len(lead) + max(cell.bound, len(zero)))


def _template(compiler: _Compiler) -> tuple[list[int], int]:
    """Return the template's numbers, and the bytes it expands to beside six times its strings."""
    numbers: list[int] = []
    bound = 0
    table = compiler.table
    pieces = compiler.layout.template(
        compiler.constants, table.database, table.name, transactions=compiler.options.transactions
    )
    for kind, argument in pieces:
        if isinstance(argument, bytes):
            numbers += [kind, *compiler.pool.add(argument)]
            bound += len(argument)
        else:
            numbers += [kind, argument, 0]
            bound += _NUMBER_BOUND
    return numbers, bound


def _assemble(compiler: _Compiler, cells: list[_Cell], null_bit: int) -> Program:
    table, layout = compiler.table, compiler.layout
    names = [column.name for column in table.columns]
    schemas = [field.schema for field in all_columns(table, compiler.modes)]
    written = [name for name in names if name not in table.dropped]
    field_names = [adjusted_field_name(name, compiler.modes.field_names) for name in names]
    row_bound = 2 * (len(layout.open) + len(layout.close) + BLOCK)
    rows: list[int] = []
    for index, (cell, schema) in enumerate(zip(cells, schemas, strict=True)):
        first = bool(written) and names[index] == written[0]
        numbers, bound = _column_row(
            compiler, cell, index, schema, layout.leads(field_names[index], first, schema)
        )
        rows += numbers
        row_bound += bound
    keys: list[int] = []
    key_bound = len(layout.key_frame) + len(layout.key_close) + BLOCK
    for index, name in enumerate(table.record_key):
        column = names.index(name)
        leads = layout.leads(field_names[column], index == 0, schemas[column])
        numbers, bound = _column_row(compiler, cells[column], column, schemas[column], leads)
        keys += numbers
        key_bound += bound
    template, head_bound = _template(compiler)
    pieces: list[int] = []
    for piece in (
        layout.frame,
        layout.after,
        layout.open,
        layout.close,
        layout.null,
        layout.key_frame,
        layout.key_close,
        layout.flag("true"),
        layout.flag("false"),
    ):
        pieces += compiler.pool.add(piece)
    images = _images(table, rows, written)
    head = [0] * ops.H_PIECES + pieces
    head[ops.H_LAYOUT] = layout.layout
    head[ops.H_COLUMNS] = len(cells)
    head[ops.H_KEYS] = len(table.record_key)
    head[ops.H_ROW_AT] = ops.HEAD_SIZE
    head[ops.H_KEY_AT] = head[ops.H_ROW_AT] + len(rows)
    head[ops.H_IMAGE_AT] = ops.HEAD_SIZE + (len(rows) + len(keys) if images else 0)
    head[ops.H_WRITTEN] = len(written)
    head[ops.H_HIDDEN_AT] = head[ops.H_IMAGE_AT] + len(written) * ops.PROGRAM_WIDTH
    head[ops.H_HIDDEN] = len(images) // ops.PROGRAM_WIDTH - len(written) if images else 0
    head[ops.H_TEMPLATE_AT] = head[ops.H_KEY_AT] + len(keys) + len(images)
    head[ops.H_TEMPLATE_SIZE] = len(template) // 3
    members_at = head[ops.H_TEMPLATE_AT] + len(template)
    head[ops.H_NULL_BIT] = null_bit
    head[ops.H_PYTHON] = len(compiler.python_cells)
    head[ops.H_RECORD_BOUND] = len(layout.frame) + len(layout.after) + 2 * len(layout.null) + 128 + BLOCK
    head[ops.H_TOMBSTONES] = int(compiler.options.tombstones)
    head[ops.H_SKIP_UNCHANGED] = int(compiler.options.skip_unchanged)
    head[ops.H_TRANSACTION] = int(compiler.options.transactions)
    head[ops.H_UNWRAP] = int(compiler.options.unwrap)
    head[ops.H_ROW_BOUND] = row_bound
    head[ops.H_KEY_BOUND] = key_bound
    head[ops.H_FACTOR] = max(cell.growth or layout.factor for cell in cells)
    for part in (rows, keys, images):
        _offset_members(part, members_at)
    return Program(
        np.array(head + rows + keys + images + template + compiler.members, np.int64),
        np.frombuffer(bytearray(compiler.pool.data + bytes(BLOCK)), np.uint8),
        tuple(compiler.python_cells),
        head_bound + ops.SMALL,
    )


def _images(table: TableSchema, rows: list[int], written: list[str]) -> list[int]:
    """Return the rows of the written columns, then of those that stand in the key only; [] where all are written."""
    if len(written) == len(table.columns):
        return []
    shown = set(written)
    hidden = [name for name in table.record_key if name not in shown]
    first_numbers = {column.name: index * ops.PROGRAM_WIDTH for index, column in enumerate(table.columns)}
    return [
        number
        for name in (*written, *hidden)
        for number in rows[first_numbers[name] : first_numbers[name] + ops.PROGRAM_WIDTH]
    ]


def _offset_members(rows: list[int], members_at: int) -> None:
    """Turn member table places into places in the whole array."""
    for start in range(0, len(rows), ops.PROGRAM_WIDTH):
        if rows[start + ops.OP] in (ops.V_ENUM, ops.V_SET):
            rows[start + ops.ARG_A] += members_at
