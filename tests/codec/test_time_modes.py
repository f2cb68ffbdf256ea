"""DATE, TIME and DATETIME in every mode of `format.time`: schemas, defaults, and values from log and chunk."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from random import Random
from typing import Any, get_args

import fastavro
import pytest

from mysqlio.information_schema import read_table_schema
from rowcodec import SourceConstants, TableCodec, WireSchemas
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import TimeMode, ValueModes
from schemas.errors import DecodeError
from schemas.types.connect import value_schema
from schemas.types.semantic_types import column_schema
from tests.codec.oracle import (
    chunk_records,
    event_context,
    keys_of,
    log_position,
    rows_events,
    session,
    values_of,
)

C = ColumnType
PREFIX = "srv"
MODES: tuple[TimeMode, ...] = get_args(TimeMode)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1)
TABLE = """CREATE TABLE t (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), t6 TIME(6), m DATETIME, m3 DATETIME(3),
    m5 DATETIME(5), m6 DATETIME(6), ts TIMESTAMP(6) NULL, dn DATE NOT NULL, tn TIME(6) NOT NULL,
    mn DATETIME(6) NOT NULL)"""
ROWS = 60 if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else 8


def column(kind: ColumnType, default: str, precision: int = 0) -> Column:
    return Column("c", kind, nullable=True, precision=precision, default=default, has_default=True)


@pytest.mark.parametrize(
    ("mode", "given", "kind", "name", "default"),
    [
        ("connect", column(C.DATE, "2020-02-29"), "int32", "org.apache.kafka.connect.data.Date", 18321),
        ("connect", column(C.TIME, "-01:02:03"), "int32", "org.apache.kafka.connect.data.Time", None),
        ("connect", column(C.TIME, "12:34:56.789012", 6), "int32", "org.apache.kafka.connect.data.Time", 45296789),
        ("connect", column(C.DATETIME, "2020-01-02 03:04:05.678901", 6), "int64",
         "org.apache.kafka.connect.data.Timestamp", 1577934245678),
        ("isostring", column(C.DATE, "2020-02-29"), "string", "io.debezium.time.IsoDate", "2020-02-29Z"),
        ("isostring", column(C.TIME, "12:34:56.789012", 6), "string", "io.debezium.time.IsoTime", "12:34:56.789012Z"),
        ("isostring", column(C.TIME, "24:00:00"), "string", "io.debezium.time.IsoTime", None),
        ("isostring", column(C.DATETIME, "2020-01-02 03:04:05"), "string", "io.debezium.time.IsoTimestamp",
         "2020-01-02T03:04:05Z"),
        ("nanoseconds", column(C.DATE, "2020-02-29"), "int32", "io.debezium.time.Date", 18321),
        ("nanoseconds", column(C.TIME, "-01:02:03"), "int64", "io.debezium.time.NanoTime", -3723000000000),
        ("nanoseconds", column(C.DATETIME, "2020-01-02 03:04:05.5", 3), "int64", "io.debezium.time.NanoTimestamp",
         1577934245500000000),
        ("nanoseconds", column(C.DATETIME, "9999-12-31 00:00:00"), "int64", "io.debezium.time.NanoTimestamp", None),
    ],
)  # fmt: skip
def test_schemas_and_defaults_are_debeziums(
    mode: TimeMode, given: Column, kind: str, name: str, default: object
) -> None:
    schema = column_schema(given, ValueModes(time=mode))
    assert (str(schema.type), schema.name, schema.version, schema.default) == (kind, name, 1, default)


def test_connects_own_types_are_avros_logical_types() -> None:
    table = TableSchema("d", "t", (column(C.DATE, "2020-02-29"), replace(column(C.TIME, "1:00"), name="t")))
    text = to_avro(value_schema(table, PREFIX, "mysql", ValueModes(time="connect")))
    assert '"connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"' in text
    assert '"connect.name":"org.apache.kafka.connect.data.Time","logicalType":"time-millis"' in text


def codec(table: TableSchema, layout: Any, mode: TimeMode, fmt: Any) -> TableCodec:
    constants = SourceConstants("v", "mysql", PREFIX, ValueModes(time=mode))
    return TableCodec(table, layout, WireSchemas(fmt, 7, 8), constants)


def rows(random: Random) -> list[tuple[Any, ...]]:
    def moment(digits: int) -> str:
        span = timedelta(days=random.randint(0, 3_652_058), microseconds=random.randint(0, 86_399_999_999))
        text = f"{datetime(1, 1, 1) + span:%H:%M:%S.%f}"
        day = random.choice([date(1, 1, 1), date(1969, 12, 31), date(2262, 4, 12), date(1677, 9, 20), None])
        day = day or date(1, 1, 1) + timedelta(days=span.days)
        return f"{day.isoformat()} {text[: 9 + digits] if digits else text[:8]}"

    def clock(digits: int) -> str:
        hours = random.choice([0, 12, 23, 24, random.randint(24, 838)])
        sign = random.choice(["", "", "-"])
        fraction = f".{random.choice([0, 1, 500000, 999999]):06d}"[: digits + 1] if digits else ""
        return random.choice(
            ["24:00:00", "00:00:00", f"{sign}{hours:02d}:{random.randint(0, 59):02d}:{random.randint(0, 58):02d}{fraction}"]
        )

    def or_null(text: str) -> str | None:
        return random.choice([text, text, text, None])

    return [
        (number, or_null(moment(0)[:10]), *(or_null(clock(n)) for n in (0, 3, 6)),
         *(or_null(moment(n)) for n in (0, 3, 5, 6)), "2024-06-01 01:02:03.4", "1582-10-10", "12:34:56.7",
         "2024-02-29 23:59:59.999999")
        for number in range(ROWS)
    ]  # fmt: skip


def expected(kind: ColumnType, digits: int, value: Any, mode: TimeMode) -> Any:
    """What a mode makes of a value, reckoned from what the server's client library says it is."""
    if value is None:
        return None
    if kind is C.DATE:
        return f"{value.isoformat()}Z" if mode == "isostring" else (value - EPOCH.date()).days
    if kind is C.TIME:
        return expected_time(value, mode)
    microseconds = (value - EPOCH) // timedelta(microseconds=1)
    if mode == "isostring":
        fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
        return f"{value.replace(microsecond=0).isoformat()}{fraction}Z"
    if mode == "nanoseconds":
        return microseconds * 1000 if -(2**63) <= microseconds * 1000 < 2**63 else None
    whole = mode == "connect" or (mode == "adaptive_time_microseconds" and digits <= 3)
    return microseconds // 1000 if whole else microseconds


def expected_time(value: timedelta, mode: TimeMode) -> Any:
    microseconds = value // timedelta(microseconds=1)
    if mode == "nanoseconds":
        return microseconds * 1000
    if mode not in ("connect", "isostring"):
        return microseconds
    if value < timedelta(0) or value > DAY or (mode == "isostring" and value == DAY):
        return None
    if mode == "connect":
        return microseconds // 1000
    text = (EPOCH + value).time().isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"


@pytest.mark.parametrize("mode", MODES)
def test_log_and_chunk_are_the_same_bytes_and_report_what_the_server_holds(
    mode: TimeMode, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    name = fresh_database(mysql80)
    start = log_position(mysql80)
    with session(mysql80, name) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        table = read_table_schema(connection, name, "t")
        assert table is not None
        marks = ",".join(["%s"] * len(table.columns))
        cursor.executemany(f"INSERT INTO t VALUES ({marks})", rows(Random(23)))
        cursor.execute("SELECT * FROM t ORDER BY id")
        reported = cursor.fetchall()
        events = rows_events(mysql80, start, "t")
        for fmt in ("avro", "json"):
            logged = codec(table, events[0].layout, mode, fmt)
            records = [logged.encode_rows(e.buf, e.start, e.end, event_context(e.op)) for e in events]
            read = chunk_records(codec(table, None, mode, fmt), connection, "SELECT * FROM t ORDER BY id")
            ours = {k: v for r in records for k, v in zip(keys_of(r), values_of(r), strict=True)}
            theirs = {k: v for r in read for k, v in zip(keys_of(r), values_of(r), strict=True)}
            assert len(ours) == ROWS
            assert {k: _after(v, fmt) for k, v in ours.items()} == {k: _after(v, fmt) for k, v in theirs.items()}
            if fmt == "avro":
                in_avro = [from_avro(table, mode, v or b"")["after"] for r in read for v in values_of(r)]
        values = [json.loads(v or b"")["after"] for r in read for v in values_of(r)]
    assert in_avro == values
    for row, line in zip(values, reported, strict=True):
        for item, value in zip(table.columns, line, strict=True):
            if item.type in (C.DATE, C.TIME, C.DATETIME):
                assert row[item.name] == expected(item.type, item.precision or 0, value, mode), item
        assert row["ts"] == "2024-06-01T01:02:03.400000Z"


def from_avro(table: TableSchema, mode: TimeMode, value: bytes) -> Any:
    """A record as fastavro reads it, Connect's own times as the numbers they are."""
    text = to_avro(value_schema(table, PREFIX, "mysql", ValueModes(time=mode)))
    plain = re.sub(r',"logicalType":"[a-z-]+"', "", text)
    stream = io.BytesIO(value[5:])
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(plain)))
    assert stream.read() == b""
    return found


def _after(value: bytes | None, fmt: str) -> bytes:
    """The bytes up to the source block, which differ between log and chunk in nothing but `after`."""
    assert value is not None
    return value.partition(b',"source":' if fmt == "json" else b"\x02v\x0amysql")[0]


@pytest.mark.parametrize(
    ("mode", "kind", "value"),
    [
        ("connect", "TIME", "-00:00:01"),
        ("isostring", "TIME", "24:00:00"),
        ("nanoseconds", "DATETIME", "9999-12-31 00:00:00"),
    ],
)
def test_what_a_mode_cannot_hold_stops_where_null_is_not_allowed(
    mode: TimeMode, kind: str, value: str, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    name = fresh_database(mysql80)
    with session(mysql80, name) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {kind} NOT NULL)")
        cursor.execute("INSERT INTO t VALUES (1, %s)", (value,))
        table = read_table_schema(connection, name, "t")
        assert table is not None
        with pytest.raises(DecodeError, match=r"c \(.*outside what format.time can hold"):
            chunk_records(codec(table, None, mode, "json"), connection, "SELECT * FROM t")


def test_a_zero_date_is_the_epoch_where_null_is_not_allowed(
    mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    name = fresh_database(mysql80)
    with session(mysql80, name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE NOT NULL, m DATETIME NOT NULL)")
        cursor.execute("INSERT INTO t VALUES (1, '0000-00-00', '2024-02-31 00:00:00')")
        table = read_table_schema(connection, name, "t")
        assert table is not None
        (read,) = chunk_records(codec(table, None, "isostring", "json"), connection, "SELECT * FROM t")
    after = json.loads(values_of(read)[0] or b"")["after"]
    assert after == {"id": 1, "d": "1970-01-01Z", "m": "1970-01-01T00:00:00Z"}
