from __future__ import annotations

import json

import pytest

from schemas.avro import require_distinct_field_names, to_avro
from schemas.columns import Column, ColumnType, TableSchema
from schemas.connect_types import ValueModes
from schemas.errors import SchemaMismatchError
from schemas.names import NameMode, adjusted_field_name, adjusted_schema_name, folder_name, name_of_folder
from schemas.types.connect import key_schema, value_schema


@pytest.mark.parametrize(
    ("mode", "name", "schema", "field"),
    [
        ("none", "1a-b.ü$", "1a-b.ü$", "1a-b.ü$"),
        ("avro", "a-b.c_d", "a_b.c_d", "a_b_c_d"),
        ("avro", "1a.2b", "_1a.2b", "_1a_2b"),
        ("avro", "ü😀 x", "____x", "____x"),
        ("avro_unicode", "a-b.c_d", "a_u002db.c_u005fd", "a_u002db_u002ec_u005fd"),
        ("avro_unicode", "1a", "_u0031a", "_u0031a"),
        ("avro_unicode", "ü😀", "_u00fc_ud83d_ude00", "_u00fc_ud83d_ude00"),
    ],
)
def test_names_are_adjusted_as_debezium_does(mode: NameMode, name: str, schema: str, field: str) -> None:
    assert adjusted_schema_name(name, mode) == schema
    assert adjusted_field_name(name, mode) == field


def test_folders_hold_every_name_and_no_two_share_one() -> None:
    names = ["orders_2-x", "a b", "a@0020b", "..", ".", "a/b", "a%2Fb", "_tidemark", "ü", "表", "A", "a", "😀"]
    folders = [folder_name(name) for name in names]
    assert folders[:4] == ["orders_2-x", "a@0020b", "a@00400020b", "@002e@002e"]
    assert folders[7] == "@005ftidemark"
    assert len(set(folders)) == len(names)
    assert [name_of_folder(folder) for folder in folders] == names
    assert all(set(folder) <= set("abcdefghijklmnopqrstuvwxyzAF0123456789_-@") for folder in folders)


def test_folders_of_long_names_fit_into_file_systems_and_no_two_share_one() -> None:
    assert folder_name("表" * 48) == "@8868" * 48
    folders = [folder_name("表" * 63 + last) for last in "表面a"]
    assert [len(folder) for folder in folders] == [240] * 3
    assert len(set(folders)) == 3
    assert folder_name("表" * 64) == folders[0]


def table(*names: str) -> TableSchema:
    columns = tuple(Column(name, ColumnType.INT, nullable=False) for name in names)
    return TableSchema("my-db", "t 1", columns, names[:1])


def test_schemas_of_a_table_have_the_adjusted_names() -> None:
    modes = ValueModes(schema_names="avro", field_names="avro_unicode")
    value, key = (make(table("co l", "x"), "p", *more, modes) for make, more in ((value_schema, ("mysql",)), (key_schema, ())))
    assert value is not None
    assert key is not None
    assert (value.name, key.name) == ("p.my_db.t_1.Envelope", "p.my_db.t_1.Key")
    assert [field.name for field in value.field("after").fields] == ["co_u0020l", "x"]
    assert [field.name for field in key.fields] == ["co_u0020l"]
    assert value.field("source").name == "io.debezium.connector.mysql.Source"


def test_avro_keeps_what_is_valid_already() -> None:
    text = to_avro(value_schema(table("co l"), "p", "mysql", ValueModes(field_names="avro_unicode")))
    after = next(field for field in json.loads(text)["fields"] if field["name"] == "before")["type"][1]
    assert [field["name"] for field in after["fields"]] == ["co_u0020l"]


def test_columns_that_get_the_same_name_are_refused() -> None:
    require_distinct_field_names("d.t", ["a b", "a-b"], "avro_unicode")
    with pytest.raises(SchemaMismatchError, match=r"'a b' and 'a-b' .* in format.field_names avro"):
        require_distinct_field_names("d.t", ["a b", "a-b"], "avro")
    with pytest.raises(SchemaMismatchError, match=r"or use format.field_names: avro_unicode, which keeps names apart"):
        require_distinct_field_names("d.t", ["名前", "住所"])
