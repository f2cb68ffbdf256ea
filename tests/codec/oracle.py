"""Reads one table by three ways: SELECT, the binlog, and result-set packets; and decodes what the codec made of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import fastavro
import numpy as np
import numpy.typing as npt
import pymysql

from devservers import Database
from mysqlio.binary_query import BinaryQuery
from producer.binlog.events import parse_rows_header
from producer.binlog.tablemap import TableMap, parse_table_map
from producer.source.dump import BinlogStream, StreamStart
from rowcodec import (
    BinlogLayout,
    ChunkContext,
    EventContext,
    RecordOptions,
    Records,
    SourceConstants,
    TableCodec,
    WireSchemas,
)
from rowcodec.types import Format
from schemas.avro import to_avro
from schemas.columns import TableSchema
from schemas.jsonschema import to_json_schema
from schemas.settings import SourceSettings
from schemas.types.connect import flat_schema, key_schema, value_schema

PREFIX = "srv"
DEFAULTS = RecordOptions()
NOW_NS = 1_790_000_000_123_456_789
TS_US = 1_780_000_000_654_321
_KINDS = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
_XID = 16
_TABLE_MAP = 19


@dataclass(frozen=True)
class RowsEvent:
    """Raw bytes of one rows event, and where its rows are."""

    op: Literal["c", "u", "d"]
    buf: npt.NDArray[np.uint8]
    start: int
    end: int
    table_map: TableMap

    @property
    def layout(self) -> BinlogLayout:
        return BinlogLayout(self.table_map.types, self.table_map.metas, self.table_map.bare_doubles)


@contextmanager
def session(server: Database, schema: str, **options: Any) -> Iterator[pymysql.connections.Connection[Any]]:
    """A connection pinned as the product's: UTC, utf8mb4, no sql_mode (zero and impossible dates are stored)."""
    with server.connect(database=schema, **options) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone='+00:00', sql_mode='ALLOW_INVALID_DATES'")
        yield connection


def log_position(server: Database) -> StreamStart:
    """The end of the server's log."""
    with server.connect() as connection, connection.cursor() as cursor:
        new = server.flavour == "mysql" and not server.name.startswith(("mysql5", "mysql80"))
        cursor.execute("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    return StreamStart(str(row[0]), int(row[1]))


def rows_events(server: Database, start: StreamStart, table: str) -> list[RowsEvent]:
    """The rows events of a table from `start` to the end of the log."""
    end = log_position(server)
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=("x",)
    )
    stream = BinlogStream(settings)
    stream.open(start, server_id=77, heartbeat_s=10)
    events: list[RowsEvent] = []
    tables: dict[int, TableMap] = {}
    try:
        while (stream.file, stream.position) < (end.file, end.pos):
            batch = stream.read(5)
            if batch is None:
                continue
            buf = batch.buf.copy()
            for index in range(batch.count):
                kind, first, last = int(batch.types[index]), int(batch.starts[index]), int(batch.ends[index])
                if kind == _TABLE_MAP:
                    found = parse_table_map(buf, first, last, stream.server_version)
                    tables[found.table_id] = found
                elif kind in _KINDS:
                    header = parse_rows_header(buf, first, last, kind)
                    table_map = tables[header.table_id]
                    if table_map.table == table:
                        op: Any = _KINDS[kind]
                        events.append(RowsEvent(op, buf, header.rows_start, last, table_map))
    finally:
        stream.close()
    return events


def wire(
    table: TableSchema,
    layout: Format,
    connector: Literal["mysql", "mariadb"],
    options: RecordOptions = DEFAULTS,
) -> WireSchemas:
    """The wire schemas of a table in a format."""
    value, key = value_schema(table, PREFIX, connector), key_schema(table, PREFIX)
    if options.unwrap:
        value = flat_schema(table, PREFIX)
    if layout == "avro":
        return WireSchemas("avro", 7, 8, None if key is None else to_avro(key), to_avro(value))
    key_json = None if key is None else json.dumps(to_json_schema(key))
    return WireSchemas(layout, 0, 0, key_json, json.dumps(to_json_schema(value)))


def make_codec(
    table: TableSchema,
    layout: BinlogLayout | None,
    fmt: Format,
    connector: Literal["mysql", "mariadb"] = "mysql",
    options: RecordOptions = DEFAULTS,
) -> TableCodec:
    """A codec with this module's constants."""
    constants = SourceConstants("3.6.1.Final", connector, PREFIX)
    return TableCodec(table, layout, wire(table, fmt, connector, options), constants, options)


def event_context(op: Literal["c", "u", "d"], first_ordinal: int = 1) -> EventContext:
    """A context whose every field is recognisable."""
    return EventContext(
        op,
        "0001.0000000003.000000000154",
        first_ordinal,
        TS_US,
        9,
        "uuid:17",
        "binlog.000003",
        1155,
        12,
        None,
        NOW_NS,
    )


def chunk_context() -> ChunkContext:
    """A context whose every field is recognisable."""
    position = "0001.0000000003.000000000099.0000000000"
    return ChunkContext(position, "incremental", TS_US, "binlog.000003", 99, None, NOW_NS)


def chunk_records(codec: TableCodec, connection: Any, sql: str) -> list[Records]:
    """The records of a SELECT through the binary protocol."""
    found = []
    with BinaryQuery(connection, sql) as query:
        for buf, start, end in query.blocks():
            found.append(codec.encode_resultset(buf, start, end, chunk_context()))
    return found


def values_of(records: Records) -> list[bytes | None]:
    """The values, None for tombstones."""
    offsets = records.value_offsets
    return [
        None if records.is_tombstone[index] else records.values[offsets[index] : offsets[index + 1]]
        for index in range(records.count)
    ]


def keys_of(records: Records) -> list[bytes | None]:
    """The keys, None for a table without one."""
    offsets = records.key_offsets
    return [
        records.keys[offsets[index] : offsets[index + 1]] if records.has_key else None
        for index in range(records.count)
    ]


class Reader:
    """Decodes records of one table in one format with independent libraries."""

    def __init__(
        self, table: TableSchema, fmt: Format, connector: Literal["mysql", "mariadb"] = "mysql"
    ) -> None:
        self.format = fmt
        schemas = wire(table, fmt, connector)
        self._wrapper = (schemas.key_schema_json, schemas.value_schema_json)
        if fmt == "avro":
            assert schemas.value_schema_json is not None
            self._value = json.loads(schemas.value_schema_json)
            self._envelope = fastavro.parse_schema(self._value)
            key = schemas.key_schema_json
            self._key = None if key is None else fastavro.parse_schema(json.loads(key))
            fields = {field["name"]: field["type"] for field in self._value["fields"]}
            namespace = self._value["namespace"]
            named: dict[str, Any] = {}
            self._before = fastavro.parse_schema(_qualified(fields["before"], namespace), named)
            self._after = fastavro.parse_schema(_qualified(fields["after"], namespace), named)

    def value(self, data: bytes) -> dict[str, Any]:
        """The envelope; the whole of the bytes must be it."""
        if self.format != "avro":
            found = json.loads(data)
            if self.format == "json_schema":
                assert found["schema"] == json.loads(self._wrapper[1] or "null")
                found = found["payload"]
            return dict(found)
        assert data[:5] == b"\0\0\0\0\x08"
        stream = io.BytesIO(data[5:])
        found = fastavro.schemaless_reader(stream, self._envelope)
        assert stream.read() == b""
        return dict(found)  # type: ignore[arg-type]

    def key(self, data: bytes) -> dict[str, Any]:
        """The key struct."""
        if self.format != "avro":
            found = json.loads(data)
            return dict(found["payload"] if self.format == "json_schema" else found)
        assert data[:5] == b"\0\0\0\0\x07"
        stream = io.BytesIO(data[5:])
        found = fastavro.schemaless_reader(stream, self._key)
        assert stream.read() == b""
        return dict(found)  # type: ignore[arg-type]

    def after_bytes(self, data: bytes) -> bytes:
        """The bytes of `after` of an envelope without `before`."""
        if self.format == "avro":
            assert data[5] == 0
            stream = io.BytesIO(data[6:])
            fastavro.schemaless_reader(stream, self._before)
            return data[6 : 6 + stream.tell()]
        start = (
            data.index(b'{"before":null,"after":')
            if self.format == "json"
            else data.index(b'"payload":{"before"')
        )
        return data[start : data.rindex(b',"source":{"version"')].partition(b'"after":')[2]


def _qualified(union: Any, namespace: str) -> Any:
    return [
        {**branch, "namespace": namespace}
        if isinstance(branch, dict)
        else (f"{namespace}.{branch}" if branch != "null" else branch)
        for branch in union
    ]
