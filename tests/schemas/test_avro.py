"""Avro texts as Confluent's AvroData writes them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from schemas.avro import avro_field_name, avro_full_name, to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ConnectField, ConnectSchema, ConnectType
from schemas.errors import SchemaMismatchError
from schemas.types.connect import key_schema, value_schema


def table(*columns: Column, database: str = "shop", name: str = "orders") -> TableSchema:
    first = Column("id", ColumnType.INT, nullable=False)
    return TableSchema(database, name, (first, *columns), ("id",))


def row_fields(schema: TableSchema, prefix: str = "srv") -> dict[str, Any]:
    envelope = json.loads(to_avro(value_schema(schema, prefix, "mysql")))
    row = envelope["fields"][0]["type"][1]
    return {field["name"]: field for field in row["fields"]}


def test_the_envelope_names_records_as_avro_data_does() -> None:
    envelope = json.loads(to_avro(value_schema(table(), "srv", "mysql")))
    assert (envelope["name"], envelope["namespace"]) == ("Envelope", "srv.shop.orders")
    assert (envelope["connect.version"], envelope["connect.name"]) == (2, "srv.shop.orders.Envelope")
    before, after, source, transaction = (field["type"] for field in envelope["fields"][:4])
    assert before[1]["name"] == "Value"
    assert before[1]["connect.name"] == "srv.shop.orders.Value"
    assert after == ["null", "Value"]
    assert (source["name"], source["namespace"]) == ("Source", "io.debezium.connector.mysql")
    assert (transaction[1]["name"], transaction[1]["namespace"]) == ("block", "event")


def test_the_snapshot_field_of_source_has_its_default_first() -> None:
    envelope = json.loads(to_avro(value_schema(table(), "srv", "mysql")))
    snapshot = envelope["fields"][2]["type"]["fields"][4]
    assert snapshot["default"] == "false"
    assert snapshot["type"][1] == "null"
    assert snapshot["type"][0]["connect.default"] == "false"
    assert snapshot["type"][0]["connect.name"] == "io.debezium.data.Enum"


def test_a_decimal_is_bytes_with_a_logical_type() -> None:
    price = Column("price", ColumnType.DECIMAL, nullable=True, precision=10, scale=2)
    assert row_fields(table(price))["price"] == {
        "name": "price",
        "type": [
            "null",
            {
                "type": "bytes",
                "scale": 2,
                "precision": 10,
                "connect.version": 1,
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "logicalType": "decimal",
            },
        ],
        "default": None,
    }


def test_small_integers_keep_their_connect_type() -> None:
    fields = row_fields(table(Column("t", ColumnType.TINYINT, nullable=False, has_default=True, default="3")))
    assert fields["t"] == {
        "name": "t",
        "type": {"type": "int", "connect.type": "int16", "connect.default": 3},
        "default": 3,
    }


def test_a_bytes_default_is_text_with_one_character_per_byte() -> None:
    blob = Column("b", ColumnType.VARBINARY, nullable=True, length=4, has_default=True, default="0x00FF")
    assert row_fields(table(blob))["b"]["default"] == "\x00\xff"


@pytest.mark.parametrize(
    ("name", "adjusted"),
    [("a-b", "a_b"), ("2x", "_2x"), ("ünï", "_n_"), ("a.b", "a_b"), ("", "_"), ("ok_9", "ok_9")],
)
def test_field_names_become_valid(name: str, adjusted: str) -> None:
    assert avro_field_name(name) == adjusted


def test_every_component_of_a_record_name_becomes_valid() -> None:
    assert avro_full_name("my-shop.2024.or ders.Value") == "my_shop._2024.or_ders.Value"


def test_columns_that_become_one_name_are_refused_with_a_clear_error() -> None:
    columns = (Column("a-b", ColumnType.INT, nullable=True), Column("a_b", ColumnType.INT, nullable=True))
    with pytest.raises(
        SchemaMismatchError, match=r"'a-b' and 'a_b' of srv\.shop\.orders\.Value .* 'a_b' in Avro"
    ):
        to_avro(value_schema(table(*columns), "srv", "mysql"))


def test_records_that_become_one_name_but_differ_are_refused() -> None:
    one = ConnectSchema(ConnectType.STRUCT, name="x.a-b", fields=(ConnectField("i", _STRING),))
    two = ConnectSchema(ConnectType.STRUCT, name="x.a_b", fields=(ConnectField("j", _STRING),))
    both = ConnectSchema(
        ConnectType.STRUCT, name="x.Both", fields=(ConnectField("one", one), ConnectField("two", two))
    )
    with pytest.raises(SchemaMismatchError, match=r"x\.a_b"):
        to_avro(both)


_STRING = ConnectSchema(ConnectType.STRING)
_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
_SIZES = {
    ColumnType.DECIMAL: {"precision": 20, "scale": 5},
    ColumnType.BIT: {"length": 12},
    ColumnType.DATETIME: {"precision": 6},
    ColumnType.ENUM: {"members": ("a", "b,c", "d\\")},
    ColumnType.SET: {"members": ("a", "ü")},
}
_DEFAULTS = {
    ColumnType.INT: "-7",
    ColumnType.BIGINT: "77",
    ColumnType.DECIMAL: "-1234.56789",
    ColumnType.DOUBLE: "1e300",
    ColumnType.FLOAT: "0.1",
    ColumnType.BIT: "b'110011001100'",
    ColumnType.DATE: "2020-02-29",
    ColumnType.VARCHAR: 'q"\\\n é😀',
    ColumnType.VARBINARY: "0x00FF8041",
    ColumnType.ENUM: "b,c",
}


@st.composite
def columns(draw: st.DrawFn) -> Column:
    kind = draw(st.sampled_from(list(ColumnType)))
    default = _DEFAULTS.get(kind) if draw(st.booleans()) else None
    facts: dict[str, Any] = dict(_SIZES.get(kind, {}))
    return Column(
        draw(_NAMES),
        kind,
        nullable=draw(st.booleans()),
        unsigned=draw(st.booleans()),
        default=default,
        has_default=default is not None,
        **facts,
    )


@seed(20240601)
@settings(max_examples=150, deadline=None, database=None)
@given(
    st.lists(columns(), max_size=12, unique_by=lambda column: avro_field_name(column.name).lower()),
    _NAMES,
    _NAMES,
    _NAMES,
)
def test_every_schema_we_make_is_valid_avro(
    made: list[Column], prefix: str, database: str, name: str
) -> None:
    made = [column for column in made if avro_field_name(column.name) != "id"]
    schema = table(*made, database=database, name=name)
    for connect in (value_schema(schema, prefix, "mysql"), key_schema(schema, prefix)):
        assert connect is not None
        parsed = fastavro.parse_schema(json.loads(to_avro(connect)))
        fastavro.schemaless_writer(io.BytesIO(), parsed, _smallest(json.loads(to_avro(connect))))


def _smallest(node: Any) -> Any:
    """A value that needs every default of an envelope or key to be valid."""
    if isinstance(node, dict) and node["type"] == "record":
        return {field["name"]: field.get("default", _smallest(field["type"])) for field in node["fields"]} | {
            field["name"]: _as_bytes(field["default"])
            for field in node["fields"]
            if isinstance(field.get("default"), str) and "bytes" in json.dumps(field["type"])
        }
    if isinstance(node, list):
        return _smallest(node[0])
    kind = node["type"] if isinstance(node, dict) else node
    return {"null": None, "boolean": False, "string": "", "bytes": b"", "float": 0.0, "double": 0.0}.get(
        kind, 0
    )


def _as_bytes(default: str) -> bytes:
    return default.encode("latin-1")
