"""MySQL's binary JSON: the text the server prints, without blanks; and damaged documents."""

from __future__ import annotations

import json
import os
import struct
import time
from random import Random
from typing import Any

import numpy as np
import pytest

from producer.binlog.tablemap import prints_bare_doubles
from rowcodec import BinlogLayout
from rowcodec.types import Format
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import DecodeError
from tests.codec.kinds import compact
from tests.codec.oracle import (
    Reader,
    chunk_records,
    event_context,
    log_position,
    make_codec,
    rows_events,
    session,
    values_of,
)
from tests.support.servers import database, drop_database, new_database

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
TABLE = TableSchema("d", "t", (Column("j", ColumnType.JSON, nullable=True),))

# SQL expressions of every kind of document the server can hold, many from Debezium's recorded type tests.
EXPRESSIONS = [
    *(f"CAST('{text}' AS JSON)" for text in (
        "{}", "[]", "null", "true", "false", '""', '"s"', "0", "1", "-1", "1.0", "1.10", "1e100", "1e-7", "0.1", "-0.0",
        "123456789012345678901234567890", "18446744073709551615", "-9223372036854775808", "4294967296", "65536", "65535",
        "32767", "32768", "-32768", "-32769", "2147483647", "2147483648", "-2147483649", "[[[[]]]]", '[{"a": []}, [{}]]',
        '{"b": 1, "a": 2, "aa": 3, "nested": {"arr": [1, [2, [3, {"x": null}]], false]}}', '{"": {"": ""}}',
        '  { "sp" : [ 1 , 2 ] }  ', '{"quote \\\\" and : , {": "back \\\\\\\\ slash"}', '["é€😀中", "\\\\u0001\\\\n\\\\t\\\\b\\\\f\\\\r\\\\u001f"]',
    )),
    "JSON_OBJECT('d', CAST('1.10' AS DECIMAL(10,2)), 'big', CAST('12345678901234567890123456789.123456789' AS DECIMAL(50,9)))",
    "JSON_ARRAY(0.5, -0.05, CAST(0 AS DECIMAL(5,3)), CAST(-7 AS DECIMAL(65,30)), CAST(10 AS DECIMAL(1,0)), 0.000000001)",
    ("JSON_OBJECT('date', CAST('2020-01-02' AS DATE), 'time', CAST('-12:34:56.7' AS TIME(1)), 'time6', CAST('838:59:59' AS TIME(6)), "
    "'dt', CAST('2020-01-02 03:04:05.678901' AS DATETIME(6)), 'dt0', CAST('9999-12-31 23:59:59' AS DATETIME))"),
    "JSON_ARRAY(TIMESTAMP'2001-02-03 04:05:06.5', TIME'00:00:00', TIME'-00:00:00.000001', DATE'0001-01-01')",
    "JSON_OBJECT('blob', CAST(X'00FF41' AS BINARY), 'bit', b'101', 'empty', CAST('' AS BINARY), 'year', CAST(2020 AS UNSIGNED))",
    *(f"JSON_ARRAY(CAST(REPEAT('b', {size}) AS BINARY))" for size in (56, 57, 58, 114, 115, 1000)),
    "JSON_ARRAY(1.5e0, CAST(3 AS UNSIGNED), 3.0, 100.0e0, 1e15, 1e16, 123456.789e3, 0.00001e0, 1e14, -1e15, 1e-15, 1e-16, 1.7976931348623157e308)",
    "CAST(CAST('2020-01-02 03:04:05' AS DATETIME) AS JSON)",
    "CAST(1.50 AS JSON)",
    "CAST(X'FF' AS JSON)",
    *(f"JSON_QUOTE(REPEAT('x', {size}))" for size in (1, 62, 63, 64, 65, 126, 127, 128, 129, 8190, 8191, 8192, 20000)),
    *(f"JSON_ARRAY(REPEAT('é\"', {size}))" for size in (10, 31, 32, 5000)),
    "JSON_OBJECT('long', REPEAT('x', 70000), 'then', JSON_ARRAY(1, 70000, -70000, 4294967296, NULL, TRUE))",
    "JSON_OBJECT(REPEAT('k', 1000), JSON_OBJECT(REPEAT('l', 3000), REPEAT('m', 66000)))",
    "(SELECT JSON_ARRAYAGG(n) FROM (WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s) x)",
]  # fmt: skip


def from_documents(documents: list[bytes], fmt: Format = "avro") -> list[Any]:
    """The texts of binary documents."""
    data = b"".join(b"\0" + struct.pack("<I", len(document)) + document for document in documents)
    buf = np.frombuffer(data, np.uint8).copy()
    records = make_codec(TABLE, BinlogLayout((245,), (4,)), fmt).encode_rows(
        buf, 0, buf.size, event_context("c")
    )
    reader = Reader(TABLE, fmt)
    return [reader.value(value)["after"]["j"] for value in values_of(records) if value is not None]


def check_texts(server_name: str, expressions: list[str]) -> None:
    """Fail unless log records have the text of each document as the server prints it, and the bytes of its snapshot row."""
    server = database(server_name)
    schema_name = new_database(server)
    table = TableSchema(
        schema_name,
        "t",
        (Column("id", ColumnType.INT, nullable=False), Column("j", ColumnType.JSON, nullable=True)),
        ("id",),
    )
    start = log_position(server)
    try:
        with session(server, schema_name) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
            for index, expression in enumerate(expressions):
                cursor.execute(f"INSERT INTO t VALUES ({index}, {expression})")
            cursor.execute("SELECT j FROM t ORDER BY id")
            reported = [str(row[0]) for row in cursor.fetchall()]
            events = rows_events(server, start, "t")
            for fmt in ("avro", "json"):
                reader = Reader(table, fmt)
                codec = make_codec(table, events[0].layout, fmt)
                logged = [
                    v
                    for e in events
                    for v in values_of(codec.encode_rows(e.buf, e.start, e.end, event_context("c")))
                ]
                read = [
                    v
                    for r in chunk_records(codec, connection, "SELECT * FROM t ORDER BY id")
                    for v in values_of(r)
                ]
                for expression, text, change, row in zip(expressions, reported, logged, read, strict=True):
                    assert change is not None
                    assert row is not None
                    valid = text.replace("\n", "\\n")  # MySQL 5.7 breaks the lines of Base64, and does not escape that
                    assert reader.value(change)["after"]["j"] == compact(valid), expression
                    assert reader.after_bytes(change) == reader.after_bytes(row), expression
    finally:
        drop_database(server, schema_name)


@pytest.mark.parametrize("server_name", ["mysql57", "mysql80", "mysql97"])
def test_every_kind_of_document_is_printed_as_the_server_prints_it(server_name: str) -> None:
    is_old = server_name == "mysql57"  # it has no WITH
    check_texts(server_name, [one for one in EXPRESSIONS if not (is_old and "WITH RECURSIVE" in one)])


def doubles() -> list[float]:
    """Random doubles by bits and by size, and the boundaries of the server's forms."""
    dice = Random(5)
    found = [struct.unpack("<d", struct.pack("<Q", dice.getrandbits(64)))[0] for _ in range(1_500)]
    found += [dice.choice([-1, 1]) * dice.random() * 10.0 ** dice.randrange(-20, 25) for _ in range(1_500)]
    for _ in range(500):
        whole = dice.getrandbits(dice.randrange(45, 64))
        found += [float(whole), whole + 0.5, whole / 4]
    found += [float(f"{sign}{digits}e{power}") for power in range(-330, 309) for sign, digits in (("", "1"), ("-", "9.999999999999999"))]
    for boundary in (1e-15, 1e-5, 1e-4, 1e14, 1e15, 1e16, 1e17, 2.0**53):
        (bits,) = struct.unpack("<q", struct.pack("<d", boundary))
        found += [struct.unpack("<d", struct.pack("<q", bits + step))[0] for step in range(-10, 11)]
    found += [0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]
    return [number for number in found if abs(number) < float("inf")]


@pytest.mark.parametrize("server_name", ["mysql57", "mysql80", pytest.param("mysql97", marks=pytest.mark.slow)])
def test_every_double_in_json_is_printed_as_the_server_prints_it(server_name: str) -> None:
    texts = [repr(number) if "e" in repr(number) else f"{number!r}e0" for number in doubles()]
    check_texts(server_name, [f"JSON_ARRAY({', '.join(texts[at : at + 100])})" for at in range(0, len(texts), 100)])


@pytest.mark.parametrize(
    ("version", "is_bare"),
    [("5.7.22-log", True), ("5.7.44", True), ("8.0.15", False), ("9.7.4", False), ("5.5.5-10.11.18-MariaDB-log", False), ("", False)],
)
def test_the_version_of_the_log_decides_how_doubles_are_printed(version: str, is_bare: bool) -> None:
    assert prints_bare_doubles(version) == is_bare


# ── documents written here ────────────────────


def small_array(entries: list[tuple[int, int]], body: bytes = b"") -> bytes:
    """A small array of (type, offset or value) entries, then its values."""
    header = 4 + 3 * len(entries)
    data = b"".join(struct.pack("<BH", kind, value & 0xFFFF) for kind, value in entries)
    return b"\x02" + struct.pack("<HH", len(entries), header + len(body)) + data + body


def test_an_empty_value_is_the_document_null() -> None:
    assert from_documents([b""]) == from_documents([b""], "json") == ["null"]


def test_offsets_that_blow_a_document_up_are_refused_quickly() -> None:
    # Each level is an array whose many entries all point to the next level: 60 ** 40 values, if believed.
    inner = small_array([(4, 1)])[1:]
    for _ in range(40):
        header = 4 + 3 * 60
        inner = struct.pack("<HH", 60, header + len(inner)) + struct.pack("<BH", 2, header) * 60 + inner
    from_documents([b""])  # the codec is compiled, or loaded
    begin = time.process_time()
    with pytest.raises(DecodeError, match=r"d\.t\.j \(json\): the JSON document is damaged, row 0"):
        from_documents([b"\x02" + inner])
    assert time.process_time() - begin < (2 if JIT else 60)


def test_a_document_that_contains_itself_is_refused() -> None:
    with pytest.raises(DecodeError, match="damaged"):
        from_documents([b"\x02" + struct.pack("<HH", 1, 7) + struct.pack("<BH", 2, 0)])


@pytest.mark.parametrize(("depth", "is_fine"), [(99, True), (100, True), (101, False)])
def test_depth_is_bounded_as_the_server_bounds_it(depth: int, is_fine: bool) -> None:
    inner = struct.pack("<HH", 0, 4)
    for _ in range(depth - 1):
        inner = struct.pack("<HH", 1, 7 + len(inner)) + struct.pack("<BH", 2, 7) + inner
    if is_fine:
        assert from_documents([b"\x02" + inner]) == ["[" * depth + "]" * depth]
    else:
        with pytest.raises(DecodeError, match="damaged"):
            from_documents([b"\x02" + inner])


@pytest.mark.parametrize(
    "document",
    [
        b"\x0d\1", b"\x10", b"\x04\3", b"\x04", b"\x05\1", b"\x0b\1\2\3", b"\x0b" + struct.pack("<d", float("inf")), b"\x0c\5abc",
        b"\x0c\x80\x80\x80\x80\x80\x01", b"\x0c\2\xff\xff", b"\x0f", b"\x0f\xf6\1\1", b"\x0f\xf6\6\5\2\x80\xff\xff\xff", b"\x0f\x0a\4abcd",
        b"\x0f\x0c\x08" + struct.pack("<q", (1 << 63) - 1), b"\x0f\x0b\x08" + struct.pack("<q", -(1 << 63)), b"\x00\1\0\4\0", b"\x02\xff\xff\xff\xff",
        b"\x01\1\0\0\0", b"\x03\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)  # fmt: skip
def test_damaged_documents_are_errors(document: bytes) -> None:
    with pytest.raises(DecodeError, match=r"d\.t\.j"):
        from_documents([document])


def _documents(random: Random) -> list[bytes]:
    """Honest documents of all shapes, small and large, by a writer of this test."""

    def scalar() -> tuple[int, bytes]:
        kind = random.choice([4, 5, 6, 7, 8, 9, 10, 11, 12, 15])
        if kind == 4:
            return kind, bytes([random.randrange(3)])
        if kind == 12:
            text = "".join(
                random.choice('a"\\é\n\x01😀') for _ in range(random.choice([0, 1, 5, 130]))
            ).encode()
            return kind, _length(len(text)) + text
        if kind == 15:
            data = bytes(random.randrange(256) for _ in range(random.choice([0, 3, 60])))
            return kind, bytes([random.choice([15, 252])]) + _length(len(data)) + data
        if kind == 11:
            return kind, struct.pack("<d", random.uniform(-1, 1) * 10 ** random.randint(-30, 30))
        size = {5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8}[kind]
        return kind, random.getrandbits(8 * size).to_bytes(size, "little")

    def value(depth: int) -> tuple[int, bytes]:
        if depth == 0 or random.random() < 0.5:
            return scalar()
        large = random.random() < 0.3
        is_object = random.random() < 0.5
        width = 4 if large else 2
        keys = sorted({f"k{random.randrange(50)}".encode() for _ in range(random.randrange(5))})
        items = [value(depth - 1) for _ in keys]
        header = 2 * width + len(keys) * (1 + width + (width + 2 if is_object else 0))
        body = b""
        entries = b""
        if is_object:
            for key in keys:
                entries += (header + len(body)).to_bytes(width, "little") + struct.pack("<H", len(key))
                body += key
        for kind, data in items:
            inlined = kind in (4, 5, 6) or (large and kind in (7, 8))
            target = data if inlined else (header + len(body)).to_bytes(width, "little")
            entries += bytes([kind]) + target.ljust(width, b"\0")
            body += b"" if inlined else data
        sizes = len(keys).to_bytes(width, "little") + (header + len(body)).to_bytes(width, "little")
        return (0 if is_object else 2) + large, sizes + entries + body

    found = []
    while len(found) < (300 if JIT else 20):
        kind, data = value(3)
        found.append(bytes([kind]) + data)
    return found


def _length(size: int) -> bytes:
    data = bytearray()
    while size > 127:
        data.append(size & 127 | 128)
        size >>= 7
    data.append(size)
    return bytes(data)


def test_mutated_documents_give_json_or_an_error() -> None:
    random = Random(77)
    documents = _documents(random)
    for fmt in ("avro", "json"):
        for text in from_documents(documents, fmt):
            json.loads(text)
    refused = cases = 0
    begin = time.process_time()
    for document in documents:
        for _ in range(8 if JIT else 2):
            changed = bytearray(document)
            for _ in range(random.choice([1, 1, 3])):
                changed[random.randrange(len(changed))] = random.choice(
                    [0, 1, 4, 0x7F, 0xFF, random.randrange(256)]
                )
            if random.random() < 0.2:
                changed = changed[: random.randrange(len(changed) + 1)]
            cases += 1
            try:
                for text in from_documents([bytes(changed)], random.choice(["avro", "json"])):
                    json.loads(text)
            except DecodeError:
                refused += 1
    assert 0 < refused < cases
    assert time.process_time() - begin < 300
