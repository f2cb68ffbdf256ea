"""A schema on a server with a session, and a catalog that reads its log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from mysqlio.definitions.table_parts import Rules
from mysqlio.information_schema import (
    check_supported,
    list_tables,
    read_rules,
    read_table_facts,
    read_table_schema,
)
from producer.binlog.tablemap import TableMap
from producer.catalog import Catalog, TableVersion, TrackedTables
from producer.catalog.dropped_columns import DroppedColumns
from producer.catalog.effects import DdlChange, parse_ddl
from producer.catalog.model import state_of
from tests.catalog.server_log import end_of_log, events_since, table_maps_since


def pinned(server: Any) -> Callable[[], Any]:
    """Connections to a server as the producer has them."""

    def connect() -> Any:
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        return connection

    return connect


def catalog_of(
    server: Any, tracked: TrackedTables | None = None, connect: Callable[[], Any] | None = None
) -> Catalog:
    """A catalog as the log reader has it; by default it follows no tables, and remembers only their former columns."""
    if tracked is None:
        tracked = TrackedTables(Rules(server.flavour, {}), lambda _database, _table: False)
        tracked.dropped_columns = DroppedColumns(lambda _database, _table: True)
    return Catalog(connect or pinned(server), server.flavour, tracked, lambda _database, _table: "it is not asked")


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
        position = end_of_log(self.user)
        self.run(statement)
        return table_maps_since(position)[-1]

    def version_after(self, *statements: str) -> tuple[TableVersion, list[DdlChange]]:
        """What the log reader makes of statements, the last of which writes a row."""
        position = end_of_log(self.user)
        self.run(*statements)
        return self.replay(position)

    def replay(self, position: Any) -> tuple[TableVersion, list[DdlChange]]:
        changes: list[DdlChange] = []
        version = None
        for event in events_since(position):
            if isinstance(event, TableMap):
                version = self.catalog.version_of(event)
            else:
                changes.extend(self.catalog.apply(parse_ddl(event, self.database, self.server.flavour)))
        assert version is not None
        return version, [change for change in changes if change.kind != "other"]


def known_now(source: Source) -> dict[str, Any]:
    """The state documents of a producer that starts for the first time now."""
    with closing(pinned(source.server)()) as connection:
        tracked = TrackedTables(read_rules(connection), lambda _database, _table: True)
        for database, table in list_tables(connection):
            facts = read_table_facts(connection, database, table) if database == source.database else None
            if facts is not None:
                tracked.adopt(state_of(facts))
    return tracked.pop_unsaved()


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
