"""A table of orders for the tests of records: its images as the log has them, and its records read back."""

from __future__ import annotations

import struct
from typing import Any, Literal

import numpy as np

from rowcodec import BinlogLayout, EventContext, Records, TableCodec
from rowcodec.types import Format
from schemas.columns import Column, ColumnType, TableSchema
from tests.codec.oracle import Reader, event_context, keys_of, values_of

T = ColumnType
FORMATS: tuple[Format, ...] = ("avro", "json", "json_schema")
COLUMNS = (
    Column("id", T.INT, nullable=False),
    Column("name", T.VARCHAR, nullable=True, charset="utf8mb4"),
    Column("tenant", T.SMALLINT, nullable=False),
)
LAYOUT = BinlogLayout((3, 15, 2), (0, 40, 0))
TABLE = TableSchema("shop", "orders", COLUMNS, ("tenant", "id"))


def image(key: int, name: str | None, tenant: int) -> bytes:
    text = b"" if name is None else bytes([len(name.encode())]) + name.encode()
    return bytes([0 if name is not None else 2]) + struct.pack("<i", key) + text + struct.pack("<h", tenant)


def packet(key: int, name: str, tenant: int) -> bytes:
    payload = (
        b"\0\0" + struct.pack("<i", key) + bytes([len(name)]) + name.encode() + struct.pack("<h", tenant)
    )
    return struct.pack("<I", len(payload)) + payload


def encode(
    codec: TableCodec, op: Literal["c", "u", "d"], *images: bytes, context: EventContext | None = None
) -> Records:
    data = np.frombuffer(b"..." + b"".join(images) + b"....", np.uint8).copy()
    return codec.encode_rows(data, 3, data.size - 4, context or event_context(op))


def decoded(fmt: Format, records: Records, table: TableSchema = TABLE) -> list[tuple[Any, Any]]:
    reader = Reader(table, fmt)
    return [
        (None if key is None else reader.key(key), None if value is None else reader.value(value))
        for key, value in zip(keys_of(records), values_of(records), strict=True)
    ]
