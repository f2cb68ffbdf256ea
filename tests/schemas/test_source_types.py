"""Source types and comments in schemas: Debezium's parameters of golden `types_alt1`, and where they stand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from mysqlio.definitions.column_definition import parse_definition
from mysqlio.definitions.column_types import to_column
from mysqlio.definitions.token_cursor import Cursor
from mysqlio.definitions.tokens import tokenise
from schemas.applied.shape import shaped
from schemas.avro import to_avro
from schemas.columns import Column, TableSchema
from schemas.jsonschema import to_json_schema
from schemas.settings import RecordSettings, from_mapping
from schemas.types.connect import key_schema, value_schema
from schemas.types.source_types import source_parameters

PREFIX = "__debezium.source.column."


def column(sql: str, name: str = "c") -> Column:
    made = to_column(parse_definition(Cursor(tokenise(sql, "mysql")), name), "utf8mb4", "mysql")
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("sql", "reported"),
    [
        ("INT", ("INT",)),
        ("INT(11)", ("INT",)),
        ("BOOLEAN", ("TINYINT", "1")),
        ("TINYINT(1) UNSIGNED", ("TINYINT UNSIGNED",)),
        ("TINYINT ZEROFILL", ("TINYINT UNSIGNED ZEROFILL", "3")),
        ("INT(5) ZEROFILL", ("INT UNSIGNED ZEROFILL", "5")),
        ("BIGINT UNSIGNED", ("BIGINT UNSIGNED",)),
        ("DECIMAL", ("DECIMAL", "10", "0")),
        ("DECIMAL(20,4) UNSIGNED", ("DECIMAL UNSIGNED", "20", "4")),
        ("FLOAT(10)", ("FLOAT",)),
        ("FLOAT(25)", ("DOUBLE",)),
        ("FLOAT(10,2)", ("FLOAT", "10", "2")),
        ("DOUBLE(10,3)", ("DOUBLE", "10", "3")),
        ("BIT", ("BIT", "1")),
        ("BIT(33)", ("BIT", "33")),
        ("CHAR(0)", ("CHAR", "0")),
        ("VARCHAR(64)", ("VARCHAR", "64")),
        ("BINARY(4)", ("BINARY", "4")),
        ("VARCHAR(8) CHARACTER SET binary", ("VARBINARY", "8")),
        ("LONGTEXT", ("LONGTEXT",)),
        ("ENUM('a','b')", ("ENUM", "1")),
        ("SET('a','b','c','d')", ("SET", "7")),
        ("YEAR", ("YEAR",)),
        ("DATE", ("DATE",)),
        ("TIME", ("TIME",)),
        ("TIMESTAMP(6)", ("TIMESTAMP", "6")),
        ("JSON", ("JSON",)),
        ("POINT", ("POINT",)),
        ("GEOMETRYCOLLECTION", ("GEOMCOLLECTION",)),
        ("VECTOR", ("VECTOR", "2048")),
        ("VECTOR(3)", ("VECTOR", "3")),
    ],
)
def test_types_are_called_and_sized_as_debezium_does(sql: str, reported: tuple[str, ...]) -> None:
    names = [f"{PREFIX}{name}" for name in ("type", "length", "scale")]
    expected = (*zip(names, reported, strict=False), (f"{PREFIX}name", "c"))
    assert source_parameters(column(sql), comments=True) == expected


def table(*definitions: tuple[str, str]) -> TableSchema:
    columns = tuple(column(sql, name) for name, sql in definitions)
    return TableSchema("db", "t", columns, primary_key=(columns[0].name,))


def records(**options: Any) -> RecordSettings:
    return from_mapping({"name": "p", "source": {"tables": [".*"]}, "records": options}).records


def fields(schema: Any) -> dict[str, dict[str, Any]]:
    return {field["field"]: field for field in to_json_schema(schema)["fields"]}


T = table(
    ("id", "INT COMMENT 'the key'"),
    ("v", "VARCHAR(9) COMMENT 'it''s'"),
    ("b", "BIT(9)"),
    ("d", "DECIMAL(5,2) UNSIGNED"),
)


def test_only_what_is_asked_for_is_reported_and_keys_have_no_types() -> None:
    shape = shaped(T, records(column_propagate_source_type=[r"db\.t\.(ID|v)"]))
    after = fields(value_schema(shape, "p", "mysql").field("after"))
    assert after["v"]["parameters"] == {f"{PREFIX}type": "VARCHAR", f"{PREFIX}length": "9", f"{PREFIX}name": "v"}
    assert "parameters" in after["id"]
    assert after["b"]["parameters"] == {"length": "9"}
    assert "doc" not in after["v"]
    key = key_schema(shape, "p")
    assert key is not None
    assert "parameters" not in fields(key)["id"]


def test_columns_are_also_found_by_their_types() -> None:
    shape = shaped(T, records(datatype_propagate_source_type=[r".+\.DECIMAL UNSIGNED", r"db\.t\.bit"]))
    after = fields(value_schema(shape, "p", "mysql").field("after"))
    assert [name for name, field in after.items() if f"{PREFIX}type" in field.get("parameters", {})] == ["b", "d"]
    assert list(after["b"]["parameters"]) == ["length", f"{PREFIX}type", f"{PREFIX}length", f"{PREFIX}name"]


def test_comments_are_docs_of_fields_also_in_keys_and_stand_beside_source_types() -> None:
    shape = shaped(T, records(include_schema_comments=True, column_propagate_source_type=[".*"]))
    after = fields(value_schema(shape, "p", "mysql").field("after"))
    assert {name: field.get("doc") for name, field in after.items()} == {"id": "the key", "v": "it's", "b": None, "d": None}
    assert list(after["v"]["parameters"]) == [f"{PREFIX}{name}" for name in ("type", "length", "comment", "name")]
    key = key_schema(shape, "p")
    assert key is not None
    assert fields(key)["id"]["doc"] == "the key"


def test_a_masked_column_stays_masked_and_says_both() -> None:
    hashed = [{"algorithm": "SHA-256", "salt": "x", "columns": [r"db\.t\.v"]}]
    shape = shaped(T, records(column_mask_hash_v2=hashed, column_propagate_source_type=[".*"]))
    assert shape.mask_of("v") is not None
    parameters = fields(value_schema(shape, "p", "mysql").field("after"))["v"]["parameters"]
    assert list(parameters) == ["masked", *(f"{PREFIX}{name}" for name in ("type", "length", "name"))]


def test_without_the_options_neither_comments_nor_types_make_another_schema() -> None:
    bare = replace(T, columns=tuple(replace(item, comment=None, display=None) for item in T.columns))
    assert to_avro(value_schema(shaped(T, records()), "p", "mysql")) == to_avro(value_schema(bare, "p", "mysql"))


def test_avro_has_them_as_connects_parameters_and_docs_but_for_records_that_columns_share() -> None:
    shapes = table(("id", "INT"), ("v", "VARCHAR(9) COMMENT 'x'"), ("p", "POINT"), ("q", "POINT"))
    shape = shaped(shapes, records(include_schema_comments=True, column_propagate_source_type=[".*"]))
    document = json.loads(to_avro(value_schema(shape, "p", "mysql")))
    _, row = document["fields"][0]["type"]
    reported = {field["name"]: field for field in row["fields"]}
    parameters = {f"{PREFIX}type": "VARCHAR", f"{PREFIX}length": "9", f"{PREFIX}comment": "x", f"{PREFIX}name": "v"}
    assert reported["v"]["type"][1]["connect.parameters"] == parameters
    assert (reported["v"]["doc"], reported["v"]["type"][1]["connect.doc"]) == ("x", "x")
    assert "connect.parameters" not in reported["p"]["type"][1]
    assert reported["q"]["type"][1] == "io.debezium.data.geometry.Point"
