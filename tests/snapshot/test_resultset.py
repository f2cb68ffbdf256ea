"""The columns a result set announces, against the schema its codec was compiled for, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mysqlio.binary_query import BinaryQuery, ResultColumn
from mysqlio.information_schema import read_table_schema
from mysqlio.result_columns import require_columns
from producer.snapshot.ranges import KeyRange, chunk_query
from producer.snapshot.reader import shown_by_star
from schemas.columns import Column, ColumnType, TableSchema
from schemas.errors import SchemaMismatchError
from schemas.types.column_facts import ADDRESS_TYPES, SPATIAL_TYPES
from tests.support.servers import database, drop_database, new_database

EVERY_TYPE = """
    a TINYINT NOT NULL, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED ZEROFILL, e MEDIUMINT,
    f INT UNSIGNED NOT NULL, g BIGINT, h BIGINT UNSIGNED, i DECIMAL(10,0), j DECIMAL(65,30) UNSIGNED,
    k DECIMAL(5,5) NOT NULL, l FLOAT, m DOUBLE, n FLOAT(7,3), o DOUBLE(12,4) UNSIGNED, p BIT(1),
    q BIT(64) NOT NULL, r YEAR, s DATE, t TIME, u TIME(6), v DATETIME, w DATETIME(3), x TIMESTAMP NULL,
    y TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), z CHAR(0), aa CHAR(40) CHARACTER SET latin1,
    ab VARCHAR(300) CHARACTER SET ascii, ac TINYTEXT, ad TEXT CHARACTER SET utf8mb3, ae MEDIUMTEXT,
    af LONGTEXT, ag BINARY(4), ah VARBINARY(300), ai TINYBLOB, aj BLOB, ak MEDIUMBLOB, al LONGBLOB,
    am ENUM('x','y') CHARACTER SET latin1, an SET('p','q') NOT NULL, ao JSON, ap TINYINT(1),
    aq INT GENERATED ALWAYS AS (a + 1) STORED, ar GEOMETRY, asp POINT, at GEOMETRYCOLLECTION,
    au INT GENERATED ALWAYS AS (a + 2) VIRTUAL, av CHAR(9) CHARACTER SET gbk, id INT NOT NULL AUTO_INCREMENT PRIMARY KEY
"""


@pytest.fixture(scope="module", params=("mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114"))
def announced(request: pytest.FixtureRequest) -> Iterator[tuple[TableSchema, tuple[ResultColumn, ...]]]:
    server = database(request.param)
    name = new_database(server)
    with server.connect(database=name) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = ''")
            cursor.execute(f"CREATE TABLE t ({ONLY[request.param]} {EVERY_TYPE})")
            cursor.execute("INSERT INTO t (a) VALUES (1)")
        table = read_table_schema(connection, name, "t")
        assert table is not None
        with BinaryQuery(connection, chunk_query(table, KeyRange())) as query:
            assert len(list(query.blocks())) == 1
        yield table, query.columns
    drop_database(server, name)


ONLY = {
    "mysql80": "",
    "mysql97": "aw VECTOR(3), ax INT INVISIBLE,",
    "mariadb114": "aw UUID, ax INET4, ay INET6 NOT NULL, az VARCHAR(9) COMPRESSED, ba BLOB COMPRESSED, bb INT INVISIBLE,",
}


def changed(table: TableSchema, index: int, **changes: Any) -> TableSchema:
    columns = list(table.columns)
    columns[index] = replace(columns[index], **changes)
    return replace(table, columns=tuple(columns))


def test_a_table_of_every_type_is_what_its_result_set_announces(
    announced: tuple[TableSchema, tuple[ResultColumn, ...]],
) -> None:
    require_columns(*announced)


def test_any_change_that_alters_bytes_or_records_is_noticed(
    announced: tuple[TableSchema, tuple[ResultColumn, ...]],
) -> None:
    table, columns = announced
    for index, column in enumerate(table.columns):
        changes: list[dict[str, Any]] = [{"name": "other"}, {"nullable": not column.nullable}]
        changes += [{"type": other} for other in other_types(column)]
        if column.type in (ColumnType.INT, ColumnType.BIGINT, ColumnType.DECIMAL):
            changes.append({"unsigned": not column.unsigned})
        if column.type is ColumnType.DECIMAL:
            changes += [{"precision": (column.precision or 0) - 1}, {"scale": (column.scale or 0) + 1}]
        if column.type in (ColumnType.TIME, ColumnType.DATETIME, ColumnType.TIMESTAMP):
            changes.append({"precision": 5})
        if column.type is ColumnType.BIT:
            changes.append({"length": 17})
        for change in changes:
            with pytest.raises(SchemaMismatchError, match="changed while it was read"):
                require_columns(changed(table, index, **change), columns)


def other_types(column: Column) -> list[ColumnType]:
    """Types that a column of this one must not be taken for; texts and blobs of all sizes are read alike."""
    texts = {ColumnType.TINYTEXT, ColumnType.TEXT, ColumnType.MEDIUMTEXT, ColumnType.LONGTEXT}
    blobs = {ColumnType.TINYBLOB, ColumnType.BLOB, ColumnType.MEDIUMBLOB, ColumnType.LONGBLOB}
    printed = {ColumnType.CHAR, *ADDRESS_TYPES}  # all arrive as text
    groups = (texts | {ColumnType.JSON}, blobs, printed, {*SPATIAL_TYPES})
    alike = next((group for group in groups if column.type in group), {column.type})
    return [
        kind
        for kind in ColumnType
        if kind not in alike and not (kind is ColumnType.JSON and column.type in blobs)
    ]


def test_a_missing_column_is_noticed(announced: tuple[TableSchema, tuple[ResultColumn, ...]]) -> None:
    table, columns = announced
    with pytest.raises(SchemaMismatchError, match="columns instead of"):
        require_columns(table, columns[:-1])


@pytest.mark.parametrize("name", ["mysql57", "mysql80", pytest.param("mysql97", marks=pytest.mark.slow), "mariadb114"])
def test_a_column_called_star_is_one_column_also_beside_one_that_is_hidden(name: str) -> None:
    """MySQL before 9 takes the name for all visible columns. (A hidden column of MySQL 8 is read as one of 9 would be.)"""
    server = database(name)
    schema = new_database(server)
    with server.connect(database=schema) as connection:
        with connection.cursor() as cursor:
            hidden = "h ENUM('x','y') INVISIBLE," if name in ("mysql97", "mariadb114") else ""
            cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, `*` INT NOT NULL, {hidden} v FLOAT)")
            cursor.execute("INSERT INTO t (id, `*`, v) VALUES (1, 2, 3), (7, 8, 9)")
        table = read_table_schema(connection, schema, "t")
        assert table is not None
        bounds = KeyRange(("1",), None)
        shown = shown_by_star(connection, table)
        assert shown == (("id", "*", "v") if name in ("mysql57", "mysql80") else None)
        queries = {chunk_query(table, bounds, shown=shown)}
        if name == "mysql97":
            queries.add(chunk_query(table, bounds, "v > 0", shown=("id", "*", "v")))
        for sql in queries:
            with BinaryQuery(connection, sql) as query:
                require_columns(table, query.columns)
                assert len(list(query.blocks())) == 1
            with connection.cursor() as cursor:
                cursor.execute(sql)
                assert cursor.fetchall() == ((7, 8, None, 9.0) if hidden else (7, 8, 9.0),)
    drop_database(server, schema)
