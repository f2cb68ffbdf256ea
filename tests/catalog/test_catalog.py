"""The catalog's view of the log agrees with the server, on MySQL and MariaDB."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest
import structlog

from producer.binlog.tablemap import TableMap
from producer.catalog import (
    Catalog,
    TableVersion,
    TrackedTables,
    check_supported,
    list_tables,
    read_rules,
    read_table_schema,
)
from producer.catalog.character_sets import SUPPORTED, charset_name
from producer.catalog.effects import DdlChange, parse_ddl
from producer.catalog.information_schema import read_table_facts, wait_for_ddl
from producer.source.connection import connect
from schemas.avro import to_avro
from schemas.columns import SPATIAL_TYPES, Column, ColumnType, TableSchema
from schemas.connect import column_default, value_schema
from schemas.errors import SourceError, UnsupportedTypeError
from schemas.settings import SourceSettings
from tests.catalog.random_ddl import comparable
from tests.catalog.server_log import end_of_log, events_since, table_maps_since
from tests.support.servers import database as start
from tests.support.servers import drop_database, new_database

log = structlog.get_logger(__name__)

SEED = 20240602
STEPS = 24


def pinned(server: Any) -> Callable[[], Any]:
    """Connections to a server as the producer has them."""

    def connect() -> Any:
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        return connection

    return connect


@dataclass
class Source:
    """A schema on a server, a session as a user has it, and a catalog as the log reader has it."""

    server: Any
    database: str
    user: Any
    catalog: Catalog

    def run(self, *statements: str) -> None:
        with self.user.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, query: str) -> Any:
        """The one value a query gives."""
        with self.user.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]

    def read(self, table: str) -> Any:
        with closing(pinned(self.server)()) as connection:
            return read_table_schema(connection, self.database, table)

    def check(self, *tables: str) -> None:
        with closing(pinned(self.server)()) as connection:
            check_supported(connection, [(self.database, table) for table in tables])

    def map_of(self, statement: str) -> TableMap:
        """The TABLE_MAP a statement leads to."""
        place = end_of_log(self.user)
        self.run(statement)
        return table_maps_since(place)[-1]

    def version_after(self, *statements: str) -> tuple[TableVersion, list[DdlChange]]:
        """What the log reader makes of statements, the last of which writes a row."""
        place = end_of_log(self.user)
        self.run(*statements)
        return self.replay(place)

    def replay(self, place: Any) -> tuple[TableVersion, list[DdlChange]]:
        changes: list[DdlChange] = []
        version = None
        for event in events_since(place):
            if isinstance(event, TableMap):
                version = self.catalog.version_of(event)
            else:
                changes.extend(self.catalog.apply(parse_ddl(event, self.database, self.server.flavour)))
        assert version is not None
        return version, [change for change in changes if change.kind != "other"]


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    server = start(request.param)
    name = new_database(server)
    made = Source(server, name, server.connect(), Catalog(pinned(server), server.flavour))
    made.run(f"USE {name}", "SET SESSION time_zone = '+05:30'", "SET SESSION sql_mode = ''")
    yield made
    made.user.close()
    drop_database(server, name)


ALL_TYPES = """CREATE TABLE t (
    id BIGINT UNSIGNED NOT NULL, part VARCHAR(20) CHARACTER SET latin1 NOT NULL,
    ti TINYINT DEFAULT -5, tu TINYINT UNSIGNED, bo BOOLEAN NOT NULL DEFAULT TRUE,
    si SMALLINT UNSIGNED, mi MEDIUMINT,
    mz MEDIUMINT(5) ZEROFILL, i INT DEFAULT 42, bu BIGINT UNSIGNED DEFAULT 18446744073709551615,
    de DECIMAL(10,3) DEFAULT 1.5, d0 DECIMAL, dm DECIMAL(65,30) NOT NULL DEFAULT 0,
    f FLOAT DEFAULT 1.25, fd FLOAT(10,2) DEFAULT 5.615, do DOUBLE NOT NULL DEFAULT -2.5e10,
    dd DOUBLE(10,3), fp FLOAT(30),
    b1 BIT DEFAULT b'1', b9 BIT(9) DEFAULT 5, b64 BIT(64),
    y YEAR DEFAULT 1999, da DATE DEFAULT '2020-02-29', dz DATE NOT NULL DEFAULT '0000-00-00',
    t TIME DEFAULT '-1:2:3',
    t6 TIME(6) NOT NULL DEFAULT '12:34:56.789012', dt DATETIME DEFAULT '2020-01-02 03:04:05', dt6 DATETIME(6),
    dn DATETIME DEFAULT CURRENT_TIMESTAMP, ts TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05',
    tn TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    c CHAR(10) DEFAULT 'ab  ', ca CHAR(3) CHARACTER SET ascii, v VARCHAR(64) DEFAULT 'it''s "x" \\\\ \\n \\0',
    vn VARCHAR(10) DEFAULT 'NULL', ve VARCHAR(5) NOT NULL DEFAULT '', v3 VARCHAR(5) CHARACTER SET utf8,
    vb VARCHAR(300) COLLATE utf8mb4_bin, tt TINYTEXT, tx TEXT CHARACTER SET latin1, mt MEDIUMTEXT,
    lt LONGTEXT, t2 TEXT(70000),
    bi BINARY, b4 BINARY(4) DEFAULT 'ab', vr VARBINARY(8) DEFAULT X'00FF', vx VARCHAR(9) CHARACTER SET binary,
    tb TINYBLOB, bl BLOB, mb MEDIUMBLOB, lb LONGBLOB,
    e ENUM('x,y','it''s','back\\\\slash','','ünï','nl\\n','q"q') DEFAULT 'x,y',
    el ENUM('A','é') CHARACTER SET latin1 NOT NULL,
    s SET('a','b') DEFAULT 'b,a', j JSON, gv INT AS (i + 1) VIRTUAL,
    gs VARCHAR(20) AS (CONCAT('v', i)) STORED,
    z INT UNSIGNED, PRIMARY KEY (part(5), id))"""


def test_the_log_and_the_server_tell_the_same_of_every_type(source: Source) -> None:
    version, _ = source.version_after(ALL_TYPES, "INSERT INTO t (id, part, el) VALUES (1, 'p', 'A')")
    schema = source.read("t")
    assert version.schema == schema
    assert schema.primary_key == ("part", "id")
    assert len(version.layout.types) == len(schema.columns)
    assert to_avro(value_schema(version.schema, "p", "mysql")) == to_avro(value_schema(schema, "p", "mysql"))


@pytest.mark.parametrize("made_before", [True, False])
def test_a_copy_that_is_gone_has_the_defaults_of_its_original(source: Source, made_before: bool) -> None:
    """The log's reader is late, or the statements follow each other at once: the server tells nothing of the copy any more."""
    original = "CREATE TABLE a (id INT PRIMARY KEY, d DATE NOT NULL DEFAULT '2020-01-01', n INT DEFAULT 7)"
    if made_before:
        source.run(original)
    place = end_of_log(source.user)
    source.run(
        *([] if made_before else [original]),
        "CREATE TABLE b LIKE a",
        "CREATE TABLE e LIKE b",
        "INSERT INTO b (id) VALUES (1)",
        "RENAME TABLE b TO c",
        "INSERT INTO e (id) VALUES (1)",
        "ALTER TABLE c ALTER n SET DEFAULT 8",
        "INSERT INTO c (id) VALUES (2)",
        "DROP TABLE c, e",
    )
    told = []
    for event in events_since(place):
        if isinstance(event, TableMap):
            columns = source.catalog.version_of(event).schema.columns
            told.append((event.table, [column_default(column) for column in columns]))
        else:
            source.catalog.apply(parse_ddl(event, source.database, source.server.flavour))
    assert told == [("b", [None, 18262, 7]), ("e", [None, 18262, 7]), ("c", [None, 18262, 8])]


FIRST_COLUMNS = """id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b INT NOT NULL DEFAULT 8, v VARCHAR(9) DEFAULT 'x', \
    d DATETIME(3) NOT NULL DEFAULT '2020-01-02 03:04:05.678', ts TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05'"""
LATE = {
    "change": "ALTER TABLE t CHANGE a c INT NOT NULL DEFAULT 9 AFTER b | + t | ALTER TABLE t CHANGE c e BIGINT",
    "change_swap": "ALTER TABLE t CHANGE a b INT NOT NULL DEFAULT 70, CHANGE b a INT NOT NULL DEFAULT 80 | + t | "
    "ALTER TABLE t CHANGE b c INT, ADD COLUMN b INT DEFAULT 5 | + t | ALTER TABLE t DROP a, DROP b, DROP c",
    "modify": "ALTER TABLE t MODIFY a INT FIRST | + t | ALTER TABLE t MODIFY a INT DEFAULT 4, MODIFY b INT | + t | "
    "ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 6, MODIFY b INT DEFAULT 6",
    "place": "ALTER TABLE t ADD c INT DEFAULT 1 FIRST | + t | ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 7 AFTER b | + t | "
    "ALTER TABLE t DROP a, DROP c",
    "drop_add": "ALTER TABLE t DROP a, ADD a INT NOT NULL DEFAULT 1 | + t | ALTER TABLE t DROP a | + t | "
    "ALTER TABLE t ADD a INT NOT NULL DEFAULT 2",
    "set_default": "ALTER TABLE t ALTER a SET DEFAULT 1, ALTER v DROP DEFAULT | + t | ALTER TABLE t ALTER v SET DEFAULT 'z' | "
    "+ t | ALTER TABLE t ALTER a DROP DEFAULT, ALTER v DROP DEFAULT",
    "rename_table": "RENAME TABLE t TO u | + u | ALTER TABLE u RENAME TO w, ALTER a SET DEFAULT 3 | + w | DROP TABLE w",
    "swap_tables": "CREATE TABLE u (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 1) | RENAME TABLE t TO x, u TO t, x TO u | + t | "
    "+ u | ALTER TABLE t ALTER a SET DEFAULT 5 | + t | + u | RENAME TABLE t TO x, u TO t, x TO u",
    "like": "CREATE TABLE u LIKE t | + u | ALTER TABLE t ALTER a SET DEFAULT 1 | + u | ALTER TABLE u ALTER b SET DEFAULT 2 | "
    "+ t | + u | DROP TABLE t | + u | DROP TABLE u",
    "made_again": "DROP TABLE t | CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 1) | + t | DROP TABLE t | "
    "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 2)",
    "truncate": "TRUNCATE TABLE t | + t | ALTER TABLE t ALTER a SET DEFAULT 1 | + t | ALTER TABLE t DROP a",
    "rename": "ALTER TABLE t RENAME COLUMN a TO c | + t | ALTER TABLE t RENAME COLUMN c TO e, RENAME COLUMN ts TO tt | + t | "
    "ALTER TABLE t RENAME COLUMN e TO f, RENAME COLUMN d TO dd, RENAME COLUMN tt TO ts",
    "rename_swap": "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a | + t | ALTER TABLE t ALTER a SET DEFAULT 1 | "
    "+ t | ALTER TABLE t RENAME COLUMN b TO a, RENAME COLUMN a TO b",
    "rename_reuse": "ALTER TABLE t RENAME COLUMN a TO c, ADD COLUMN a INT NOT NULL DEFAULT 1 | + t | "
    "ALTER TABLE t DROP a, RENAME COLUMN c TO a | + t | ALTER TABLE t ALTER a SET DEFAULT 2",
    "rename_and_default": "ALTER TABLE t ALTER a SET DEFAULT 1, RENAME COLUMN b TO c | ALTER TABLE t RENAME COLUMN a TO b | + t | "
    "ALTER TABLE t RENAME COLUMN b TO x",
}


@pytest.mark.parametrize(
    ("source", "case"),
    [
        (server, case)
        for server in ("mysql57", "mysql80", "mariadb114")
        for case in LATE
        if server != "mysql57" or "RENAME COLUMN" not in LATE[case]  # which it does not have
    ],
    indirect=["source"],
)
def test_a_late_reader_tells_what_the_server_told_when_the_row_was_written(source: Source, case: str) -> None:
    """The server is ahead of a reader that starts before the CREATE TABLE, behind it, or again at every row."""
    before, first = end_of_log(source.user), known_now(source)
    source.run(f"CREATE TABLE t ({FIRST_COLUMNS}) CHARSET latin1")
    behind, second = end_of_log(source.user), known_now(source)
    expected = []
    for statement in ("+ t", *LATE[case].split(" | ")):
        table = statement[2:]
        if statement.startswith("+"):
            source.run(f"DELETE FROM {table}", f"INSERT INTO {table} (id) VALUES (1)")
            expected.append(source.read(table))
        else:
            source.run(statement)
    wanted = distinct(expected)
    # The text of a TIMESTAMP is in the time zone of its session, and only the server knows the value.
    no_timestamps = distinct(expected, frozenset({"ts", "tt"}))
    assert distinct(late(source, before, first), frozenset({"ts", "tt"})) == no_timestamps
    assert distinct(late(source, behind, second)) == wanted
    assert distinct(late(source, behind, second, restarts=True)) == wanted
    if source.server.name != "mysql57":  # whose columns are not known without the state
        assert defaults(late(source, before, None)) == defaults(expected)


def known_now(source: Source) -> dict[str, Any]:
    """The state documents of a producer that starts for the first time now."""
    with closing(pinned(source.server)()) as connection:
        tracked = TrackedTables(read_rules(connection), lambda _database, _table: True)
        for database, table in list_tables(connection):
            facts = read_table_facts(connection, database, table) if database == source.database else None
            if facts is not None:
                tracked.adopt(facts.state)
    return tracked.pop_unsaved()


def late(
    source: Source, place: Any, documents: dict[str, Any] | None, *, restarts: bool = False
) -> Iterator[TableSchema]:
    """The table versions of all rows since `place`, by a reader that has these state documents there.

    Without documents it follows no tables, and knows what it has read of them.
    """
    flavour, catalog = source.server.flavour, None
    follows, documents = documents is not None, documents or {}
    for event in events_since(place):
        if catalog is None or restarts:
            tracked = TrackedTables(read_rules(source.user), lambda database, _: database == source.database)
            tracked.restore(documents)
            catalog = Catalog(
                pinned(source.server), flavour, tracked if follows else None, lambda _database, _table: "it is not asked"
            )
        if isinstance(event, TableMap):
            yield catalog.version_of(event).schema
        else:
            catalog.apply(parse_ddl(event, source.database, flavour))
        documents = {key: document for key, document in (documents | catalog.pop_unsaved()).items() if document is not None}


def distinct(schemas: Iterable[TableSchema], uncertain: frozenset[str] = frozenset()) -> list[str]:
    """Schemas as records show them, but for defaults of `uncertain` columns; of equal ones that follow each other one."""
    shown = [comparable(schema, uncertain) for schema in schemas]
    lines = [f"{schema['name'][1]}: {', '.join(map(in_words, schema['columns']))}" for schema in shown]
    return [line for line, former in zip(lines, [None, *lines], strict=False) if line != former]


def defaults(schemas: Iterable[TableSchema]) -> list[list[tuple[str, Any]]]:
    """What records have as defaults, but those of TIMESTAMPs; of equal schemas that follow each other one."""
    told = [
        [(column.name, column_default(column)) for column in schema.columns if column.type != ColumnType.TIMESTAMP]
        for schema in schemas
    ]
    return [schema for schema, former in zip(told, [None, *told], strict=False) if schema != former]


def in_words(item: tuple[Column, Any]) -> str:
    """A column in what differs from a column that has nothing but a name and a type, with its default as records have it."""
    column, default = item
    plain = Column(column.name, column.type, nullable=True)
    told = {name: getattr(column, name) for name in Column.__dataclass_fields__}
    return f"{column.name} {column.type} {default!r} " + " ".join(
        f"{name}={value}" for name, value in told.items() if value != getattr(plain, name)
    )


def test_facts_hold_also_without_having_seen_the_ddl(source: Source) -> None:
    source.run(ALL_TYPES)
    table_map = source.map_of("INSERT INTO t (id, part, el) VALUES (1, 'p', 'A')")
    assert source.catalog.version_of(table_map).schema == source.read("t")
    assert source.catalog.version_of(table_map) is source.catalog.version_of(table_map)


def test_defaults_are_the_values_the_server_stores(source: Source) -> None:
    source.run(ALL_TYPES)
    columns = {column.name: column for column in source.read("t").columns}
    assert columns["v"].default == 'it\'s "x" \\ \n \0'
    assert columns["vn"].default == "NULL"
    assert columns["ts"].default == "2020-01-01 21:34:05"  # of a session at +05:30
    assert columns["b4"].default == "0x61620000"
    assert columns["vr"].default == "0x00FF"
    assert columns["s"].default == "a,b"
    assert columns["c"].default == "ab"
    assert columns["dn"].default_is_expression
    assert not columns["gv"].has_default
    assert columns["e"].members == ("x,y", "it's", "back\\slash", "", "ünï", "nl\n", 'q"q')


def test_a_default_with_zero_bytes_of_a_column_that_is_not_null_is_whole(source: Source) -> None:
    columns = "(id INT PRIMARY KEY, z VARBINARY(9) NOT NULL DEFAULT X'00FF00', y VARBINARY(9) DEFAULT X'FF00FF')"
    source.run(f"CREATE TABLE zeros {columns}", "INSERT INTO zeros (id) VALUES (1)")
    found = {column.name: column.default for column in source.read("zeros").columns}
    told = {name: value for name, value in found.items() if name != "id"}
    assert {name: value.encode() if value[:2] != "0x" else bytes.fromhex(value[2:]) for name, value in told.items()} == {
        "z": b"\0\xff\0", "y": b"\xff\0\xff",
    }  # fmt: skip


def test_the_record_key_is_the_first_unique_index_of_required_columns(source: Source) -> None:
    version, _ = source.version_after(
        "CREATE TABLE u (x INT, a INT NOT NULL, b INT NOT NULL, UNIQUE (x), UNIQUE u1 (b, a), UNIQUE u2 (a))",
        "INSERT INTO u VALUES (1, 2, 3)",
    )
    assert version.schema == source.read("u")
    assert version.schema.record_key == ("b", "a")
    bare, _ = source.version_after("CREATE TABLE n (a INT, UNIQUE (a))", "INSERT INTO n VALUES (1)")
    assert bare.schema.record_key == source.read("n").record_key == ()


def test_tables_are_listed_without_views_and_the_servers_own(source: Source) -> None:
    source.run("CREATE TABLE b (id INT)", "CREATE TABLE a (id INT)", "CREATE VIEW v AS SELECT 1")
    with closing(pinned(source.server)()) as connection:
        listed = list_tables(connection)
    assert [table for database, table in listed if database == source.database] == ["a", "b"]
    assert not {database for database, _ in listed} & {
        "mysql",
        "sys",
        "information_schema",
        "performance_schema",
    }


def test_a_table_that_is_not_there_is_none(source: Source) -> None:
    assert source.read("nothing") is None


# ── what can't be captured ────────────────────────────────


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


def test_text_and_members_of_every_character_set_are_as_the_server_tells_them(source: Source) -> None:
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


def test_spatial_columns_are_told_apart_by_the_log_alone(source: Source) -> None:
    kinds = [kind.value for kind in SPATIAL_TYPES]
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    source.run(f"CREATE TABLE g (id INT PRIMARY KEY, {columns})")
    source.check("g")
    version = source.catalog.version_of(source.map_of("INSERT INTO g (id) VALUES (1)"))
    assert [column.type.value for column in version.schema.columns[1:]] == kinds
    assert version.schema == source.read("g")


def test_what_mariadb_can_t_give_is_refused_and_its_addresses_are_told_from_binary(mariadb114: Any) -> None:
    with closing(mariadb114.connect()) as user:
        name = new_database(mariadb114)
        made = Source(mariadb114, name, user, Catalog(pinned(mariadb114), "mariadb"))
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
        made = Source(mysql80, name, user, Catalog(pinned(mysql80)))
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
    with pytest.raises(SourceError, match="SET GLOBAL binlog_row_metadata=FULL"):
        source.catalog.version_of(table_map)


# ── versions and DDL ────────────────────────────────


def test_a_default_is_that_of_the_ddl_also_when_the_server_is_ahead(source: Source) -> None:
    place = end_of_log(source.user)
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1)",
        "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 5",
        "INSERT INTO t (id) VALUES (1)",
    )
    until = end_of_log(source.user)
    source.run("ALTER TABLE t ALTER COLUMN b SET DEFAULT 9", "ALTER TABLE t ALTER a DROP DEFAULT")
    version, changes = source.replay(place) if until else (None, [])
    assert version is not None
    assert version.schema.column("b").default == "5"
    assert version.schema.column("a").default == "1"
    assert [change.effect for change in changes] == ["floor", "fill", "none", "none"]
    later, _ = source.version_after("INSERT INTO t (id, a) VALUES (2, 2)")
    assert later.schema == source.read("t")
    assert later.schema.column("b").default == "9"


def test_a_string_is_the_bytes_of_a_bit_default(source: Source) -> None:
    version, _ = source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, b BIT(16) DEFAULT 1, c BIT(16) DEFAULT 'A')",
        "ALTER TABLE t ALTER b SET DEFAULT '5'",
        "INSERT INTO t (id) VALUES (1)",
    )
    with source.user.cursor() as cursor:
        cursor.execute("SELECT b + 0, c + 0 FROM t")
        assert cursor.fetchone() == (0x35, 0x41)
    assert [column_default(column) for column in version.schema.columns[1:]] == [b"5\0", b"A\0"]
    assert version.schema == source.read("t")


def test_an_old_version_keeps_its_columns_when_the_server_has_others(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, gone VARCHAR(5) NOT NULL)")
    old = source.map_of("INSERT INTO t VALUES (1, 2, 'x')")
    source.run("ALTER TABLE t DROP COLUMN gone, MODIFY a BIGINT UNSIGNED FIRST, ADD b INT DEFAULT 3")
    schema = source.catalog.version_of(old).schema
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", ColumnType.INT),
        ("a", ColumnType.INT),
        ("gone", ColumnType.VARCHAR),
    ]


def test_effects_are_refined_by_the_columns_the_log_showed(source: Source) -> None:
    insert = "INSERT INTO t (id) VALUES ({})"
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, v VARCHAR(10), k CHAR(5) CHARACTER SET latin1, gone INT)",
        insert.format(1),
    )
    steps = [
        ("ALTER TABLE t MODIFY a BIGINT FIRST", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(20), ADD INDEX (v)", "none"),
        ("ALTER TABLE t ADD INDEX (a)", "none"),
        ("ALTER TABLE t MODIFY v VARCHAR(5)", "snapshot"),
        ("ALTER TABLE t MODIFY v VARCHAR(5) NOT NULL", "snapshot"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "none"),
        ("ALTER TABLE t MODIFY k CHAR(5) CHARACTER SET latin1", "snapshot"),
        ("ALTER TABLE t DROP COLUMN gone", "none"),
        ("ALTER TABLE t ADD COLUMN gone INT", "snapshot"),  # the sink still has the old values
        ("ALTER TABLE t CHANGE a b BIGINT", "snapshot"),
        ("ALTER TABLE t RENAME COLUMN b TO c", "snapshot"),
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT 7", "snapshot"),
        ("ALTER TABLE t MODIFY id BIGINT", "none"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "snapshot"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id), DROP COLUMN gone", "snapshot"),
    ]
    for number, (statement, effect) in enumerate(steps, start=2):
        _, (change,) = source.version_after(statement, insert.format(number))
        assert (statement, change.effect) == (statement, effect)


def test_a_change_of_columns_not_seen_since_the_start_wants_a_snapshot(source: Source) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    _, (change,) = source.version_after("ALTER TABLE t MODIFY a BIGINT", "INSERT INTO t VALUES (2, 2)")
    assert change.effect == "snapshot"


def test_a_default_taken_back_before_any_row_told_of_it_wants_a_snapshot(source: Source) -> None:
    """Django's migrations: rows that were there have 7, and no version of the table ever says so."""
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    _, changes = source.version_after(
        "ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 7",
        "ALTER TABLE t ALTER COLUMN a DROP DEFAULT",
        "INSERT INTO t VALUES (2, 2)",
    )
    assert [change.effect for change in changes] == ["fill", "snapshot"]
    _, (change,) = source.version_after(
        "ALTER TABLE t ALTER COLUMN a SET DEFAULT 9", "INSERT INTO t VALUES (3, 3)"
    )
    assert change.effect == "none"


def test_a_name_given_up_by_a_rename_and_added_again_wants_a_snapshot(source: Source) -> None:
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)")
    _, changes = source.version_after(
        "ALTER TABLE t CHANGE a b INT", "ALTER TABLE t ADD COLUMN a INT DEFAULT 7", "INSERT INTO t VALUES (2, 2, 2)"
    )
    assert changes[-1].effect == "snapshot"


def test_a_column_that_takes_the_character_set_of_its_table_may_lose_characters(source: Source) -> None:
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET utf8mb4, w VARCHAR(9)) CHARSET latin1",
        "INSERT INTO t VALUES (1, _utf8mb4 X'E697A5', 'a')",
    )
    _, (change,) = source.version_after("ALTER TABLE t MODIFY w VARCHAR(10)", "INSERT INTO t VALUES (2, 'b', 'b')")
    assert change.effect == "none"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY v VARCHAR(10)", "INSERT INTO t VALUES (3, 'c', 'c')")
    assert source.ask("SELECT HEX(v) FROM t WHERE id = 1") == "3F"
    assert change.effect == "snapshot"


def test_a_row_with_0_is_numbered_when_its_column_becomes_a_counter(source: Source) -> None:
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (0, 1)")
    _, (change,) = source.version_after("ALTER TABLE t MODIFY id INT AUTO_INCREMENT", "INSERT INTO t VALUES (5, 2)")
    assert source.ask("SELECT id FROM t WHERE n = 1") == 1
    assert change.effect == "snapshot"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY id BIGINT AUTO_INCREMENT", "INSERT INTO t VALUES (6, 3)")
    assert change.effect == "none"


def test_expressions_may_see_another_value_in_a_column_that_keeps_its_values(source: Source) -> None:
    columns = "id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(5,1), h VARCHAR(40) AS (HEX(v)) STORED, c VARCHAR(9) AS (CONCAT(d))"
    source.version_after(
        f"CREATE TABLE t ({columns}) CHARSET latin1", "INSERT INTO t (id, v, d) VALUES (1, _latin1 X'E9', 1.5)"
    )
    insert = "INSERT INTO t (id, v) VALUES ({}, 'a')"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY v VARCHAR(10)", insert.format(2))
    assert change.effect == "none"
    _, (change,) = source.version_after("ALTER TABLE t MODIFY d DECIMAL(7,2)", insert.format(3))
    assert source.ask("SELECT c FROM t WHERE id = 1") == "1.50"
    assert change.effect == "snapshot"
    _, (change,) = source.version_after("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", insert.format(4))
    assert source.ask("SELECT h FROM t WHERE id = 1") == "C3A9"
    assert change.effect == "snapshot"


def test_a_default_that_a_server_ahead_of_the_log_told_wants_a_snapshot(source: Source) -> None:
    """The process that met the ADD has ended; the one that meets the first row with it cannot know what it was."""
    source.version_after("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.run("ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 7")
    place = end_of_log(source.user)
    source.run("INSERT INTO t (id) VALUES (2)", "ALTER TABLE t ALTER COLUMN a SET DEFAULT 9")
    source.catalog = Catalog(pinned(source.server), source.server.flavour)
    _, (change,) = source.replay(place)
    assert change.effect == "snapshot"
    source.version_after("INSERT INTO t (id) VALUES (4)")
    _, (change,) = source.version_after("ALTER TABLE t ALTER COLUMN a SET DEFAULT 11", "INSERT INTO t (id) VALUES (3)")
    assert change.effect == "none"


def test_a_table_is_described_while_somebody_holds_the_global_read_lock(source: Source) -> None:
    """A backup, or our own view. MySQL 8 would write statistics down that it has not asked for yet, and wait for the lock."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 7)", "FLUSH TABLES WITH READ LOCK")
    server = source.server
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=(".*",)
    )
    try:
        with closing(connect(settings)) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 20")
            began = time.monotonic()
            facts = read_table_facts(connection, source.database, "t")
            waited_s = time.monotonic() - began
    finally:
        source.run("UNLOCK TABLES")
    assert facts is not None
    assert (facts.schema.primary_key, facts.schema.column("a").default) == (("id",), "7")
    assert waited_s < 15


def test_a_table_that_cannot_be_opened_is_not_waited_for(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE DEFINER = nobody@nowhere VIEW v AS SELECT id FROM t",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "CREATE VIEW w AS SELECT id FROM gone",
        "DROP TABLE gone",
    )
    with closing(pinned(source.server)()) as connection:
        for name in ("v", "w"):
            with connection.cursor() as cursor, pytest.raises(pymysql.MySQLError):
                cursor.execute(f"SELECT 1 FROM {source.database}.{name} LIMIT 0")
            wait_for_ddl(connection, source.database, name, 1)


def test_renamed_and_made_again_tables_start_afresh(source: Source) -> None:
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 4)", "INSERT INTO t (id) VALUES (1)"
    )
    renamed, (change,) = source.version_after("RENAME TABLE t TO u", "INSERT INTO u (id) VALUES (2)")
    assert (change.kind, renamed.schema.name, renamed.schema.column("a").default) == ("rename", "u", "4")
    again, changes = source.version_after("CREATE TABLE t (id INT, a INT)", "INSERT INTO t VALUES (1, 2)")
    assert [change.kind for change in changes] == ["create"]
    assert (again.schema.primary_key, again.schema.column("a").has_default) == ((), False)
    source.version_after("DROP TABLE t", "CREATE TABLE t (z INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert [column.name for column in source.read("t").columns] == ["z"]


# ── random ALTERs ────────────────────────────────

TYPES = (
    "INT",
    "BIGINT UNSIGNED",
    "SMALLINT",
    "TINYINT UNSIGNED",
    "DECIMAL(12,3)",
    "FLOAT",
    "FLOAT(8,2)",
    "DOUBLE",
    "BIT(7)",
    "YEAR",
    "DATE",
    "TIME(2)",
    "DATETIME(4)",
    "TIMESTAMP(1) NULL",
    "CHAR(7)",
    "VARCHAR(30)",
    "VARCHAR(9) CHARACTER SET latin1",
    "TEXT",
    "MEDIUMTEXT CHARACTER SET ascii",
    "BINARY(5)",
    "VARBINARY(20)",
    "BLOB",
    "ENUM('a','b,c','d''e')",
    "SET('x','y')",
    "JSON",
)
DEFAULTS = {
    "INT": "-3",
    "BIGINT UNSIGNED": "18446744073709551615",
    "SMALLINT": "7",
    "DECIMAL(12,3)": "-1.25",
    "FLOAT": "0.1",
    "DOUBLE": "1e100",
    "BIT(7)": "b'101'",
    "YEAR": "2024",
    "DATE": "'2024-02-29'",
    "TIME(2)": "'-01:02:03.25'",
    "DATETIME(4)": "'2024-02-29 01:02:03.25'",
    "TIMESTAMP(1) NULL": "'2024-02-29 01:02:03.5'",
    "CHAR(7)": "'ab'",
    "VARCHAR(30)": "'it''s é'",
    "BINARY(5)": "'ab'",
    "VARBINARY(20)": "X'00FF00'",
    "ENUM('a','b,c','d''e')": "'d''e'",
    "SET('x','y')": "'x,y'",
}


class RandomTable:
    """Makes ALTERs of a table whose columns it knows."""

    def __init__(self, randomness: random.Random) -> None:
        self.random = randomness
        self.columns = ["id"]
        self.made = 0

    def definition(self) -> str:
        kind = self.random.choice(TYPES)
        default = DEFAULTS.get(kind)
        if default is not None and self.random.random() < 0.6:
            kind += f" DEFAULT {default}"
        elif "NULL" not in kind and self.random.random() < 0.2:
            kind += " NOT NULL"
        return kind + self.random.choice(["", " COMMENT 'a, (b'", " /* note, */"])

    def place(self) -> str:
        return self.random.choice(["", " FIRST", f" AFTER `{self.random.choice(self.columns)}`"])

    def clause(self) -> str:
        others = [name for name in self.columns if name != "id"]
        action = self.random.choice(["add", "add", "add", "drop", "modify", "change", "default", "index"])
        if action == "add" or len(others) < 2:
            self.made += 1
            name = self.random.choice(
                [f"c{self.made}", f"c {self.made}", f"c-{self.made}`x".replace("`", "")]
            )
            clause = f"ADD COLUMN `{name}` {self.definition()}{self.place()}"
            self.columns.append(name)
            return clause
        name = self.random.choice(others)
        if action == "drop":
            self.columns.remove(name)
            return f"DROP `{name}`"
        if action == "modify":
            return f"MODIFY `{name}` {self.definition()}"
        if action == "change":
            self.made += 1
            new = f"n{self.made}"
            self.columns[self.columns.index(name)] = new
            return f"CHANGE COLUMN `{name}` `{new}` {self.definition()}"
        return f"ALTER `{name}` DROP DEFAULT" if action == "default" else f"COMMENT='{name}'"


def test_random_alters_leave_log_and_server_agreed(source: Source) -> None:
    log.info("random_alters.begin", seed=SEED)
    table = RandomTable(random.Random(SEED))
    source.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    failed = 0
    for _ in range(STEPS):
        before = list(table.columns)
        statement = f"ALTER TABLE t {table.clause()}"
        place = end_of_log(source.user)
        try:
            source.run(statement)
        except pymysql.MySQLError:
            table.columns = before
            failed += 1
            continue
        source.run("INSERT INTO t () VALUES ()", "DELETE FROM t")
        version, (change,) = source.replay(place)
        schema = source.read("t")
        assert version.schema == schema, statement
        assert (change.kind, change.table) == ("alter", "t")
        assert [
            c.name for c in change.added if c.name not in {column.name for column in schema.columns}
        ] == []
    log.info("random_alters.done", refused=failed)
    assert failed < STEPS // 3


def test_a_unique_index_on_prefixes_is_no_record_key_neither_for_the_log_nor_for_the_server(
    source: Source,
) -> None:
    version, _ = source.version_after(
        "CREATE TABLE p (v VARCHAR(20) NOT NULL, n INT NOT NULL, UNIQUE (v(5)), UNIQUE (n))",
        "INSERT INTO p VALUES ('a', 1)",
    )
    assert version.schema == source.read("p")
    assert version.schema.record_key == ("n",)
    source.run("ALTER TABLE p DROP INDEX n")
    table_map = source.map_of("INSERT INTO p VALUES ('b', 1)")
    assert Catalog(pinned(source.server), source.server.flavour).version_of(table_map).schema == source.read("p")
    assert source.read("p").record_key == ()
