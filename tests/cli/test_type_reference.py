from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.columns import ColumnType
from schemas.connect_types import ConnectSchema, ConnectType
from schemas.types.semantic_types import column_schema
from tests.support.golden import load
from tidemark.type_reference import MODES, ROWS, TypeRow, connect_text, markdown

ROOT = Path(__file__).parents[2]
GOLDEN = {  # a column of Debezium's golden types for each row of the table that MySQL has
    "TINYINT, also UNSIGNED": ("t_int", "tiu"),
    "SMALLINT": ("t_int", "si"),
    "SMALLINT UNSIGNED": ("t_int", "siu"),
    "MEDIUMINT, also UNSIGNED": ("t_int", "miu"),
    "INT": ("t_int", "i"),
    "INT UNSIGNED": ("t_int", "iu"),
    "BIGINT": ("t_int", "bi"),
    "BIGINT UNSIGNED": ("t_int", "biu"),
    "DECIMAL(65,30)": ("t_dec", "d6530"),
    "FLOAT": ("t_dec", "f"),
    "FLOAT(10,2)": ("t_dec", "f102"),
    "DOUBLE, REAL": ("t_dec", "r"),
    "BIT(1)": ("t_bit", "b1"),
    "BIT(9)": ("t_bit", "b9"),
    "YEAR": ("t_time", "y"),
    "DATE": ("t_time", "d"),
    "TIME, TIME(6)": ("t_time", "t6"),
    "DATETIME to DATETIME(3)": ("t_time", "dt3"),
    "DATETIME(4) to DATETIME(6)": ("t_time", "dt6"),
    "TIMESTAMP, TIMESTAMP(6)": ("t_time", "ts6"),
    "CHAR, NCHAR": ("t_char", "nc"),
    "VARCHAR, NVARCHAR": ("t_char", "nv"),
    "TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT": ("t_text", "lt"),
    "BINARY": ("t_bin", "b4"),
    "VARBINARY": ("t_bin", "vb"),
    "TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB": ("t_bin", "lb"),
    "ENUM('a','b')": ("t_def", "e"),
    "SET('a','b')": ("t_def", "s"),
    "JSON of MySQL": ("t_json", "j"),
    "GEOMETRY, LINESTRING, POLYGON, MULTI..., GEOMETRYCOLLECTION": ("t_geo", "gc"),
    "POINT": ("t_geo", "p"),
    "VECTOR": ("t_vec", "v"),
}
PREFIXES = {
    "connect": "types_alt1",
    "isostring": "types_alt2",
    "microseconds": "types_alt3",
    "nanoseconds": "types_alt4",
}
TIMES = {"DATE": "d", "TIME(6)": "t6", "DATETIME(6)": "dt6"}


def test_the_table_of_types_is_what_the_code_generates() -> None:
    written = (ROOT / "docs" / "types.md").read_text("utf-8")

    assert written == markdown(), "run: python -m tidemark.type_reference > docs/types.md"


def test_every_column_type_has_a_row() -> None:
    named = {row.column.type for row in ROWS}
    reported = " ".join(row.sql for row in ROWS)

    assert [kind for kind in ColumnType if kind not in named and kind.upper().removeprefix("MULTI") not in reported] == []


def recorded(prefix: str, table: str, column: str) -> dict[str, Any]:
    (block, *_) = load("types", prefix).schemas(table)[1]
    fields = next(field for field in block["fields"] if field["field"] == "after")["fields"]
    return next(field for field in fields if field["field"] == column)


def block_text(block: dict[str, Any]) -> str:
    items = block.get("items")
    inner = None if items is None else ConnectSchema(ConnectType(items["type"]))
    parameters = {k: v for k, v in block.get("parameters", {}).items() if not k.startswith("__")}
    schema = ConnectSchema(
        ConnectType(block["type"]), name=block.get("name"), parameters=tuple(parameters.items()), items=inner
    )
    return connect_text(schema)


@pytest.mark.parametrize("row", [row for row in ROWS if row.sql in GOLDEN], ids=lambda row: row.sql)
def test_what_debezium_writes_is_what_it_was_recorded_to_write(row: TypeRow) -> None:
    assert (row.debezium or connect_text(column_schema(row.column))) == block_text(
        recorded("types_def", *GOLDEN[row.sql])
    )


@pytest.mark.parametrize(
    ("row", "mode"), [(row, mode.time) for row, _, mode in MODES if row.sql in TIMES], ids=str
)
def test_the_modes_of_times_are_those_that_were_recorded(row: TypeRow, mode: Any) -> None:
    ours = next(item for item in MODES if item[0] == row and item[2].time == mode)

    assert connect_text(column_schema(row.column, ours[2])) == block_text(
        recorded(PREFIXES[mode], "t_time", TIMES[row.sql])
    )
