"""Microseconds per row of the row codec, on the `bench` table of the reference figures; no server needed.

    python bench/codec_bench.py [rows per event] [rounds]

Prints CPU time per row (process time) for rows events and result-set blocks in every format, and the time of
one call for an event of one row.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rowcodec import (
    BinlogLayout,
    ChunkContext,
    EventContext,
    Records,
    SourceConstants,
    TableCodec,
    WireSchemas,
)
from rowcodec.types import Format
from schemas.columns import Column, ColumnType, TableSchema
from schemas.jsonschema import to_json_schema
from schemas.types.connect import key_schema, value_schema

T = ColumnType
TABLE: Final = TableSchema(
    "shop",
    "bench",
    (
        Column("id", T.BIGINT, False),
        Column("a", T.INT, True),
        Column("b", T.VARCHAR, True, length=64, charset="utf8mb4"),
        Column("c", T.DECIMAL, True, precision=12, scale=2),
        Column("d", T.DATETIME, True, precision=6),
        Column("e", T.TEXT, True, charset="utf8mb4"),
        Column("f", T.DOUBLE, True),
        Column("g", T.TINYINT, True),
        Column("h", T.JSON, True),
        Column("i", T.TIMESTAMP, True, precision=0),
    ),
    ("id",),
)
LAYOUT: Final = BinlogLayout(
    (8, 3, 15, 246, 18, 252, 5, 1, 245, 17), (0, 0, 256, 12 << 8 | 2, 6, 2, 8, 0, 4, 0)
)
CONSTANTS: Final = SourceConstants("3.6.1.Final", "mysql", "srv")
TEXT: Final = b"The quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. "
DOCUMENT: Final = (
    b"\x00\x02\x00\x1e\x00\x12\x00\x01\x00\x13\x00\x04\x00\x05\x07\x00\x0c\x17\x00atext\x06sample"
)


def binlog_row(key: int, rng: random.Random, document: bytes | None) -> bytes:
    """A row image of the table."""
    name = b"customer-%d" % key
    amount = rng.randrange(10**10)
    packed = struct.pack(">BIB", amount // 10**11 & 0x7F, amount // 100 % 10**9, amount % 100)
    decimal = bytes([packed[0] | 0x80]) + packed[1:]
    moment = (2024 * 13 + 6) << 22 | rng.randrange(1, 29) << 17 | rng.randrange(24) << 12 | 30 << 6 | 15
    nulls = 0 if document is not None else 1 << 8
    return b"".join(
        (
            struct.pack("<Hqi", nulls, key, rng.randrange(-(2**31), 2**31)),
            struct.pack("<H", len(name)) + name,
            decimal,
            (moment | 1 << 39).to_bytes(5, "big") + rng.randrange(10**6).to_bytes(3, "big"),
            struct.pack("<H", len(TEXT)) + TEXT,
            struct.pack("<db", rng.random() * 1000, key & 1),
            b"" if document is None else struct.pack("<I", len(document)) + document,
            struct.pack(">I", 1_700_000_000 + key),
        )
    )


def result_row(key: int, rng: random.Random, document: bytes | None) -> bytes:
    """The same row as a packet of the binary protocol."""
    name = b"customer-%d" % key
    amount = b"%d.%02d" % (rng.randrange(10**8), rng.randrange(100))
    nulls = 0 if document is not None else 1 << 10
    text = b'{"a": 7, "text": "sample"}'
    payload = b"".join(
        (
            struct.pack("<xHqi", nulls, key, rng.randrange(-(2**31), 2**31)),
            bytes([len(name)]) + name,
            bytes([len(amount)]) + amount,
            struct.pack("<BHBBBBBI", 11, 2024, 6, rng.randrange(1, 29), 12, 30, 15, rng.randrange(10**6)),
            bytes([len(TEXT)]) + TEXT,
            struct.pack("<db", rng.random() * 1000, key & 1),
            b"" if document is None else bytes([len(text)]) + text,
            struct.pack("<BHBBBBB", 7, 2024, 6, 1, 12, 30, 15),
        )
    )
    return struct.pack("<I", len(payload)) + payload


def wire(fmt: Format) -> WireSchemas:
    """The wire schemas of the table."""
    if fmt != "json_schema":
        return WireSchemas(fmt, 1, 2)
    import json

    key, value = key_schema(TABLE, "srv"), value_schema(TABLE, "srv", "mysql")
    assert key is not None
    return WireSchemas(fmt, 0, 0, json.dumps(to_json_schema(key)), json.dumps(to_json_schema(value)))


def event_context(op: str = "c") -> EventContext:
    """What a log reader gives for each event."""
    return EventContext(
        "u" if op == "u" else "c", "0001.0000000003.000000000154", 1, 1_780_000_000_654_321, 9,
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:17", "binlog.000003", 1155, 12, None, time.time_ns(),
    )  # fmt: skip


def chunk_context() -> ChunkContext:
    """What a chunk reader gives for each block."""
    position = "0001.0000000003.000000000099.0000000000"
    return ChunkContext(
        position, "incremental", 1_780_000_000_654_321, "binlog.000003", 99, None, time.time_ns()
    )


def measure(run: Callable[[], Records], rounds: int) -> tuple[float, int]:
    """Best of five: CPU microseconds of one call, and the bytes of its values."""
    size = len(run().values)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(rounds):
            run()
        best = min(best, (time.process_time() - start) / rounds * 1e6)
    return best, size


def report(name: str, rows: int, run: Callable[[], Records], rounds: int) -> None:
    """One line of figures."""
    per_call, size = measure(run, rounds)
    print(
        f"{name:44s} {per_call / rows:7.3f} µs/row   {size / rows:6.0f} bytes/record   {per_call:9.1f} µs/call"
    )


def main(rows: int, rounds: int) -> None:
    """Measure all cases."""
    rng = random.Random(7)
    formats: tuple[Format, ...] = ("avro", "json", "json_schema")
    for fmt in formats:
        codec = TableCodec(TABLE, LAYOUT, wire(fmt), CONSTANTS)
        for label, document in (("JSON null", None), ("small JSON", DOCUMENT)):
            images = [binlog_row(key, rng, document) for key in range(rows)]
            event = np.frombuffer(bytearray(b"".join(images)), np.uint8)
            report(
                f"{fmt}: insert, {label}",
                rows,
                lambda e=event: codec.encode_rows(e, 0, e.size, event_context()),
                rounds,
            )  # type: ignore[misc]
            block = np.frombuffer(
                bytearray(b"".join(result_row(key, rng, document) for key in range(rows))), np.uint8
            )
            report(
                f"{fmt}: chunk, {label}",
                rows,
                lambda b=block: codec.encode_resultset(b, 0, b.size, chunk_context()),
                rounds,
            )  # type: ignore[misc]
        pairs = np.frombuffer(bytearray(b"".join(image + image for image in images)), np.uint8)
        report(
            f"{fmt}: update, small JSON",
            rows,
            lambda e=pairs: codec.encode_rows(e, 0, e.size, event_context("u")),
            rounds,
        )  # type: ignore[misc]
        one = np.frombuffer(bytearray(images[0]), np.uint8)
        context = event_context()
        report(
            f"{fmt}: one row per event",
            1,
            lambda e=one, c=context: codec.encode_rows(e, 0, e.size, c),
            5 * rounds,
        )  # type: ignore[misc]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 200)
