"""Tables and columns that cannot be captured, and those whose types only the log or only the server shows."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from mysqlio.definitions.character_sets import SUPPORTED, charset_name
from schemas.columns import ColumnType
from schemas.errors import SourceError, UnsupportedTypeError
from schemas.types.column_facts import SPATIAL_TYPES
from schemas.types.semantic_types import column_default
from tests.catalog.logged_source import Source, catalog_of
from tests.support.servers import drop_database, new_database


def test_unsupported_columns_are_all_named_at_start(source: Source) -> None:
    source.run(
        "CREATE TABLE c (id INT PRIMARY KEY, s SET('y') CHARACTER SET binary, e ENUM('x') CHARACTER SET binary)",
    )
    with pytest.raises(UnsupportedTypeError) as refused:
        source.check("c", "nothing")
    for words in (
        f"{source.database}.c.s (set('y') with character set binary)",
        ".c.e ",
    ):
        assert words in str(refused.value)
    with pytest.raises(UnsupportedTypeError, match=r"c\.s .*character set binary"):
        source.catalog.version_of(source.map_of("INSERT INTO c (id) VALUES (1)"))


def test_text_and_members_of_every_character_set_are_as_the_server_has_them(source: Source) -> None:
    with source.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW CHARACTER SET")
        listed = {charset_name(str(row[0])) for row in cursor.fetchall()} - {"binary"}
    assert listed <= SUPPORTED
    charsets = sorted(listed)
    columns = ", ".join(
        f"e{number} ENUM('a','b b','z') CHARACTER SET {charset}, c{number} CHAR(7) CHARACTER SET {charset}, "
        f"t{number} TEXT CHARACTER SET {charset}, v{number} VARCHAR(30) CHARACTER SET {charset}"
        for number, charset in enumerate(charsets)
    )
    source.run(f"CREATE TABLE m (id INT PRIMARY KEY, j ENUM('日','x') CHARACTER SET sjis, {columns})")
    version = source.catalog.version_of(source.map_of("INSERT INTO m (id) VALUES (1)"))
    assert version.schema == source.read("m")
    assert version.schema.columns[1].members == ("日", "x")
    assert {column.charset for column in version.schema.columns[2:]} == set(charsets)


def test_spatial_columns_are_distinguished_by_the_log_alone(source: Source) -> None:
    kinds = [kind.value for kind in SPATIAL_TYPES]
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    source.run(f"CREATE TABLE g (id INT PRIMARY KEY, {columns})")
    source.check("g")
    version = source.catalog.version_of(source.map_of("INSERT INTO g (id) VALUES (1)"))
    assert [column.type.value for column in version.schema.columns[1:]] == kinds
    assert version.schema == source.read("g")


def test_what_mariadb_can_t_give_is_refused_and_its_addresses_are_not_taken_for_binary(mariadb114: Any) -> None:
    with closing(mariadb114.connect()) as user:
        name = new_database(mariadb114)
        made = Source(mariadb114, name, user, catalog_of(mariadb114))
        made.run(
            f"USE {name}",
            "CREATE TABLE u (id UUID PRIMARY KEY DEFAULT '123E4567-E89B-12D3-A456-426655440000', "
            "i INET6 DEFAULT '0::1', j INET4, b BINARY(16), g POINT)",
            "CREATE TABLE z (id INT PRIMARY KEY, a VARCHAR(10) COMPRESSED, b TEXT COMPRESSED, "
            "c VARBINARY(300) COMPRESSED, d VARCHAR(9) COMPRESSED=zlib CHARACTER SET gbk NOT NULL DEFAULT 'x')",
            "CREATE TABLE v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
            "CREATE TABLE h (id INT NOT NULL, t TEXT NOT NULL, UNIQUE (t))",
        )
        made.check("u", "z")
        schema = made.catalog.version_of(made.map_of("INSERT INTO u (j) VALUES ('1.2.3.4')")).schema
        kinds = [ColumnType.UUID, ColumnType.INET6, ColumnType.INET4, ColumnType.BINARY, ColumnType.POINT]
        assert [column.type for column in schema.columns] == kinds
        assert schema == made.read("u")
        defaults = [column.default for column in schema.columns]
        assert defaults[1:] == ["::1", None, None, None]
        assert column_default(schema.columns[0]) == "123e4567-e89b-12d3-a456-426655440000"
        compressed = made.catalog.version_of(made.map_of("INSERT INTO z (id) VALUES (1)"))
        assert compressed.schema == made.read("z")
        assert compressed.layout.types[1:] == (141, 140, 141, 141)
        for table, words in (("v", "system-versioned"), ("h", "hidden column")):
            with pytest.raises(SourceError, match=words):
                made.check(table)
            insert = (
                f"INSERT INTO {table} (id) VALUES (1)" if table == "v" else "INSERT INTO h VALUES (1, 'x')"
            )
            with pytest.raises(SourceError, match=words):
                made.catalog.version_of(made.map_of(insert))
        drop_database(mariadb114, name)


def test_a_hidden_column_of_an_index_on_an_expression_is_refused(mysql80: Any) -> None:
    with closing(mysql80.connect()) as user:
        name = new_database(mysql80)
        made = Source(mysql80, name, user, catalog_of(mysql80))
        made.run(f"USE {name}", "CREATE TABLE f (id INT PRIMARY KEY, a INT, KEY ((a + 1)))")
        with pytest.raises(SourceError, match="hidden column"):
            made.check("f")
        with pytest.raises(SourceError, match="hidden column"):
            made.catalog.version_of(made.map_of("INSERT INTO f VALUES (1, 2)"))
        drop_database(mysql80, name)


def test_a_log_without_column_names_is_refused_with_the_sql_that_fixes_it(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        table_map = source.map_of("INSERT INTO t VALUES (1)")
    finally:
        source.run("SET GLOBAL binlog_row_metadata = 'FULL'")
    with pytest.raises(SourceError, match=r"SET GLOBAL binlog_row_metadata=FULL.* is read again by itself"):
        source.catalog.version_of(table_map)
