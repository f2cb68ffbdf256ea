"""What the log has of tables that nobody captures ends nothing; the same about a captured table is never passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, own_database, unique_name

SLOW = pytest.mark.slow
SERVERS = ["mysql80", "mariadb114", *(pytest.param(one, marks=SLOW) for one in ("mysql57", "mysql97", "mariadb1011", "mariadb118"))]


@pytest.fixture(params=SERVERS)
def source(request: Any, kafka: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.connection = server.connect(database=created.schema, local_infile=True)
    created.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    yield created
    created.connection.close()


@pytest.fixture
def outside(source: Source, fresh_database: Callable[..., str]) -> str:
    """A database of which nothing is captured."""
    name = fresh_database(source.server)
    source.execute(
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        f"CREATE TABLE {name}.m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
    )
    return name


def ids(source: Source, table: str = "t") -> list[int]:
    return [change.value["after"]["id"] for change in source.changes(table)]


def test_statements_about_tables_that_nobody_captures_stop_nothing(source: Source, outside: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("100\t1\n101\t2\n", "utf-8")
    source.execute("SET GLOBAL local_infile = ON")
    with running(source.settings()) as run:
        source.execute(
            "INSERT INTO t VALUES (1, 1)",
            f"USE {outside}",
            "SET SESSION binlog_format = 'STATEMENT'",
            "INSERT INTO t (v) VALUES (1), (2)",  # an INTVAR event before it
            "SET @x = 5",
            "UPDATE t SET v = @x + FLOOR(RAND() * 9)",  # USER_VAR, RAND
            "REPLACE INTO m VALUES (1, 1)",
            f"INSERT INTO {outside}.m SELECT id + 10, v FROM t",
            f"INSERT INTO {outside}.m (id, v) SELECT id + 20, v FROM {source.schema}.t",  # reads a captured one
            "DELETE a, b FROM t a JOIN t b ON a.id = b.id WHERE a.id > 90",
            f"LOAD DATA LOCAL INFILE '{tmp_path / 'rows.txt'}' INTO TABLE m",
            "CREATE TEMPORARY TABLE tt (id INT)",
            "INSERT INTO tt VALUES (1)",
            "DELETE FROM t WHERE id > 1000 ORDER BY id LIMIT 1",
            "BEGIN", "INSERT INTO t (v) VALUES (7)", "SET SESSION binlog_row_image = 'MINIMAL'", "COMMIT",
            "DROP TABLE tt",
            "SET SESSION binlog_row_image = 'FULL'",
            "SET SESSION binlog_format = 'ROW'",
            f"USE {source.schema}",
            "INSERT INTO t VALUES (2, 2)",
        )  # fmt: skip
        run.caught_up(source)
        assert run.error is None
    assert ids(source) == [1, 2]


FUNCTION = """CREATE FUNCTION {outside}.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA
 BEGIN INSERT INTO {schema}.t VALUES (60, 1); RETURN 1; END"""
WRITTEN = {
    "by its bare name": ("INSERT INTO t VALUES (5, 5)",),
    "by its quoted name": ("USE {outside}", "INSERT INTO `{schema}`.`t` VALUES (5, 5)"),
    "in a join": ("UPDATE {outside}.t a JOIN t b SET b.v = 9, a.v = 8",),
    "by an alias": ("DELETE b FROM {outside}.t a JOIN {schema}.t b",),
    "through a trigger": (
        "CREATE TRIGGER {outside}.tr AFTER INSERT ON {outside}.t FOR EACH ROW INSERT INTO {schema}.t VALUES (NEW.id + 50, 1)",
        "SET SESSION binlog_format = 'STATEMENT'",
        "USE {outside}",
        "INSERT INTO t (v) VALUES (1)",
    ),
    "by a function": (
        FUNCTION,
        "USE {outside}",
        "INSERT INTO t (v) VALUES (f())",
    ),
    "by a SELECT of a function": (
        FUNCTION,
        "USE {outside}",
        "DO f()",
    ),
    "through a view": ("CREATE VIEW {outside}.w AS SELECT * FROM {schema}.t", "INSERT INTO {outside}.w VALUES (7, 7)"),
    "by a foreign key": (
        "INSERT INTO {outside}.t (id, v) VALUES (1, 1)",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES {outside}.t (id) ON DELETE CASCADE)",
        "INSERT INTO child VALUES (1)",
        "SET SESSION binlog_format = 'STATEMENT'",
        "DELETE FROM {outside}.t WHERE id = 1",
    ),
}
_NARROW = ("in a join", "through a trigger", "by a SELECT of a function")


@pytest.mark.parametrize("how", [how if how in _NARROW else pytest.param(how, marks=SLOW) for how in WRITTEN])
def test_a_statement_that_may_change_a_captured_table_stops_the_reader(source: Source, outside: str, how: str) -> None:
    *before, statement = (one.format(schema=source.schema, outside=outside) for one in WRITTEN[how])
    source.execute("SET SESSION binlog_format = 'ROW'")
    with running(source.settings()) as run:
        if source.server.flavour == "mysql" and source.server.name != "mysql97":
            source.execute("SET GLOBAL log_bin_trust_function_creators = ON")
        source.execute("INSERT INTO t VALUES (1, 1)", *before, "SET SESSION binlog_format = 'STATEMENT'", statement)
        source.execute("SET SESSION binlog_format = 'ROW'")
        run.until_ended()
    source.execute(f"DROP TABLE IF EXISTS {source.schema}.child")
    assert "was logged as a statement" in str(run.error)
    assert source.schema in str(run.error), "the message names the table"


@pytest.mark.parametrize(
    "name", ["mysql80", *(pytest.param(one, marks=SLOW) for one in ("mysql57", "mysql97", "mariadb1011", "mariadb114"))]
)
def test_a_memory_table_that_a_restart_empties_stops_nothing_and_a_captured_one_is_empty(name: str, kafka: Any) -> None:
    server = own_database(name, "restarted")
    schema, outside = (unique_name(one).replace("-", "_") for one in ("restarted", "outside"))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {schema}")
        cursor.execute(f"CREATE DATABASE {outside}")
    source = Source(server, schema, kafka.bootstrap_servers)
    source.execute(
        SIGNAL,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE kept (id INT PRIMARY KEY) ENGINE=MEMORY",
        f"CREATE TABLE {outside}.scratch (id INT) ENGINE=MEMORY",
    )
    with running(source.settings({"skipped_operations": ["none"]})) as run:
        source.execute("INSERT INTO t VALUES (1)", "INSERT INTO kept VALUES (7)", f"INSERT INTO {outside}.scratch VALUES (1)")
        run.caught_up(source)
    server.restart()
    source.connection = server.connect(database=schema)
    source.execute(f"SELECT * FROM {outside}.scratch", "SELECT * FROM kept", "INSERT INTO t VALUES (2)", "INSERT INTO kept VALUES (8)")
    with running(source.settings({"skipped_operations": ["none"]})) as run:
        run.caught_up(source)
        assert run.error is None
    assert ids(source) == [1, 2]
    assert [(one.value["op"], (one.value["after"] or {}).get("id")) for one in source.changes("kept")] == [
        ("c", 7), ("t", None), ("c", 8)
    ]  # fmt: skip
    source.connection.close()
