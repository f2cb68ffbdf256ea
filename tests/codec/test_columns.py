"""Each conversion against Python, over bytes written here; and the errors of values no server writes."""

from __future__ import annotations

import datetime
import json
import os
import struct
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pytest

from rowcodec import BinlogLayout
from rowcodec.charsets import decode_text
from rowcodec.types import Format
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import DecodeError
from tests.codec.oracle import Reader, chunk_context, event_context, make_codec, values_of

T = ColumnType
EPOCH = datetime.datetime(1970, 1, 1)
COUNT = 4000


def from_binlog(column: Column, code: int, meta: int, cells: list[bytes], fmt: Format = "avro") -> list[Any]:
    """The values of a one-column table whose rows hold these bytes."""
    table = TableSchema("d", "t", (column,))
    data = np.frombuffer(b"".join(b"\0" + cell for cell in cells), np.uint8).copy()
    records = make_codec(table, BinlogLayout((code,), (meta,)), fmt).encode_rows(
        data, 0, data.size, event_context("c")
    )
    return _values(table, records, fmt)


def from_result(column: Column, cells: list[bytes], fmt: Format = "avro") -> list[Any]:
    """The same from row packets."""
    table = TableSchema("d", "t", (column,))
    packets = [struct.pack("<I", len(cell) + 2) + b"\0\0" + cell for cell in cells]
    data = np.frombuffer(b"".join(packets), np.uint8).copy()
    records = make_codec(table, None, fmt).encode_resultset(data, 0, data.size, chunk_context())
    return _values(table, records, fmt)


def _values(table: TableSchema, records: Any, fmt: Format) -> list[Any]:
    reader = Reader(table, fmt)
    return [
        reader.value(value)["after"][table.columns[0].name]
        for value in values_of(records)
        if value is not None
    ]


def column(kind: ColumnType, *, nullable: bool = True, **facts: Any) -> Column:
    return Column("v", kind, nullable, **facts)


def lenenc(data: bytes) -> bytes:
    assert len(data) < 251
    return bytes([len(data)]) + data


def count() -> int:
    """Values per test; the un-jitted leg takes fewer."""
    return COUNT if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" else COUNT // 20


# ── numbers ────────────────────


def test_integers_of_all_widths_and_zigzag_boundaries() -> None:
    for kind, code, size in (
        (T.TINYINT, 1, 1),
        (T.SMALLINT, 2, 2),
        (T.MEDIUMINT, 9, 3),
        (T.INT, 3, 4),
        (T.BIGINT, 8, 8),
    ):
        bits = 8 * size
        numbers = sorted(
            {
                n
                for e in range(bits)
                for n in (1 << e, (1 << e) - 1, -(1 << e), -(1 << e) - 1)
                if -(1 << (bits - 1)) <= n < 1 << (bits - 1)
            }
        )
        cells = [n.to_bytes(size, "little", signed=True) for n in numbers]
        for fmt in ("avro", "json"):
            assert from_binlog(column(kind), code, 0, cells, fmt) == numbers
        naturals = sorted({n for e in range(bits + 1) for n in (1 << e, (1 << e) - 1) if n < 1 << bits})
        cells = [n.to_bytes(size, "little") for n in naturals]
        assert from_binlog(column(kind, unsigned=True), code, 0, cells) == naturals
        wide = [n.to_bytes(4 if size == 3 else size, "little") for n in naturals]
        assert from_result(column(kind, unsigned=True), wide) == naturals


def packed_decimal(number: int, precision: int, scale: int) -> bytes:
    """MySQL's decimal2bin, by text."""
    digits = f"{abs(number):0{precision}d}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    head = len(whole) % 9
    groups = [whole[:head]] + [whole[i : i + 9] for i in range(head, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    data = b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group)
    if number < 0:
        data = bytes(byte ^ 0xFF for byte in data)
    return bytes([data[0] ^ 0x80]) + data[1:]


@pytest.mark.parametrize("seed", range(12))
def test_decimals_of_any_precision_and_scale(seed: int) -> None:
    random = Random(seed)
    precision = random.choice([1, 9, 10, 18, 19, 27, 38, 65, random.randint(1, 65)])
    scale = random.randint(0, min(precision, 30))
    top = 10**precision
    numbers = [random.randrange(-top + 1, top) for _ in range(count() // 20)]
    numbers += [
        n for e in range(216) for n in (1 << e, (1 << e) - 1, -(1 << e), -(1 << e) - 1) if abs(n) < top
    ]
    numbers += [0, top - 1, 1 - top]
    kind = column(T.DECIMAL, precision=precision, scale=scale)
    expected = [Decimal(f"{number}e-{scale}") for number in numbers]
    packed = [packed_decimal(number, precision, scale) for number in numbers]
    assert from_binlog(kind, 246, precision << 8 | scale, packed) == expected
    assert from_result(kind, [lenenc(f"{value:f}".encode()) for value in expected]) == expected


def _digits(text: str) -> tuple[str, int]:
    mantissa, _, exponent = text.lower().lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0")
    return digits, len((whole + fraction).rstrip("0")) and int(exponent or 0) - len(fraction)


def test_doubles_in_json_are_the_shortest_digits_and_java_like() -> None:
    random = Random(5)
    bits = [random.getrandbits(64) for _ in range(count())]
    bits += [1, 2, 3, 1 << 52, (1 << 52) - 1, 0x7FEFFFFFFFFFFFFF] + [e << 52 for e in range(1, 2047, 7)]
    numbers = [struct.unpack("<d", struct.pack("<Q", b))[0] for b in bits if b >> 52 & 2047 != 2047]
    numbers += [round(random.uniform(-1e6, 1e6), random.randint(0, 9)) for _ in range(count() // 4)]
    numbers += [0.0, -0.0, 1.0, 1e-3, 1e7, 9999999.0, 123456.5, 1e21, 1e22, 5e-324]
    texts = _texts(column(T.DOUBLE), 5, [struct.pack("<d", number) for number in numbers])
    for text, number in zip(texts, numbers, strict=True):
        assert struct.pack("<d", float(text)) == struct.pack("<d", number)
        assert _digits(text)[0] == _digits(repr(number))[0]
    assert texts[-10:] == [
        "0.0",
        "-0.0",
        "1.0",
        "0.001",
        "1.0E7",
        "9999999.0",
        "123456.5",
        "1.0E21",
        "1.0E22",
        "5.0E-324",
    ]


def test_floats_in_json_are_the_shortest_digits_of_their_width() -> None:
    random = Random(6)
    bits = [b for b in (random.getrandbits(32) for _ in range(count())) if b >> 23 & 255 != 255]
    bits += [1, 2, 1 << 23, 0x7F7FFFFF, *(e << 23 for e in range(1, 255))]
    texts = _texts(column(T.FLOAT), 4, [struct.pack("<I", b) for b in bits])
    for text, b in zip(texts, bits, strict=True):
        number = np.uint32(b).view(np.float32)
        assert np.float32(text) == number
        assert _digits(text)[0] == _digits(np.format_float_scientific(number, trim="-"))[0]
    widened = from_binlog(column(T.FLOAT, length=7, scale=2), 4, 4, [struct.pack("<I", b) for b in bits])
    assert [struct.pack("<d", w) for w in widened] == [
        struct.pack("<d", float(np.uint32(b).view(np.float32))) for b in bits
    ]


def _texts(kind: Column, code: int, cells: list[bytes]) -> list[str]:
    """The number texts of a JSON envelope."""
    table = TableSchema("d", "t", (kind,))
    data = np.frombuffer(b"".join(b"\0" + cell for cell in cells), np.uint8).copy()
    records = make_codec(table, BinlogLayout((code,), (8,)), "json").encode_rows(
        data, 0, data.size, event_context("c")
    )
    return [
        json.loads(value, parse_float=str)["after"]["v"] for value in values_of(records) if value is not None
    ]


# ── dates and times ────────────────────


def _moments() -> list[datetime.datetime]:
    random = Random(9)
    found = [
        datetime.datetime(year, month, 1) + datetime.timedelta(days=delta)
        for year in (2, 1582, 1600, 1899, 1900, 1969, 1970, 1999, 2000, 2023, 2024, 2100, 9998)
        for month in (1, 2, 3, 12)
        for delta in (-1, 0, 27, 28, 29)
    ]
    span = datetime.datetime(9999, 12, 31) - datetime.datetime(1, 1, 1)
    return found + [datetime.datetime(1, 1, 1) + random.random() * span for _ in range(count())]


def test_dates_are_days_since_1970() -> None:
    moments = _moments()
    packed = [(m.year << 9 | m.month << 5 | m.day).to_bytes(3, "little") for m in moments]
    structs = [struct.pack("<BHBB", 4, m.year, m.month, m.day) for m in moments]
    expected = [(m.date() - EPOCH.date()).days for m in moments]
    assert from_binlog(column(T.DATE), 10, 0, packed) == expected
    assert from_result(column(T.DATE), structs) == expected


@pytest.mark.parametrize("digits", range(7))
def test_datetimes_and_timestamps_keep_their_fraction(digits: int) -> None:
    unit = 10 ** (6 - digits)
    moments = [m.replace(microsecond=m.microsecond // unit * unit) for m in _moments()]
    size = (digits + 1) // 2
    scale = (1, 10_000, 100, 1)[size]

    def fraction(m: datetime.datetime) -> bytes:
        return (m.microsecond // scale).to_bytes(size, "big")

    def clock(m: datetime.datetime) -> bytes:
        number = (m.year * 13 + m.month) << 22 | m.day << 17 | m.hour << 12 | m.minute << 6 | m.second
        return (number | 1 << 39).to_bytes(5, "big") + fraction(m)

    us = [(m - EPOCH) // datetime.timedelta(microseconds=1) for m in moments]
    expected = [value // 1000 if digits <= 3 else value for value in us]
    kind = column(T.DATETIME, precision=digits)
    structs = [
        struct.pack("<BHBBBBBI", 11, m.year, m.month, m.day, m.hour, m.minute, m.second, m.microsecond)
        for m in moments
    ]
    assert from_binlog(kind, 18, digits, [clock(m) for m in moments]) == expected
    assert from_result(kind, structs) == expected
    stamped = [m for m in moments if 1970 <= m.year < 2106 and (m - EPOCH).total_seconds() > 1]
    texts = [
        f"{m:%Y-%m-%dT%H:%M:%S}" + (f".{m.microsecond:06d}"[: digits + 1] if digits else "") + "Z"
        for m in stamped
    ]
    packed = [
        ((m - EPOCH) // datetime.timedelta(seconds=1)).to_bytes(4, "big") + fraction(m) for m in stamped
    ]
    kind = column(T.TIMESTAMP, precision=digits)
    assert from_binlog(kind, 17, digits, packed) == texts
    stamped_structs = [item for item, m in zip(structs, moments, strict=True) if m in set(stamped)]
    assert from_result(kind, stamped_structs) == texts


@pytest.mark.parametrize("digits", range(7))
def test_times_are_signed_microseconds(digits: int) -> None:
    random = Random(digits)
    unit = 10 ** (6 - digits)
    top = (838 * 3600 + 59 * 60 + 59) * 1_000_000
    values = [random.randint(-top, top) // unit * unit for _ in range(count())] + [0, unit, -unit, top, -top]
    values += [n * 1_000_000 for n in (-1, 1, -3600, 86400)]
    values = [v for v in values if abs(v) <= top]

    def packed(value: int) -> bytes:
        seconds, micros = divmod(abs(value), 1_000_000)
        number = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 24 | micros
        number = -number if value < 0 else number
        if digits > 4:
            return (number + (1 << 47)).to_bytes(6, "big")
        whole = number >> 24
        rest = number - (whole << 24)  # 0 .. 2^24-1
        size = (digits + 1) // 2
        if size == 0:
            return (whole + (1 << 23)).to_bytes(3, "big")
        # The server stores the fraction of a negative number as a negative byte or two (my_time.cc).
        fraction = -(micros // (10_000, 100)[size - 1]) if value < 0 else rest // (10_000, 100)[size - 1]
        return (whole + (1 << 23)).to_bytes(3, "big") + fraction.to_bytes(size, "big", signed=value < 0)

    def as_struct(value: int) -> bytes:
        seconds, micros = divmod(abs(value), 1_000_000)
        return struct.pack(
            "<BBIBBBI",
            12,
            value < 0,
            seconds // 86400,
            seconds // 3600 % 24,
            seconds // 60 % 60,
            seconds % 60,
            micros,
        )

    kind = column(T.TIME, precision=digits)
    assert from_binlog(kind, 19, digits, [packed(v) for v in values]) == values
    assert from_result(kind, [as_struct(v) for v in values]) == values


def test_zero_and_impossible_dates_are_null_or_the_default_or_the_epoch() -> None:
    zero, impossible = b"\0\0\0", (2024 << 9 | 2 << 5 | 31).to_bytes(3, "little")
    assert from_binlog(column(T.DATE), 10, 0, [zero, impossible]) == [None, None]
    assert from_binlog(column(T.DATE, nullable=False), 10, 0, [zero, impossible]) == [0, 0]
    default = column(T.DATE, nullable=False, default="2020-02-29", has_default=True)
    assert from_binlog(default, 10, 0, [zero]) == [18321]
    assert from_result(default, [b"\0"]) == [18321]
    stamp = column(T.TIMESTAMP, nullable=False, precision=0)
    assert from_binlog(stamp, 17, 0, [bytes(4)]) == from_result(stamp, [b"\0"]) == ["1970-01-01T00:00:00Z"]
    assert from_result(column(T.TIME, precision=0), [b"\0"]) == [0]
    assert from_result(column(T.DATETIME, precision=0), [struct.pack("<BHBB", 4, 1970, 1, 2)]) == [86400_000]


def test_a_nullable_column_with_a_default_has_its_value_in_the_first_branch() -> None:
    kind = column(T.INT, default="5", has_default=True)
    table = TableSchema("d", "t", (kind,))
    data = np.frombuffer(b"\0" + struct.pack("<i", 7) + b"\1", np.uint8).copy()
    for fmt in ("avro", "json"):
        records = make_codec(table, BinlogLayout((3,), (0,)), fmt).encode_rows(
            data, 0, data.size, event_context("c")
        )
        assert _values(table, records, fmt) == [7, None]


# ── text, bytes, members ────────────────────


def test_latin1_is_cp1252_with_five_controls() -> None:
    data = bytes(range(256))
    expected = "".join(
        chr(code) if code in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([code]).decode("cp1252")
        for code in range(256)
    )
    for fmt in ("avro", "json"):
        kind = column(T.VARCHAR, charset="latin1", length=300)
        assert from_binlog(kind, 15, 300, [struct.pack("<H", 256) + data, b"\1\0a"], fmt) == [expected, "a"]


def test_every_control_character_and_astral_text_survive_json() -> None:
    text = "".join(map(chr, range(1, 160))) + 'é€😀\U0010ffff"\\/'
    cell = struct.pack("<H", len(text.encode())) + text.encode()
    for fmt in ("avro", "json", "json_schema"):
        assert from_binlog(column(T.TEXT, charset="utf8mb4"), 252, 2, [cell], fmt) == [text]


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x80\x80",
        b"\xed\xa0",
        b"\xed\xa0\x80\xed\xa0\x41",
        b"\xc3\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98",
        b"a\xffb",
        b"\xe2\x82\x41",
    ],
)
def test_malformed_utf8_is_an_error(data: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        data.decode()
    with pytest.raises(DecodeError, match="not valid in its character set"):
        from_binlog(column(T.TEXT, charset="utf8mb4"), 252, 2, [struct.pack("<H", len(data)) + data])
    with pytest.raises(DecodeError, match="not valid in its character set"):
        from_result(column(T.TEXT, charset="utf8mb4"), [lenenc(data)])


@pytest.mark.parametrize("fmt", ["avro", "json"])
def test_halves_of_surrogate_pairs_are_question_marks(fmt: Format) -> None:
    halves = [
        b"\xed\xa0\x80",
        b'a\xed\xbf\xbf"\n\xc3\xa9',
        b"\xf0\x9f\x98\x80\xed\xa0\xbd\xed\xb8\x80",
        b"\xed\x9f\xbf" * 40 + b"\xed\xb0\x80",
    ]
    reported = ["?", 'a?"\n\u00e9', "\U0001f600??", "\ud7ff" * 40 + "?"]
    text = column(T.TEXT, charset="utf8mb4")
    assert from_binlog(text, 252, 2, [struct.pack("<H", len(data)) + data for data in halves], fmt) == reported
    assert from_result(text, [lenenc(data) for data in halves], fmt) == reported
    assert [decode_text(data, "utf8mb4") for data in halves] == reported


def test_binary_is_padded_and_varbinary_is_not() -> None:
    fixed = column(T.BINARY, length=4)
    for fmt, wanted in (("avro", [b"a\0\0\0", bytes(4)]), ("json", ["YQAAAA==", "AAAAAA=="])):
        assert from_binlog(fixed, 254, 4, [b"\1a", b"\0"], fmt) == wanted
        assert from_result(fixed, [lenenc(b"a\0\0\0"), lenenc(bytes(4))], fmt) == wanted
    assert from_binlog(column(T.VARBINARY, length=4), 15, 4, [b"\1a", b"\0"]) == [b"a", b""]
    with pytest.raises(DecodeError, match="length"):
        from_binlog(fixed, 254, 4, [b"\5abcde"])


def test_base64_of_every_length() -> None:
    import base64

    values = [bytes((7 * n + i) % 256 for i in range(n)) for n in range(40)]
    found = from_binlog(column(T.BLOB), 252, 1, [bytes([len(v)]) + v for v in values], "json")
    assert [base64.b64decode(text, validate=True) for text in found] == values


def test_bits_are_little_endian_and_one_bit_is_a_boolean() -> None:
    assert from_binlog(column(T.BIT, length=1), 16, 1, [b"\0", b"\1"]) == [False, True]
    assert from_binlog(column(T.BIT, length=1), 16, 1, [b"\0", b"\1"], "json") == [False, True]
    assert from_binlog(column(T.BIT, length=12), 16, 1 << 8 | 4, [b"\x0f\x01"]) == [b"\x01\x0f"]
    with pytest.raises(DecodeError, match="bits are set"):
        from_binlog(column(T.BIT, length=12), 16, 1 << 8 | 4, [b"\x10\x01"])
    with pytest.raises(DecodeError, match="bits are set"):
        from_binlog(column(T.BIT, length=1), 16, 1, [b"\2"])


def test_enum_and_set_by_index_and_bitmap() -> None:
    members = ("a", 'b"', "ü", "c\n")
    enum = column(T.ENUM, charset="utf8mb4", members=members)
    chosen = column(T.SET, charset="utf8mb4", members=members)
    for fmt in ("avro", "json"):
        assert from_binlog(enum, 247, 1, [bytes([n]) for n in range(5)], fmt) == ["", *members]
        cells = [b"\0", b"\1", b"\x06", b"\x0f"]
        assert from_binlog(chosen, 248, 1, cells, fmt) == ["", "a", 'b",ü', 'a,b",ü,c\n']
    with pytest.raises(DecodeError, match="beyond the members"):
        from_binlog(enum, 247, 1, [b"\5"])
    with pytest.raises(DecodeError, match="beyond the members"):
        from_binlog(chosen, 248, 1, [b"\x10"])


# ── values no server writes ────────────────────


@pytest.mark.parametrize(
    ("kind", "code", "meta", "cell", "reason"),
    [
        (column(T.DATE), 10, 0, (2024 << 9 | 13 << 5 | 1).to_bytes(3, "little"), "date"),
        (column(T.DATE), 10, 0, (12000 << 9 | 1 << 5 | 1).to_bytes(3, "little"), "date"),
        (column(T.DATETIME, precision=0), 18, 0, bytes(5), "date"),
        (column(T.DATETIME, precision=0), 18, 0, (1 << 39 | 24 << 12).to_bytes(5, "big"), "time"),
        (column(T.DATETIME, precision=2), 18, 2, (1 << 39).to_bytes(5, "big") + b"\xff", "time"),
        (column(T.TIME, precision=0), 19, 0, (1 << 23 | 60 << 6).to_bytes(3, "big"), "time"),
        (column(T.TIME, precision=0), 19, 0, (1 << 23 | 839 << 12).to_bytes(3, "big"), "time"),
        (column(T.TIMESTAMP, precision=6), 17, 6, b"\1\1\1\1\xff\xff\xff", "time"),
        (column(T.DECIMAL, precision=9, scale=0), 246, 9 << 8, b"\xff\xff\xff\xff", "digits"),
        (
            column(T.DECIMAL, precision=20, scale=9),
            246,
            20 << 8 | 9,
            b"\x80" + b"\x3f\xff\xff\xff" * 2,
            "digits",
        ),
        (column(T.DOUBLE), 5, 8, struct.pack("<d", float("nan")), "not a number"),
        (column(T.FLOAT), 4, 4, struct.pack("<f", float("inf")), "infinite"),
        (column(T.INT, nullable=False), 3, 0, b"\1\1", "middle of a value"),
        (column(T.TEXT, charset="utf8mb4"), 252, 4, b"\xff\xff\xff\xffab", "middle of a value"),
    ],
)
def test_impossible_parts_in_the_binlog_are_errors(
    kind: Column, code: int, meta: int, cell: bytes, reason: str
) -> None:
    with pytest.raises(DecodeError, match=rf"d\.t\.v .*{reason}.*binlog\.000003:1155"):
        from_binlog(kind, code, meta, [cell])


@pytest.mark.parametrize(
    ("kind", "cell", "reason"),
    [
        (column(T.DATE), b"\3\1\1\1", "length"),
        (column(T.DATETIME, precision=0), struct.pack("<BHBBBBB", 7, 2024, 1, 1, 24, 0, 0), "time"),
        (column(T.TIME, precision=0), struct.pack("<BBIBBB", 8, 2, 0, 0, 0, 0), "time"),
        (column(T.DECIMAL, precision=5, scale=2), lenenc(b"1.5"), "digits"),
        (column(T.DECIMAL, precision=5, scale=2), lenenc(b"1x.50"), "digits"),
        (column(T.DECIMAL, precision=5, scale=0), lenenc(b""), "digits"),
        (column(T.BIT, length=1), lenenc(b"\0\0"), "length"),
        (column(T.TEXT, charset="utf8mb4"), b"\xfb", "middle of a value"),
        (column(T.TEXT, charset="utf8mb4"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff", "middle of a value"),
        (column(T.INT), b"\1\0\0\0\0", "left over"),
    ],
)
def test_impossible_parts_in_a_result_set_are_errors(kind: Column, cell: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=rf"{reason}.*a chunk of d\.t"):
        from_result(kind, [cell])


def test_null_in_a_not_null_column_is_an_error() -> None:
    table = TableSchema("d", "t", (column(T.INT, nullable=False),))
    with pytest.raises(DecodeError, match="NOT NULL"):
        make_codec(table, BinlogLayout((3,), (0,)), "avro").encode_rows(
            np.ones(1, np.uint8), 0, 1, event_context("c")
        )


def test_a_packet_that_is_no_row_is_an_error() -> None:
    table = TableSchema("d", "t", (column(T.INT),))
    codec = make_codec(table, None, "avro")
    for data in (b"\1\0\0\0\xfe", b"\0\0\0\0", b"\5\0\0", b"\x09\0\0\0\0\0"):
        with pytest.raises(DecodeError):
            codec.encode_resultset(np.frombuffer(data, np.uint8).copy(), 0, len(data), chunk_context())
