"""A table with every type: what is inserted, and what a right sink holds of it, written down by hand."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAIVE = pa.timestamp("us")
SHAPE = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])
POINT = struct.pack("<BIdd", 1, 1, 1.5, -2.0)
AWARE = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column, its type in the sink, and pairs of SQL literal and value in the sink."""

    name: str
    ddl: str
    sink: pa.DataType
    values: tuple[tuple[str, Any], ...]


def _float(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


DIGITS_65 = "1" * 35 + "." + "9" * 30

COLUMNS = (
    TypedColumn("c_tinyint", "TINYINT", pa.int8(), (("-128", -128), ("127", 127), ("NULL", None))),
    TypedColumn("c_utinyint", "TINYINT UNSIGNED", pa.int16(), (("255", 255), ("0", 0))),
    TypedColumn("c_bool", "TINYINT(1)", pa.int16(), (("1", 1), ("0", 0), ("7", 7))),
    TypedColumn("c_smallint", "SMALLINT UNSIGNED", pa.int32(), (("65535", 65535), ("1", 1))),
    TypedColumn("c_mediumint", "MEDIUMINT", pa.int32(), (("-8388608", -8388608), ("8388607", 8388607))),
    TypedColumn("c_int", "INT UNSIGNED", pa.int64(), (("4294967295", 4294967295), ("NULL", None))),
    TypedColumn("c_bigint", "BIGINT", pa.int64(), (("-9223372036854775808", -(2**63)), ("5", 5))),
    TypedColumn(
        "c_ubigint",
        "BIGINT UNSIGNED",
        pa.decimal128(20, 0),
        (("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0)), ("NULL", None)),
    ),
    TypedColumn(
        "c_decimal",
        "DECIMAL(12,2)",
        pa.decimal128(12, 2),
        (("-9999999999.99", Decimal("-9999999999.99")), ("0.10", Decimal("0.10")), ("NULL", None)),
    ),
    TypedColumn("c_decimal38", "DECIMAL(38,10)", pa.decimal128(38, 10), (("1.5", Decimal("1.5")),)),
    TypedColumn(
        "c_decimal65",
        "DECIMAL(65,30)",
        pa.string(),
        ((DIGITS_65, DIGITS_65), ("-0.5", "-0." + "5" + "0" * 29)),
    ),
    TypedColumn(
        "c_float",
        "FLOAT",
        pa.float32(),
        (
            ("0.1", _float(0.1)),
            ("16777216", 16777216.0),
            ("3.4028234e38", _float(3.4028234e38)),
            ("NULL", None),
        ),
    ),
    TypedColumn(
        "c_double",
        "DOUBLE",
        pa.float64(),
        (
            ("0.1", 0.1),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("5e-324", 5e-324),
            ("NULL", None),
        ),
    ),
    TypedColumn("c_bit1", "BIT(1)", pa.bool_(), (("b'1'", True), ("b'0'", False), ("NULL", None))),
    TypedColumn("c_bit10", "BIT(10)", pa.binary(), (("b'1000000011'", b"\x03\x02"), ("b'1'", b"\x01\x00"))),
    TypedColumn("c_bit64", "BIT(64)", pa.binary(), (("b'1'", b"\x01" + bytes(7)), ("~0", b"\xff" * 8))),
    TypedColumn("c_year", "YEAR", pa.int32(), (("2155", 2155), ("1901", 1901), ("'0000'", 0))),
    TypedColumn(
        "c_date",
        "DATE",
        pa.date32(),
        (
            ("'2024-02-29'", date(2024, 2, 29)),
            ("'1000-01-01'", date(1000, 1, 1)),
            ("'9999-12-31'", date(9999, 12, 31)),
            ("'0000-00-00'", None),
            ("'2024-02-31'", None),
            ("'2024-00-10'", None),
        ),
    ),
    TypedColumn(
        "c_time",
        "TIME(6)",
        pa.int64(),
        (("'-838:59:58.999999'", -3020398999999), ("'00:00:00.5'", 500000), ("'12:34:56'", 45296000000)),
    ),
    TypedColumn("c_time0", "TIME", pa.int64(), (("'-00:00:01'", -1000000), ("'100:00:00'", 360000000000))),
    TypedColumn(
        "c_datetime",
        "DATETIME(6)",
        NAIVE,
        (
            ("'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
            ("'1000-01-01 00:00:00'", datetime(1000, 1, 1)),
            ("'0000-00-00 00:00:00'", None),
            ("'2024-02-31 01:02:03'", None),
        ),
    ),
    TypedColumn(
        "c_datetime3",
        "DATETIME(3)",
        NAIVE,
        (("'2024-05-06 07:08:09.123'", datetime(2024, 5, 6, 7, 8, 9, 123000)),),
    ),
    TypedColumn(
        "c_timestamp",
        "TIMESTAMP(6) NULL",
        AWARE,
        (
            ("'2038-01-19 03:14:07.999999'", datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)),
            ("'1970-01-01 00:00:01'", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ("'0000-00-00 00:00:00'", None),
        ),
    ),
    TypedColumn("c_char", "CHAR(10)", pa.string(), (("'ab  '", "ab"), ("'ß'", "ß"))),
    TypedColumn(
        "c_varchar", "VARCHAR(300)", pa.string(), (("'日本 🌊 '", "日本 🌊 "), ("''", ""), ("NULL", None))
    ),
    TypedColumn("c_long", "VARCHAR(300)", pa.string(), (("REPEAT('é', 260)", "é" * 260),)),
    TypedColumn("c_latin1", "VARCHAR(20) CHARACTER SET latin1", pa.string(), (("'€ß'", "€ß"),)),
    TypedColumn("c_utf8mb3", "VARCHAR(20) CHARACTER SET utf8", pa.string(), (("'Łódź'", "Łódź"),)),
    TypedColumn(
        "c_text", "MEDIUMTEXT", pa.string(), (("REPEAT('x', 70000)", "x" * 70000), ("'a\\nb'", "a\nb"))
    ),
    TypedColumn(
        "c_binary", "BINARY(4)", pa.binary(), (("x'01'", b"\x01\0\0\0"), ("x'FFFEFDFC'", b"\xff\xfe\xfd\xfc"))
    ),
    TypedColumn("c_varbinary", "VARBINARY(20)", pa.binary(), (("x'00FF00'", b"\0\xff\0"), ("''", b""))),
    TypedColumn("c_blob", "LONGBLOB", pa.binary(), (("REPEAT(x'FB', 300)", b"\xfb" * 300), ("NULL", None))),
    TypedColumn(
        "c_enum", "ENUM('a','b','it''s')", pa.string(), (("'it''s'", "it's"), ("''", ""), ("NULL", None))
    ),
    TypedColumn("c_set", "SET('z','y','x')", pa.string(), (("'x,z'", "z,x"), ("''", ""))),
    TypedColumn("c_gbk", "VARCHAR(20) CHARACTER SET gbk", pa.string(), (("'中文 a'", "中文 a"), ("NULL", None))),
    TypedColumn(
        "c_point",
        "POINT",
        SHAPE,
        (
            (f"x'E6100000{POINT.hex()}'", {"srid": 4326, "wkb": POINT}),
            (f"x'00000000{POINT.hex()}'", {"srid": None, "wkb": POINT}),
            ("NULL", None),
        ),
    ),
    TypedColumn(
        "c_geometry", "GEOMETRY", SHAPE, ((f"x'00000000{POINT.hex()}'", {"srid": None, "wkb": POINT}),)
    ),
)

JSON_COLUMN = TypedColumn(
    "c_json",
    "JSON",
    pa.string(),
    (
        ('\'{"b": [1, 2.5, "x y"], "aa": null}\'', '{"b":[1,2.5,"x y"],"aa":null}'),
        ("'[18446744073709551615, 9007199254740993]'", "[18446744073709551615,9007199254740993]"),
        ("'{\"k\": 1}'", '{ "k" : 1.0 }'),
        ("'null'", "null"),
        ("NULL", None),
    ),
)


VECTOR_COLUMN = TypedColumn(
    "c_vector",
    "VECTOR(2)",
    pa.list_(pa.float32()),
    ((f"x'{struct.pack('<2f', 1.5, -0.1).hex()}'", [1.5, _float(-0.1)]), ("NULL", None)),
)
SHORT_YEAR_COLUMN = TypedColumn(
    "c_year2", "YEAR(2)", pa.int32(), (("70", 1970), ("99", 1999), ("'00'", 2000), ("69", 2069), ("NULL", None))
)
"""MariaDB's."""
WITH_VECTORS = ("mysql97", "mariadb118")


def rows(count: int, columns: tuple[TypedColumn, ...]) -> list[list[tuple[str, Any]]]:
    """Row i takes the i-th value of each column, in turn."""
    return [[column.values[index % len(column.values)] for column in columns] for index in range(count)]


def create_sql(table: str, columns: tuple[TypedColumn, ...]) -> str:
    defined = ", ".join(f"{column.name} {column.ddl}" for column in columns)
    return f"CREATE TABLE {table} (id INT PRIMARY KEY, {defined}) CHARACTER SET utf8mb4"


def insert_sql(table: str, values: list[list[tuple[str, Any]]]) -> str:
    lines = (f"({index},{','.join(sql for sql, _ in row)})" for index, row in enumerate(values))
    return f"INSERT INTO {table} VALUES {','.join(lines)}"


def sink_rows(
    values: list[list[tuple[str, Any]]], columns: tuple[TypedColumn, ...], position: str
) -> pa.Table:
    """The table as a right merge job would have written it."""
    arrays = {"id": pa.array(range(len(values)), type=pa.int32())}
    for index, column in enumerate(columns):
        arrays[column.name] = pa.array([row[index][1] for row in values], type=column.sink)
    arrays["_tm_position"] = pa.array([position] * len(values), type=pa.string())
    return pa.table(arrays)
