"""Values of the Python column path: texts, and what is refused."""

from __future__ import annotations

import struct
import zlib
from random import Random

import numpy as np
import pytest

from rowcodec.program import _Avro, _Json
from rowcodec.python_cells import (
    CellEncoder,
    address_cell,
    compressed_cell,
    java_text,
    spatial_cell,
    vector_cell,
)
from rowcodec.types import WireSchemas
from schemas.columns import ColumnType
from schemas.errors import DecodeError

AVRO = _Avro(WireSchemas("avro"))
JSON = _Json(WireSchemas("json"))
POINT = struct.pack("<IBIdd", 4326, 1, 1, 1.5, -2.0)
POLYGON_HEAD = struct.pack("<IBI", 0, 1, 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (123.456, "123.456"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (12345678.9, "1.23456789E7"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_doubles_look_as_java_prints_them(value: float, text: str) -> None:
    assert java_text(struct.pack("<d", value)).decode() == text


def test_every_float_text_reads_back_as_its_bits() -> None:
    random = Random(3)
    for _ in range(2000):
        bits = random.getrandbits(31)
        if bits >> 23 == 255:
            continue
        data = bits.to_bytes(4, "little")
        assert np.float32(java_text(data).decode()).tobytes() == data
    assert java_text(struct.pack("<f", 1e-45)) == b"1.4E-45"
    assert java_text(struct.pack("<f", 0.1)) == b"0.1"


def test_a_point_is_debeziums_struct() -> None:
    assert spatial_cell("p", ColumnType.POINT, JSON)(POINT) == (
        b'{"x":1.5,"y":-2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAADA","srid":4326}'
    )
    avro = spatial_cell("p", ColumnType.POINT, AVRO)(POINT)
    assert avro == POINT[9:] + b"\x02" + bytes([2 * 21]) + POINT[4:] + b"\x02" + b"\xcc\x43"


def test_an_empty_geometry_has_empty_wkb() -> None:
    assert spatial_cell("g", ColumnType.GEOMETRY, JSON)(b"") == b'{"wkb":"","srid":null}'
    assert spatial_cell("g", ColumnType.POINT, JSON)(b"") == b'{"x":0.0,"y":0.0,"wkb":"","srid":null}'


def test_a_vector_is_an_array_of_floats() -> None:
    data = struct.pack("<3f", 1.0, 0.1, -1e10)
    assert vector_cell("v", JSON)(data) == b"[1.0,0.1,-1.0E10]"
    assert vector_cell("v", AVRO)(data) == b"\x06" + data + b"\x00"
    assert (vector_cell("v", JSON)(b""), vector_cell("v", AVRO)(b"")) == (b"[]", b"\x00")


@pytest.mark.parametrize("header", [True, False])
def test_compressed_values_are_decompressed(header: bool) -> None:
    value = b"some text " * 40
    stream = zlib.compressobj(wbits=15 if header else -15)
    packed = stream.compress(value) + stream.flush()
    head = bytes([0x82 if header else 0x8A]) + len(value).to_bytes(2, "big")
    encode = compressed_cell("c", bytes)
    assert encode(head + packed) == value
    assert (encode(b""), encode(b"\0as it is")) == (b"", b"as it is")
    for damaged in (head + packed[:-9], head[:1] + b"\0\1" + packed, head + b"x" * 20, bytes([2]) + head[1:]):
        with pytest.raises(DecodeError, match="c: the compressed value is damaged"):
            encode(damaged)


@pytest.mark.parametrize(
    ("encode", "data"),
    [
        (spatial_cell("g.c", ColumnType.GEOMETRY, AVRO), POLYGON_HEAD[:8]),
        (spatial_cell("g.c", ColumnType.GEOMETRY, AVRO), b"\0\0\0\0\2" + POLYGON_HEAD),
        (spatial_cell("g.c", ColumnType.POINT, AVRO), POLYGON_HEAD),
        (spatial_cell("g.c", ColumnType.POINT, AVRO), POINT + b"x"),
        (vector_cell("g.c", AVRO), b"12345"),
        (address_cell("g.c", ColumnType.UUID, 16, AVRO), bytes(17)),
    ],
)
def test_damaged_values_are_refused_by_name(encode: CellEncoder, data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"g\.c: "):
        encode(data)
