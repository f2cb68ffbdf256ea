"""Connect schemas of columns and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ConnectType, ValueModes
from schemas.envelope_blocks import SOURCE_FIELDS
from schemas.types.column_defaults import twos_complement
from schemas.types.connect import key_schema, value_schema
from schemas.types.connect_bases import escape_member
from schemas.types.semantic_types import column_default, column_schema

C = ColumnType


def column(kind: ColumnType, **facts: object) -> Column:
    return Column(**{"name": "c", "type": kind, "nullable": True} | facts)  # type: ignore[arg-type]


def with_default(kind: ColumnType, default: str, **facts: object) -> Column:
    return column(kind, has_default=True, default=default, **facts)


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        (column(C.TINYINT), ConnectType.INT16, None),
        (column(C.TINYINT, unsigned=True), ConnectType.INT16, None),
        (column(C.SMALLINT), ConnectType.INT16, None),
        (column(C.SMALLINT, unsigned=True), ConnectType.INT32, None),
        (column(C.MEDIUMINT, unsigned=True), ConnectType.INT32, None),
        (column(C.INT), ConnectType.INT32, None),
        (column(C.INT, unsigned=True), ConnectType.INT64, None),
        (column(C.BIGINT), ConnectType.INT64, None),
        (column(C.BIGINT, unsigned=True), ConnectType.BYTES, "org.apache.kafka.connect.data.Decimal"),
        (column(C.FLOAT), ConnectType.FLOAT32, None),
        (column(C.FLOAT, length=10, scale=2), ConnectType.FLOAT64, None),
        (column(C.DOUBLE), ConnectType.FLOAT64, None),
        (column(C.BIT, length=1), ConnectType.BOOLEAN, None),
        (column(C.BIT, length=2), ConnectType.BYTES, "io.debezium.data.Bits"),
        (column(C.DATETIME, precision=3), ConnectType.INT64, "io.debezium.time.Timestamp"),
        (column(C.DATETIME, precision=4), ConnectType.INT64, "io.debezium.time.MicroTimestamp"),
        (column(C.TIMESTAMP, precision=6), ConnectType.STRING, "io.debezium.time.ZonedTimestamp"),
        (column(C.LONGTEXT), ConnectType.STRING, None),
        (column(C.LONGBLOB), ConnectType.BYTES, None),
        (column(C.JSON), ConnectType.STRING, "io.debezium.data.Json"),
    ],
)
def test_each_type_has_debeziums_schema(given: Column, kind: ConnectType, name: str | None) -> None:
    schema = column_schema(given)
    assert (schema.type, schema.name, schema.optional) == (kind, name, True)


NOW = with_default(C.TIMESTAMP, "CURRENT_TIMESTAMP", default_is_expression=True)


@pytest.mark.parametrize(
    ("given", "default"),
    [
        (with_default(C.INT, "-5"), -5),
        (with_default(C.TINYINT, "1.5"), 2),
        (with_default(C.BIGINT, "18446744073709551615", unsigned=True), b"\x00" + b"\xff" * 8),
        (with_default(C.DECIMAL, "1.5", precision=10, scale=3), b"\x05\xdc"),
        (with_default(C.DECIMAL, "-0.0005", precision=10, scale=3), b"\xff"),
        (with_default(C.DECIMAL, "9" * 65, precision=65, scale=0), twos_complement(int("9" * 65))),
        (with_default(C.FLOAT, "0.1"), 0.1),
        (with_default(C.FLOAT, "16777217"), 16777216.0),
        (with_default(C.DOUBLE, "-2.5e10"), -2.5e10),
        (with_default(C.BIT, "b'1'", length=1), True),
        (with_default(C.BIT, "b'101'", length=9), b"\x05\x00"),
        (with_default(C.YEAR, "1999"), 1999),
        (with_default(C.YEAR, "0000"), 0),
        *((with_default(C.YEAR, text, display=2), year) for text, year in (("99", 1999), ("05", 2005), ("00", 2000))),
        (with_default(C.DATE, "1969-12-31"), -1),
        (with_default(C.DATE, "0000-00-00"), None),
        (with_default(C.DATE, "0000-00-00", nullable=False), 0),
        (with_default(C.TIME, "-838:59:59.5", precision=1), -3020399_500_000),
        (with_default(C.DATETIME, "2020-01-02 03:04:05", precision=0), 1577934245000),
        (with_default(C.DATETIME, "2020-01-02 03:04:05.678901", precision=6), 1577934245678901),
        (with_default(C.DATETIME, "1969-12-31 23:59:59.999", precision=3), -1),
        (with_default(C.TIMESTAMP, "2020-01-02 03:04:05.120000", precision=6), "2020-01-02T03:04:05.12Z"),
        (NOW, None),
        (replace(NOW, nullable=False), "1970-01-01T00:00:00Z"),
        (replace(NOW, type=C.DATETIME), 0),
        (replace(NOW, type=C.DATETIME, nullable=False), 0),
        (column(C.VARCHAR, has_default=True, default_is_expression=True), None),
        (with_default(C.VARCHAR, ""), ""),
        (with_default(C.BINARY, "0x6162", length=4), b"ab\x00\x00"),
        (with_default(C.VARBINARY, "0x00FF", length=4), b"\x00\xff"),
        (with_default(C.INT, "what"), None),
    ],
)
def test_a_default_is_encoded_as_the_values_of_its_column_are(given: Column, default: object) -> None:
    assert column_default(given) == default


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, -128, -129, 255, 2**64 - 1, -(2**63)])
def test_twos_complement_is_minimal_and_signed(value: int) -> None:
    encoded = twos_complement(value)
    assert int.from_bytes(encoded, "big", signed=True) == value
    assert len(encoded) == 1 or int.from_bytes(encoded[1:], "big", signed=True) != value


def test_members_escape_backslash_and_comma() -> None:
    assert escape_member("x,y\\z") == "x\\,y\\\\z"


def test_the_envelope_has_debeziums_fields_in_order() -> None:
    table = TableSchema("shop", "orders", (column(C.INT),), ("c",))
    schema = value_schema(table, "srv", "mariadb")
    assert (schema.name, schema.version) == ("srv.shop.orders.Envelope", 2)
    names = [field.name for field in schema.fields]
    assert names == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert schema.field("source").name == "io.debezium.connector.mariadb.Source"
    assert schema.field("source").fields == SOURCE_FIELDS


def test_schemas_are_named_after_topics_which_hold_fewer_characters_than_tables() -> None:
    table = TableSchema("d", "we`ird na-me$é", (column(C.INT),), ("c",))
    key = key_schema(table, "srv")
    assert key is not None
    assert (key.name, value_schema(table, "srv", "mysql").name) == (
        "srv.d.we_ird_na-me__.Key",
        "srv.d.we_ird_na-me__.Envelope",
    )


def test_key_columns_are_required_and_in_key_order() -> None:
    columns = tuple(Column(name, C.INT, nullable=True) for name in "abc")
    table = TableSchema("d", "t", columns, ("c", "a"))
    key = key_schema(table, "p")
    assert key is not None
    assert [field.name for field in key.fields] == ["c", "a"]
    row = value_schema(table, "p", "mysql").field("after")
    assert [field.schema.optional for field in row.fields] == [False, True, False]


def test_a_unique_key_replaces_a_missing_primary_key_and_none_gives_no_key() -> None:
    columns = (Column("a", C.INT, nullable=False),)
    assert key_schema(TableSchema("d", "t", columns, (), ("a",)), "p") is not None
    assert key_schema(TableSchema("d", "t", columns), "p") is None


def test_schemas_are_called_after_the_topic_of_their_table() -> None:
    table = TableSchema("ddl", "we`ird na-me$é", (column(C.INT, nullable=False),), primary_key=("c",))
    assert value_schema(table, "ddl", "mysql").name == "ddl.ddl.we_ird_na-me__.Envelope"  # Debezium's golden `ddl`
    with_delimiter = ValueModes(topic_delimiter="_")
    key = key_schema(table, "p", with_delimiter)
    assert key is not None
    assert key.name == "p_ddl_we_ird_na-me__.Key"
