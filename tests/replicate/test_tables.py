"""Tables that are not plain: without a key, with generated columns, foreign keys, changed keys; and those that are refused."""

from __future__ import annotations

import threading

import pytest

from schemas.errors import ConfigError, SinkError
from schemas.settings import from_mapping
from spark_jobs.replicate.task import run_task
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, Running, Source, running
from tests.support.servers import database

TABLES = {
    "parent": "id INT PRIMARY KEY, name VARCHAR(20) UNIQUE",
    "child": (
        "id INT PRIMARY KEY, parent INT, name VARCHAR(20), FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE "
        "CASCADE, FOREIGN KEY (name) REFERENCES parent (name) ON UPDATE CASCADE ON DELETE SET NULL"
    ),
    "keyless": "f FLOAT, d DOUBLE, n DECIMAL(10, 3), t VARCHAR(20), b VARBINARY(20), j JSON, s DATETIME(3)",
    "computed": "a INT, b INT AS (a * 2) STORED, c INT AS (a + 1) VIRTUAL, PRIMARY KEY (b)",
    "dates": "id INT PRIMARY KEY, d DATE NOT NULL, t DATETIME(6), s TIMESTAMP NULL, e ENUM('a', 'b'), n INT NOT NULL",
    "two_keys": "x VARCHAR(30), y INT, z INT, PRIMARY KEY (x, y), UNIQUE (z)",
    "tree": "id INT PRIMARY KEY, above INT, FOREIGN KEY (above) REFERENCES tree (id)",
}
CHANGES = (
    "INSERT INTO parent VALUES (4, 'four'), (5, 'five')", "INSERT INTO child VALUES (40, 4, 'four'), (50, 5, 'five'), (51, 5, 'four')",
    "UPDATE parent SET id = 14, name = 'fourteen' WHERE id = 4", "DELETE FROM parent WHERE id = 5", "DELETE FROM parent WHERE id = 1",
    "UPDATE parent SET id = 20 WHERE id = 2",
    "INSERT INTO keyless VALUES (0.1, 0.1, 1.5, 'a', X'00FF', '{\"a\": [1, null]}', '2024-02-29 01:02:03.456')",
    "INSERT INTO keyless VALUES (0.1, 0.1, 1.5, 'A', X'00FF', '{\"a\": [1, null]}', '2024-02-29 01:02:03.456')",
    "INSERT INTO keyless VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL), (NULL, NULL, NULL, 'x''\\\\', NULL, NULL, NULL)",
    "UPDATE keyless SET n = n + 1 WHERE BINARY t = 'a'", "DELETE FROM keyless WHERE BINARY t = 'A'",
    "UPDATE keyless SET d = 3 WHERE t IS NULL AND d IS NULL LIMIT 1",
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
    "INSERT INTO dates VALUES (1, 0, 0, 0, 'x', 1), (2, '2023-02-31', '2024-00-00 01:02:03.5', NULL, 'a', 2)",
    "UPDATE dates SET e = 'nothing', t = '0000-01-00' WHERE id = 2", "SET SESSION sql_mode = DEFAULT",
    "INSERT INTO computed (a) VALUES (3), (4)", "UPDATE computed SET a = 7 WHERE a = 3", "DELETE FROM computed WHERE a = 4",
    "INSERT INTO two_keys VALUES ('a', 1, 1), ('b', 1, 2), ('c', 2, NULL)", "UPDATE two_keys SET y = 9 - y, z = z + 10",
    "UPDATE two_keys SET x = 'B' WHERE x = 'b'", "REPLACE INTO two_keys VALUES ('d', 1, 11)",
    "INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 1)", "DELETE FROM tree WHERE id > 1 ORDER BY id DESC", "DELETE FROM tree",
)  # fmt: skip


def test_tables_of_all_kinds_are_followed(source, registry):
    target = database("mysql97")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items() if name != "keyless"))
    source.execute(
        "INSERT INTO parent VALUES (1, 'one'), (2, 'two')", "INSERT INTO child VALUES (10, 1, 'one'), (11, 2, 'one'), (12, 2, NULL)"
    )
    task = task_of(source, registry.url, target)
    with running(settings) as run:
        catch_up(task)
        source.execute(f"CREATE TABLE keyless ({TABLES['keyless']})")
        for change in CHANGES:
            source.execute(change)
        run.caught_up(source)
        catch_up(task)
    for table in TABLES:
        assert sorted(map(repr, rows_of(target, source.schema, table))) == sorted(
            map(repr, rows_of(source.server, source.schema, table))
        ), table


@pytest.mark.parametrize(("source", "server"), [("mysql80", "mariadb114"), ("mariadb114", "mysql97")], indirect=["source"])
def test_indexes_are_made_and_dropped_as_at_the_source(source, registry, server):
    """Also indexes from before the task's begin. Without order.group the topic of the statements does not have them, as Debezium's."""
    target, mapping = database(server), mapping_of(source, registry.url)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), g INT)", "INSERT INTO t VALUES (1, 1, 'x', 1)")
    with running(from_mapping(mapping)) as run:
        source.execute("CREATE INDEX early ON t (a)")
        run.caught_up(source)
        catch_up(task_of(source, registry.url, target))
        source.execute(
            "CREATE UNIQUE INDEX once ON t (b(5), a)", "/* why */ CREATE INDEX `of, t` USING BTREE ON t (g DESC) COMMENT 'x' ALGORITHM=INPLACE",
            "CREATE FULLTEXT INDEX words ON t (b)", "DROP INDEX early ON t", "CREATE INDEX later ON t (a, b)", "INSERT INTO t VALUES (2, 1, 'y', 2)",
        )  # fmt: skip
        run.caught_up(source)
        catch_up(task_of(source, registry.url, target))
    assert indexes_of(target, source.schema) == indexes_of(source.server, source.schema)
    assert {name for name, *_ in indexes_of(target, source.schema)} == {"PRIMARY", "once", "of, t", "words", "later"}
    assert rows_of(target, source.schema, "t") == rows_of(source.server, source.schema, "t")


def indexes_of(server, schema: str) -> list[tuple]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, NON_UNIQUE, SUB_PART, INDEX_TYPE, INDEX_COMMENT FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 't' ORDER BY 1, 2", (schema,)
        )  # fmt: skip
        return list(cursor.fetchall())


def test_a_load_that_is_stopped_at_the_source_ends_the_task(source, registry):
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)")
    source.execute(f"INSERT INTO a VALUES {','.join(f'({number})' for number in range(20_000))}")
    with running(settings) as run:
        stopped = threading.Thread(target=stop_the_snapshot, args=(source, run))
        stopped.start()
        with pytest.raises(SinkError, match=r"cannot read table .*\.a for the task: SKIPPED"):
            catch_up(task_of(source, registry.url, database("mariadb114")))
        stopped.join()


def stop_the_snapshot(source: Source, run: Running) -> None:
    coordinator = run.producer.coordinator
    assert coordinator is not None
    run.until(lambda: any(table.rows for table in coordinator.progress()), "rows are read")
    source.execute("INSERT INTO tidemark_signal VALUES ('stop', 'stop-snapshot', '{\"type\": \"INCREMENTAL\"}')")


def test_a_task_without_tables_is_refused(source, registry):
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)")
    task = task_of(source, registry.url, database("mariadb114"), sources=[{"name": source.name, "tables": ["shop\\.a"]}])
    with running(from_mapping(mapping_of(source, registry.url))), pytest.raises(ConfigError, match="no table that the task names"):
        run_task(task, threading.Event())


def test_targets_that_are_wrong_are_refused(source, registry):
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    target = database("mariadb114")
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {source.schema}")
        cursor.execute(f"CREATE TABLE {source.schema}.a (id INT PRIMARY KEY) ENGINE=MyISAM")
        cursor.execute(f"INSERT INTO {source.schema}.a VALUES (7)")
    with running(settings) as run:
        with pytest.raises(ConfigError, match="is the server that source"):
            run_task(task_of(source, registry.url, source.server), threading.Event())
        with pytest.raises(ConfigError, match=r"\.a has rows already"):
            run_task(task_of(source, registry.url, target), threading.Event())
        task = task_of(source, registry.url, target, mode="incremental")
        catch_up(task)
        source.execute("INSERT INTO a VALUES (8)")
        run.caught_up(source)
        with pytest.raises(SinkError, match=r"\.a has no transactions.*ENGINE=InnoDB"):
            catch_up(task)
        with target.connect(database=source.schema) as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE a ENGINE=InnoDB")
        catch_up(task)
        source.execute("DELETE FROM a WHERE id = 1")
        run.caught_up(source)
        with pytest.raises(SinkError, match=r"a delete in .*\.a: 0 rows were there of 1"):
            catch_up(task)
