"""A ROLLBACK in a transaction of the log: what was rolled back on the server is published nowhere."""

from __future__ import annotations

from tests.support.producers import Source, running


def ids(source: Source, table: str) -> list[int]:
    return [change.value["after"]["id"] for change in source.changes(table)]


def end_of_log(source: Source) -> tuple[str, int]:
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, pos, *_ = cursor.fetchone()
    return file, pos


def logged(source: Source, since: tuple[str, int]) -> set[str]:
    """Every statement in the log's query events from a position on."""
    file, pos = since
    with source.server.connect(use_unicode=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {pos}")
        return {row[5].decode(errors="replace") for row in cursor.fetchall() if row[2] == b"Query"}


def test_savepoints_and_rollbacks_beside_other_engines(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    begin = end_of_log(mariadb)
    with running(mariadb.settings()) as run:
        mariadb.execute(
            "BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT `s'1`", "INSERT INTO m VALUES (1)",
            "INSERT INTO t VALUES (2)", "SAVEPOINT s2", "INSERT INTO t VALUES (3)", "ROLLBACK TO s2",
            "INSERT INTO t VALUES (4)", "ROLLBACK TO `S'1`", "INSERT INTO t VALUES (5)", "COMMIT",
            "BEGIN", "INSERT INTO t VALUES (6)", "INSERT INTO m VALUES (2)", "ROLLBACK",
            "INSERT INTO t VALUES (7)",
        )  # fmt: skip
        run.caught_up(mariadb)
    assert any("ROLLBACK TO" in statement for statement in logged(mariadb, begin))
    assert (ids(mariadb, "t"), ids(mariadb, "m")) == ([1, 5, 7], [1, 2])
    ordinals = [int(change.value["source"]["sequence"][-10:]) for change in mariadb.changes("t")]
    assert ordinals == [1, 2, 1]


def test_a_transaction_that_ends_with_rollback_leaves_no_rows(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))")
    begin = end_of_log(mariadb)
    with running(mariadb.settings()) as run:
        mariadb.execute(
            "SET SESSION binlog_format = 'MIXED'",
            "BEGIN", "INSERT INTO t VALUES (1, UUID())", "CREATE TEMPORARY TABLE tm (id INT) ENGINE=MyISAM",
            "INSERT INTO t VALUES (2, UUID())", "ROLLBACK",
            "DROP TEMPORARY TABLE tm", "INSERT INTO t VALUES (3, UUID())",
        )  # fmt: skip
        run.caught_up(mariadb)
    assert "ROLLBACK" in logged(mariadb, begin)
    assert ids(mariadb, "t") == [3]
