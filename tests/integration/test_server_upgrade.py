"""MySQL 5.7 becomes 8.0 in place while the producer is down: the log continues, in another format of events.

Table `n` has equal TABLE_MAPs in both (MINIMAL metadata reports nothing of such columns), but its JSON is printed in two ways.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from devservers import Database, Kafka, start_database
from tests.support.producers import Source
from tests.support.producing import RunningProducer
from tests.support.servers import database

PRIVILEGES = ("component", "default_roles", "global_grants", "password_history", "role_edges", "user")


def test_an_upgrade_of_the_same_data_is_read_through(kafka: Kafka, tmp_path: Path) -> None:
    old = start_database("mysql57", tmp_path)
    try:
        with old.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
        before = Source(old, "shop", kafka.bootstrap_servers)
        before.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), e ENUM('a', 'b'), u BIGINT UNSIGNED)")
        before.execute("CREATE TABLE n (k DATE PRIMARY KEY, j JSON)")
        with RunningProducer(before.settings()) as producer:
            producer.wait_until("the log is read", lambda start: start.reader is not None)
            before.execute("INSERT INTO t VALUES (1, 'read', 'b', 18446744073709551615)")
            producer.wait_until("it is published", lambda _: ids(before) == [1])
        # None of this is read by the time the server is another one.
        before.execute(
            "INSERT INTO t VALUES (2, 'five', 'a', 2)",
            "ALTER TABLE t ADD COLUMN d DATE",
            "INSERT INTO t VALUES (3, 'seven', 'b', 3, '2026-11-22')",
            "INSERT INTO n VALUES ('2026-11-22', '[1.0, 1.5, 1, 1e20, -0.0]')",
        )
        before.connection.close()
    finally:
        old.stop_seconds = 120.0  # 8.0 does not take over what 5.7 left behind when it was killed
        old.close()
    new = upgraded(old, tmp_path)
    try:
        after = Source(new, "shop", kafka.bootstrap_servers)
        after.name = before.name
        after.execute("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO n VALUES ('2026-11-23', '[1.0, 1.5, 1, 1e20, -0.0]')")
        after.execute("SET GLOBAL binlog_row_metadata = FULL")
        after.execute("INSERT INTO t VALUES (4, 'eight', 'a', 4, '2026-11-23')", "ALTER TABLE t ADD COLUMN j JSON FIRST")
        after.execute("INSERT INTO t VALUES ('{}', 5, 'eight', 'b', 5, NULL)")
        with RunningProducer(after.settings()) as producer:
            producer.wait_until("all is published", lambda _: len(ids(after)) >= 5)
            assert producer.waited == []
        after.connection.close()
        changes = [change.value for change in after.changes("t")]
        assert [value["after"]["id"] for value in changes] == [1, 2, 3, 4, 5]
        assert [value["after"]["v"] for value in changes] == ["read", "five", "seven", "eight", "eight"]
        assert [value["after"]["e"] for value in changes] == ["b", "a", "b", "a", "b"]
        assert ["d" in value["after"] for value in changes] == [False, False, True, True, True]
        assert {value["source"]["sequence"][:4] for value in changes} == {"0000"}
        printed = [change.value["after"]["j"] for change in after.changes("n")]
        assert printed == ["[1,1.5,1,1e20,-0]", "[1.0,1.5,1,1e20,-0.0]"], "each file's server prints doubles in its way"
    finally:
        new.close()


def ids(source: Source) -> list[int]:
    return [change.value["after"]["id"] for change in source.changes("t")]


def upgraded(old: Database, folder: Path) -> Database:
    """MySQL 8.0 on a copy of the data of a 5.7 that was shut down.

    8.0.15 brings the dictionary up by itself. The tables of privileges are left to `mysql_upgrade`, which these binaries
    lack, and newer servers do on their own: what it makes is made here, by the definitions of a new server.
    """
    new = Database("mysql80", folder)
    sockets = shutil.ignore_patterns("*.sock*", "*.pid")
    shutil.copytree(old.data_dir, new.data_dir, ignore=sockets)
    new.start()
    with database("mysql80").connect() as fresh, new.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0, sql_mode = ''")
        cursor.execute("DROP TABLE mysql.user")
        for table in PRIVILEGES:
            cursor.execute(definition(fresh, table))
        for table in ("user", "global_grants"):
            rows = rows_of(fresh, table)
            cursor.executemany(f"INSERT INTO mysql.{table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
        cursor.execute("FLUSH PRIVILEGES")
    return new


def rows_of(connection: Any, table: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM mysql.{table}")
        return list(cursor.fetchall())


def definition(connection: Any, table: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE mysql.{table}")
        return str(cursor.fetchone()[1]).replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS mysql.", 1)
