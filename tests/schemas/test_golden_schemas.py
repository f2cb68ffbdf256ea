"""Our schema blocks are Debezium's, byte for byte of the names, but for a list of intended differences."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from mysqlio.information_schema import read_table_schema
from schemas.jsonschema import to_json_schema
from schemas.types.connect import key_schema, value_schema
from tests.support.golden import Scenario, load

UNSIGNED = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "0", "connect.decimal.precision": "20"},
}
PRECISE = "BIGINT UNSIGNED is a Decimal of precision 20, not a wrapped int64"
DIFFERENCES = {  # (table, column): (what changes, why)
    ("t_int", "biu"): (UNSIGNED, PRECISE),
    ("t_int", "nnu"): (UNSIGNED, PRECISE),
    ("k_ubig", "id"): (UNSIGNED, PRECISE),
    ("k_gipk2", "my_row_id"): (UNSIGNED, PRECISE),
    ("t_def", "u"): (UNSIGNED | {"default": "AP//////////"}, f"{PRECISE}; 2^64-1 is no 2^63-1"),
    ("t_def", "vc"): ({"default": "it's"}, "a doubled quote in SQL is one quote"),
    ("t_def", "bn"): ({"default": "YWIAAA=="}, "a BINARY default is its bytes, not their SQL escapes"),
    ("t_def", "vb"): ({"default": "AP8="}, "a VARBINARY default is its bytes, not their SQL escapes"),
}


def expected(schema: dict[str, Any], table: str) -> dict[str, Any]:
    """Debezium's schema with our differences applied to the fields of a row or key."""
    schema = copy.deepcopy(schema)
    rows = [field for field in schema["fields"] if field["field"] in ("before", "after")] or [schema]
    for row in rows:
        for field in row["fields"]:
            field.update(DIFFERENCES.get((table, field["field"]), ({}, ""))[0])
    return schema


@pytest.mark.parametrize(("name", "prefix"), [("types", "types_def"), ("keys", "keys_def"), ("tx", "tx")])
def test_schema_blocks_are_those_of_debezium(
    name: str, prefix: str, mysql97: Any, fresh_database: Callable[[Any], str]
) -> None:
    scenario = load(name, prefix)
    database = fresh_database(mysql97)
    create_tables(mysql97, database, scenario)
    tables = sorted({record.table for record in scenario.changes})
    assert len(tables) >= 5
    for table in tables:
        with mysql97.connect() as connection:
            schema = read_table_schema(connection, database, table)
        assert schema is not None, table
        keys, values = scenario.schemas(table)
        ours = as_block(value_schema(schema, prefix, "mysql"), database, name)
        assert [ours] == [expected(value, table) for value in values], table
        our_key = key_schema(schema, prefix)
        key_block = None if our_key is None else as_block(our_key, database, name)
        assert [key_block] == [key and expected(key, table) for key in keys], table


def create_tables(server: Any, database: str, scenario: Scenario) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        for statement in scenario.before:
            if statement.startswith(("CREATE TABLE", "SET sql_generate")) and "tx_excluded" not in statement:
                cursor.execute(statement)


def as_block(schema: Any, database: str, name: str) -> Any:
    """Our block with the scenario's database name, its keys in the order Connect writes them."""
    return json.loads(json.dumps(to_json_schema(schema)).replace(f".{database}.", f".{name}."))


def test_keys_of_a_block_stand_in_the_order_connect_writes_them(
    mysql97: Any, fresh_database: Callable[[Any], str]
) -> None:
    scenario = load("types", "types_def")
    database = fresh_database(mysql97)
    create_tables(mysql97, database, scenario)
    with mysql97.connect() as connection:
        schema = read_table_schema(connection, database, "t_enum")
    assert schema is not None
    ours = as_block(value_schema(schema, "types_def", "mysql"), database, "types")
    assert json.dumps(ours) == json.dumps(scenario.schemas("t_enum")[1][0])
