"""Which changes of a column provably keep every stored value."""

from __future__ import annotations

import pytest

from mysqlio.definitions.column_definition import parse_definition
from mysqlio.definitions.column_types import to_column
from mysqlio.definitions.token_cursor import Cursor
from mysqlio.definitions.tokens import tokenise
from producer.catalog.conversions import keeps_values
from schemas.columns import Column


def column(text: str) -> Column:
    made = to_column(parse_definition(Cursor(tokenise(text, "mysql")), "c"), "utf8mb4", "mysql")
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "INT DEFAULT 7 COMMENT 'x'"),
        ("INT NOT NULL", "INT"),
        ("INT", "BIGINT"),
        ("TINYINT UNSIGNED", "INT UNSIGNED"),
        ("VARCHAR(10)", "VARCHAR(20)"),
        ("CHAR(3)", "CHAR(4)"),
        ("VARBINARY(3)", "VARBINARY(4)"),
        ("VARCHAR(10) CHARACTER SET latin1", "VARCHAR(10) CHARACTER SET utf8mb4"),
        ("VARCHAR(10) CHARACTER SET utf8", "VARCHAR(10)"),
        ("TEXT", "LONGTEXT"),
        ("BLOB", "MEDIUMBLOB"),
        ("DECIMAL(10,2)", "DECIMAL(12,4)"),
        ("ENUM('a','b')", "ENUM('a','b','c')"),
        ("SET('a')", "SET('a','b')"),
        ("DATETIME", "DATETIME(6)"),
        ("VARCHAR(10)", "VARCHAR(10) COLLATE utf8mb4_bin"),
        ("FLOAT", "FLOAT"),
        ("JSON", "JSON"),
    ],
)
def test_widening_keeps_values(old: str, new: str) -> None:
    assert keeps_values(column(old), column(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "INT NOT NULL"),
        ("BIGINT", "INT"),
        ("INT", "INT UNSIGNED"),
        ("INT", "BIGINT UNSIGNED"),
        ("INT", "VARCHAR(20)"),
        ("VARCHAR(20)", "VARCHAR(10)"),
        ("BINARY(3)", "BINARY(4)"),
        ("VARCHAR(10)", "VARCHAR(10) CHARACTER SET latin1"),
        ("LONGTEXT", "TEXT"),
        ("TEXT CHARACTER SET utf8mb4", "LONGTEXT CHARACTER SET ascii"),
        ("DECIMAL(10,2)", "DECIMAL(11,4)"),
        ("DECIMAL(10,2)", "DECIMAL(10,1)"),
        ("ENUM('a','b')", "ENUM('b','a')"),
        ("ENUM('a','b')", "ENUM('a')"),
        ("DATETIME(6)", "DATETIME"),
        ("FLOAT", "DOUBLE"),
        ("FLOAT(10,4)", "FLOAT(10,2)"),
        ("BIT(1)", "BIT(8)"),
        ("TIMESTAMP NULL", "DATETIME"),
    ],
)
def test_what_may_change_a_value_does_not_count(old: str, new: str) -> None:
    assert not keeps_values(column(old), column(new))
