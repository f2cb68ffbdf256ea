"""The modes of DECIMAL, BIGINT UNSIGNED, binary and DATETIME columns: schemas, and values from log and chunk."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, Literal

import pytest

from mysqlio.information_schema import read_table_schema
from rowcodec import SourceConstants, TableCodec, WireSchemas
from rowcodec.python_cells import packed_decimal
from schemas.avro import to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ConnectType, ValueModes
from schemas.errors import DecodeError
from schemas.types.connect import key_schema, value_schema
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
TABLE = """CREATE TABLE t (
    id BIGINT UNSIGNED, k DECIMAL(12,3) NOT NULL, b VARBINARY(9) NOT NULL, d DECIMAL(65,30), e DECIMAL(9,0) ZEROFILL,
    f DECIMAL(30,30), u BIGINT UNSIGNED, n BINARY(7), v VARBINARY(300), o LONGBLOB, m DATETIME, m3 DATETIME(3),
    m6 DATETIME(6), PRIMARY KEY (id, k, b))"""
ROWS = 60 if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else 8


def column(kind: ColumnType, **facts: Any) -> Column:
    return Column("c", kind, nullable=True, **facts)


@pytest.mark.parametrize(
    ("modes", "given", "kind", "default"),
    [
        (ValueModes(decimal="string"), column(C.DECIMAL, precision=10, scale=3, default="1.5"), "string", "1.500"),
        (ValueModes(decimal="string"), column(C.DECIMAL, precision=65, scale=30, default="-0.5"), "string",
         "-0.500000000000000000000000000000"),
        (ValueModes(decimal="double"), column(C.DECIMAL, precision=10, scale=3, default="1.5"), "double", 1.5),
        (ValueModes(bigint_unsigned="long"), column(C.BIGINT, unsigned=True, default=str(2**64 - 1)), "int64", -1),
        (ValueModes(bigint_unsigned="long"), column(C.BIGINT, unsigned=True, default="7"), "int64", 7),
        (ValueModes(binary="hex"), column(C.BINARY, length=4, default="0x6162"), "string", "61620000"),
        (ValueModes(binary="base64"), column(C.VARBINARY, length=4, default="0xFBFF3E3F"), "string", "+/8+Pw=="),
        (ValueModes(binary="base64-url-safe"), column(C.VARBINARY, length=4, default="0xFBFF3E3F"), "string",
         "-_8-Pw=="),
        (ValueModes(time="microseconds"), column(C.DATETIME, precision=3, default="1970-01-01 00:00:01.5"), "int64",
         1_500_000),
        (ValueModes(binary="hex", decimal="string"), column(C.BIT, length=9), "bytes", None),
    ],
)  # fmt: skip
def test_schemas_and_defaults_are_debeziums(
    modes: ValueModes, given: Column, kind: str, default: object
) -> None:
    schema = column_schema(replace(given, has_default=given.default is not None), modes)
    assert (schema.type, schema.default) == (ConnectType(kind), default)
    if given.type is C.DATETIME:
        assert schema.name == "io.debezium.time.MicroTimestamp"


def codec(table: TableSchema, layout: Any, modes: ValueModes, fmt: Literal["avro", "json"]) -> TableCodec:
    return TableCodec(table, layout, WireSchemas(fmt, 7, 8), SourceConstants("v", "mysql", PREFIX, modes))


def rows(random: Random) -> list[tuple[Any, ...]]:
    def digits(precision: int, scale: int) -> Decimal:
        top = 10 ** random.randint(0, precision)
        return Decimal(f"{random.randint(-top + 1, top - 1)}e-{scale}")

    def some(size: int) -> bytes:
        return random.choice([b"", b"\0", b"a\0", bytes(random.getrandbits(8) for _ in range(random.randint(0, size)))])

    return [
        (
            random.choice([number, 2**63, 2**64 - 1 - number]) + number, digits(12, 3), some(9), digits(65, 30),
            abs(digits(9, 0)), digits(30, 30), random.choice([None, 0, 2**63, 2**64 - 1]), some(7), some(300), some(900),
            "1969-12-31 23:59:59", "2024-02-29 01:02:03.456", "9999-12-31 23:59:59.999999",
        )
        for number in range(ROWS)
    ]  # fmt: skip


def read_back(modes: ValueModes, row: dict[str, Any]) -> dict[str, Any]:
    """A record's values as exact numbers and bytes again."""
    out = dict(row)
    for name in ("k", "d", "e", "f"):
        if modes.decimal == "string":
            out[name] = Decimal(row[name])
            assert "E" not in row[name]
    for name in ("b", "n", "v", "o"):
        if modes.binary == "hex":
            out[name] = bytes.fromhex(row[name])
        elif modes.binary == "base64-url-safe":
            out[name] = base64.urlsafe_b64decode(row[name])
        else:
            out[name] = base64.b64decode(row[name])
    return out


@pytest.mark.parametrize(
    "modes",
    [
        ValueModes("string", "long", "hex", "microseconds"),
        ValueModes("double", "long", "base64-url-safe", "microseconds"),
        ValueModes("string", "long", "base64"),
    ],
)
def test_log_and_chunk_are_the_same_bytes_and_report_what_the_server_holds(
    modes: ValueModes, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    name = fresh_database(mysql80)
    start = log_position(mysql80)
    with session(mysql80, name) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        table = read_table_schema(connection, name, "t")
        assert table is not None
        marks = ",".join(["%s"] * len(table.columns))
        found = rows(Random(17))
        cursor.executemany(f"INSERT INTO t VALUES ({marks})", [tuple(map(_literal, row)) for row in found])
        cursor.execute("SELECT * FROM t ORDER BY id, k, b")
        reported = cursor.fetchall()
        events = rows_events(mysql80, start, "t")
        for fmt in ("avro", "json"):
            logged = codec(table, events[0].layout, modes, fmt)
            records = [logged.encode_rows(e.buf, e.start, e.end, event_context(e.op)) for e in events]
            read = chunk_records(codec(table, None, modes, fmt), connection, "SELECT * FROM t ORDER BY id, k, b")
            ours = {k: v for r in records for k, v in zip(keys_of(r), values_of(r), strict=True)}
            theirs = {k: v for r in read for k, v in zip(keys_of(r), values_of(r), strict=True)}
            assert ours.keys() == theirs.keys()
            assert len(ours) == ROWS
            assert {k: _after(v, fmt) for k, v in ours.items()} == {k: _after(v, fmt) for k, v in theirs.items()}
        values = [read_back(modes, json.loads(v or b"")["after"]) for r in read for v in values_of(r)]
    for row, line in zip(values, reported, strict=True):
        for item, value in zip(table.columns, line, strict=True):
            if item.type is C.DECIMAL and modes.decimal == "double":
                assert row[item.name] == float(value)
            elif item.type is C.BIGINT and value is not None:
                assert row[item.name] % 2**64 == value
                assert -(2**63) <= row[item.name] < 2**63
            elif item.type is not C.DATETIME:
                assert row[item.name] == value, item
        assert row["m"] == (-1_000_000 if modes.time == "microseconds" else -1000)
        assert row["m3"] == 1709168523456 * (1000 if modes.time == "microseconds" else 1)
    for schema in (value_schema(table, PREFIX, "mysql", modes), key_schema(table, PREFIX, modes)):
        assert schema is not None
        assert '"logicalType":"decimal"' not in to_avro(schema)


def _literal(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _after(value: bytes | None, fmt: str) -> bytes:
    """The bytes up to the source block, which differ between log and chunk in nothing but `after`."""
    assert value is not None
    return value.partition(b',"source":' if fmt == "json" else b"\x02v\x0amysql")[0]


def test_a_damaged_decimal_is_refused() -> None:
    assert packed_decimal(4, 2, b"\x80\x01") == 1
    with pytest.raises(DecodeError, match="impossible digits"):
        packed_decimal(4, 2, b"\x80\x7f")
