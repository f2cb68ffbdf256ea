"""A task on real servers: one source, one target, the rows of both compared."""

from __future__ import annotations

import time

from schemas.settings import from_mapping
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, running
from tests.support.servers import database


def test_a_loaded_and_followed_source_is_equal(source, registry):
    target = database("mariadb114")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    rows = ",".join(f"({number}, 1, 'x')" for number in range(300))
    source.execute(f"INSERT INTO a VALUES {rows}")
    task = task_of(source, registry.url, target)
    with running(settings) as run, written(source, keys=100):
        time.sleep(1)
        catch_up(task)
        source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (1)")
        time.sleep(1)
    with running(settings) as run:
        run.caught_up(source)
        catch_up(task)
    for table in ("a", "b", "c"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table


def test_statements_on_tables_that_are_not_published_are_not_run(source, registry, fresh_database):
    """The target has tables and databases of these names that are its own."""
    target, other, later = database("mariadb114"), f"{source.schema}_other", f"{source.schema}_later"
    mapping = mapping_of(source, registry.url)
    settings = from_mapping({**mapping, "source": {**mapping["source"], "tables": [rf"{source.schema}\.(a|c)", rf"{later}\..*"]}})
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, 'x')", f"CREATE DATABASE {other}")
    own = [f"CREATE DATABASE {source.schema}", f"CREATE DATABASE {other}", f"CREATE TABLE {source.schema}.b (id INT)"]
    try:
        with target.connect() as connection, connection.cursor() as cursor:
            for statement in (*own, f"CREATE TABLE {other}.mine (id INT)"):
                cursor.execute(statement)
        with running(settings) as run:
            run.caught_up(source)
            source.execute("CREATE TABLE b (id INT PRIMARY KEY)", f"CREATE TABLE {other}.mine (id INT)")
            run.caught_up(source)
            catch_up(task_of(source, registry.url, target))
            source.execute("ALTER TABLE b ADD COLUMN v INT", "DROP TABLE b", f"DROP DATABASE {other}")
            source.execute(f"CREATE DATABASE {later} CHARACTER SET latin1", f"ALTER DATABASE {later} CHARACTER SET greek")
            source.execute("CREATE TABLE d (id INT PRIMARY KEY)", "RENAME TABLE d TO e", f"RENAME TABLE a TO {later}.a")
            run.caught_up(source)
            catch_up(task_of(source, registry.url, target))
            source.execute(f"CREATE TABLE {later}.t (v VARCHAR(10))")
            run.caught_up(source)
        catch_up(task_of(source, registry.url, target))
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_COLLATION FROM information_schema.TABLES "
                           "WHERE TABLE_SCHEMA LIKE %s ORDER BY 1, 2", (f"{source.schema}%",))  # fmt: skip
            tables = cursor.fetchall()
            cursor.execute(f"SHOW COLUMNS FROM {source.schema}.b")
            assert len(cursor.fetchall()) == 1
        assert [one[:2] for one in tables] == [(source.schema, "b"), (later, "a"), (later, "t"), (other, "mine")]
        assert tables[2][2] == "greek_general_ci"
        assert rows_of(target, later, "a") == [(1, 1, "x")]
    finally:
        for server in (target, source.server):
            for schema in (other, later):
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
