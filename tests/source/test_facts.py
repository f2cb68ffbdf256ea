"""Preflight: whatever would lose rows is refused, by name, with the SQL that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from devservers import Database, start_database
from mysqlio.connection import Connection, connect
from mysqlio.information_schema import read_table_schema
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import (
    ServerFacts,
    current_position,
    flavour_of,
    grants_of,
    server_facts,
    user_grants,
    version_of,
)
from producer.source import source_preflight
from producer.source.coverage import privileges_on
from producer.source.log_facts import available_log, require_logged, require_stored_name, xa_recover
from producer.source.source_preflight import preflight
from schemas.errors import SourceError
from tests.source.reading import SERVERS, execute, settings_of
from tests.support.area_logs import of_area
from tests.support.servers import database, wait_until_gone

GOOD = ServerFacts(
    flavour="mysql",
    version=(8, 0, 40),
    version_text="8.0.40",
    server_id=1,
    server_uuid="342accec-e5a0-11f1-8f1c-02fc00000001",
    log_bin=True,
    binlog_format="ROW",
    row_image="FULL",
    row_metadata="FULL",
    row_value_options="",
    order_commits="ON",
    checksum="CRC32",
    gtid_mode="ON",
    log_bin_compress="",
    lower_case_table_names=0,
)


@contextmanager
def connected(server: Database, **more: str) -> Iterator[Connection]:
    connection = connect(ServerAccess.of(settings_of(server, **more)))
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_set_up_right_passes(name: str) -> None:
    server = database(name)
    with connected(server) as connection:
        facts = server_facts(connection)
        facts = replace(facts, row_metadata="FULL")
        preflight(facts, connection)
        assert facts.flavour == server.flavour
        assert facts.version >= (8, 0, 0)
        assert facts.has_gtids
        assert facts.identity in (facts.server_uuid, f"server_id={facts.server_id}")
        assert facts.order_commits == ("" if server.flavour == "mariadb" else "ON")


@pytest.mark.parametrize(
    ("change", "name", "sql"),
    [
        ({"log_bin": False}, "log_bin", "--log-bin"),
        ({"server_id": 0}, "server_id", "SET GLOBAL server_id"),
        ({"binlog_format": "MIXED"}, "binlog_format is MIXED", "SET GLOBAL binlog_format = 'ROW'"),
        ({"row_image": "MINIMAL"}, "binlog_row_image is MINIMAL", "SET GLOBAL binlog_row_image = 'FULL'"),
        ({"version": (5, 6, 51), "version_text": "5.6.51"}, "mysql 5.6.51 is too old", "5.7 or later"),
        ({"version": (10, 4, 1), "version_text": "10.4.1", "flavour": "mariadb"}, "is too old", "10.5 or later"),
        ({"order_commits": "OFF"}, "binlog_order_commits is OFF", "SET GLOBAL binlog_order_commits = ON"),
    ],
)
def test_each_setting_that_loses_data_is_refused_by_name(
    change: dict[str, object], name: str, sql: str
) -> None:
    preflight(GOOD)
    with pytest.raises(SourceError) as caught:
        preflight(replace(GOOD, **change))
    assert name in str(caught.value)
    assert sql in str(caught.value)


def test_all_obstacles_are_listed_at_once() -> None:
    with pytest.raises(SourceError) as caught:
        preflight(replace(GOOD, binlog_format="STATEMENT", row_image="NOBLOB", order_commits="OFF"))
    assert str(caught.value).count("\n  * ") == 3


@pytest.mark.parametrize(("metadata", "words"), [("", "none"), ("NO_LOG", "NO_LOG"), ("MINIMAL", "MINIMAL")])
def test_a_log_that_names_no_columns_is_allowed_and_what_is_better_is_said(
    metadata: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_preflight, "log", structlog.get_logger())  # not one that another test's settings have bound
    with capture_logs() as logged:
        preflight(replace(GOOD, row_metadata=metadata))
    said = of_area(logged, "source")
    assert [(entry["event"], entry["row_metadata"]) for entry in said] == [("source.log_names_no_columns", words)]
    assert ("SET GLOBAL binlog_row_metadata = 'FULL'" in said[0]["advice"]) is bool(metadata)


def test_mysql_5_7_passes(mysql57: Database) -> None:
    with connected(mysql57) as connection:
        facts = server_facts(connection)
        preflight(facts, connection)
        assert facts.has_gtids
        assert current_position(connection, facts).pos > 0
        assert xa_recover(connection) == ()


@pytest.fixture(params=SERVERS)
def poor_user(request: pytest.FixtureRequest) -> Iterator[tuple[Database, str]]:
    server = database(request.param)
    execute(server, "CREATE USER 'poor'@'%' IDENTIFIED BY 'poor'")
    yield server, "poor"
    execute(server, "DROP USER 'poor'@'%'")


def test_missing_privileges_are_named_with_their_grant(poor_user: tuple[Database, str]) -> None:
    server, user = poor_user
    with connected(server, user=user, password=user) as connection:
        facts = replace(server_facts(connection), row_metadata="FULL")
        with pytest.raises(SourceError) as caught:
            preflight(facts, connection)
        words = str(caught.value)
        grants = [line.split(". ", 1)[1] for line in words.splitlines()[1:]]
        assert any("REPLICATION SLAVE" in grant for grant in grants)
        assert any("REPLICATION CLIENT" in grant or "BINLOG MONITOR" in grant for grant in grants)
        with pytest.raises(SourceError):
            current_position(connection)
    execute(server, *(grant.replace("<database>", "mysql") for grant in grants))
    with connected(server, user=user, password=user) as connection:
        preflight(facts, connection)
        assert "REPLICATION SLAVE" in user_grants(connection)["*.*"]
        assert current_position(connection).pos > 0


@pytest.mark.parametrize(
    ("name", "options", "becomes", "setting"),
    [
        ("mariadb114", {}, "SET GLOBAL gtid_slave_pos = '77-9-5'", "log_slave_updates"),
        ("mysql57", {}, "CHANGE MASTER TO MASTER_HOST = 'primary'", "log_slave_updates"),
        ("mysql97", {"log_replica_updates": "OFF"}, "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'primary'", "log_replica_updates"),
    ],
)
def test_a_replica_whose_log_lacks_what_it_replicates_is_refused(
    name: str, options: dict[str, str], becomes: str, setting: str, tmp_path: Path
) -> None:
    """As long as it replicates nothing the same setting is fine."""
    with start_database(name, tmp_path, options) as server, connected(server) as connection:
        facts = server_facts(connection)
        preflight(facts, connection)
        execute(server, becomes)
        with pytest.raises(SourceError) as caught:
            preflight(facts, connection)
    (problem,) = str(caught.value).split("\n  * ")[1:]
    assert problem.startswith(f"the server is a replica and {setting} is OFF: what it replicates is not in its log.")
    assert f"--{setting.replace('_', '-')}, or read from its primary" in problem


@pytest.mark.parametrize("name", SERVERS)
def test_a_prepared_xa_transaction_is_listed_as_xa_commit_takes_it(
    name: str, fresh_database: Callable[[Database], str]
) -> None:
    server = database(name)
    schema = fresh_database(server)
    xid = "'gtrid \x07',X'00ff',9"
    with server.connect(database=schema) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        for statement in (f"XA START {xid}", "INSERT INTO t VALUES (1)", f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)
    with connected(server) as connection:
        wait_until_gone(connection.cursor(), session.thread_id())
        prepared = xa_recover(connection)
        execute(server, *(f"XA ROLLBACK {one}" for one in prepared))
        assert len(prepared) == 1
        assert xa_recover(connection) == ()


@pytest.mark.parametrize("name", SERVERS)
def test_the_position_moves_with_each_transaction(
    name: str, fresh_database: Callable[[Database], str]
) -> None:
    server = database(name)
    schema = fresh_database(server)
    with connected(server) as connection:
        before = current_position(connection, server_facts(connection))
        execute(server, "CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
        after = current_position(connection)
    assert (after.file, after.pos) > (before.file, before.pos)
    assert after.gtid_set != before.gtid_set


@pytest.mark.parametrize("name", SERVERS)
def test_the_available_log_is_reported_in_a_sentence(name: str) -> None:
    with connected(database(name)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        files = [str(row[0]) for row in cursor.fetchall()]  # another test may have purged some
        assert f"{files[0]} to {files[-1]}, " in available_log(connection)


def test_a_signal_table_in_capitals_that_the_log_does_not_have_is_refused() -> None:
    folding = replace(GOOD, lower_case_table_names=1)
    with pytest.raises(SourceError, match=r"source.signal_table: 'Shop.Signal' is 'shop.signal' on this server"):
        require_stored_name(folding, "source.signal_table", "Shop.Signal")
    require_stored_name(folding, "source.signal_table", "shop.signal")
    require_stored_name(folding, "source.signal_table", None)
    require_stored_name(GOOD, "source.signal_table", "Shop.Signal")


@pytest.mark.parametrize("name", ["mysql80", "mariadb114", pytest.param("mysql97", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("options", "silent"), [({"binlog_do_db": "shop"}, ["bank", "post"]), ({"binlog_ignore_db": "bank"}, ["bank"])]
)
def test_databases_that_the_server_does_not_log_are_refused_by_name(
    name: str, options: dict[str, str], silent: list[str], tmp_path: Path
) -> None:
    with start_database(name, tmp_path, options) as server, connected(server) as connection:
        facts = server_facts(connection)
        require_logged(connection, facts, ["shop"])
        with pytest.raises(SourceError, match=rf"{', '.join(silent)} \({next(iter(options))}="):
            require_logged(connection, facts, ["shop", "bank", "post"])


@pytest.mark.parametrize("name", SERVERS)
def test_sessions_are_pinned_whatever_the_server_s_defaults(name: str) -> None:
    with connected(database(name)) as connection, connection.cursor() as cursor:
        isolation = "tx_isolation" if name.startswith("mariadb") else "transaction_isolation"
        cursor.execute(f"SELECT @@autocommit, @@{isolation}, @@sql_mode, @@time_zone, @@character_set_client")
        assert cursor.fetchone() == (1, "REPEATABLE-READ", "", "+00:00", "utf8mb4")


@pytest.mark.parametrize("name", [*SERVERS, "mysql57"])
def test_no_default_of_the_server_leaves_rows_of_ours_out(name: str, fresh_database) -> None:
    server = database(name)
    schema = fresh_database(server)
    is_mariadb = name.startswith("mariadb")
    limits = {"sql_select_limit": 2, "max_join_size": 2, "sql_big_selects": 0, "sql_quote_show_create": 0}
    limits |= {"max_statement_time": 0.3} if is_mariadb else {"max_execution_time": 300}
    with server.connect(database=schema) as other, other.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO t VALUES (1), (2), (3)")
        before = {}
        for variable in limits:
            if variable != "sql_big_selects" or is_mariadb:
                cursor.execute(f"SELECT @@GLOBAL.{variable}")
                before[variable] = cursor.fetchone()[0]
        try:
            for variable in before:
                cursor.execute(f"SET GLOBAL {variable} = {limits[variable]}")
            with connected(server) as connection, connection.cursor() as ours:
                ours.execute(f"SELECT a.id, SLEEP(0.1) FROM {schema}.t AS a, {schema}.t AS b")
                assert len(ours.fetchall()) == 9
                ours.execute(f"SHOW CREATE TABLE {schema}.t")
                assert "`id`" in ours.fetchone()[1]
        finally:
            for variable, value in before.items():
                cursor.execute(f"SET GLOBAL {variable} = %s", (value,))


def test_a_primary_key_that_the_server_made_and_hides_is_seen(mysql97: Database, fresh_database) -> None:
    """The log has it in any case: rows of chunks without it would have other keys."""
    schema = fresh_database(mysql97)
    hides = "SET GLOBAL show_gipk_in_create_table_and_information_schema"
    with mysql97.connect(database=schema) as other, other.cursor() as cursor:
        cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE t (a INT NOT NULL)")
        cursor.execute(f"CREATE USER {schema}@'%' IDENTIFIED BY 'x'")
        cursor.execute(f"GRANT SELECT ON {schema}.* TO {schema}@'%'")
        cursor.execute(f"{hides} = OFF")
        try:
            with closing(connect(ServerAccess.of(settings_of(mysql97, user=schema, password="x")))) as connection:
                table = read_table_schema(connection, schema, "t")
        finally:
            cursor.execute(f"{hides} = ON")
            cursor.execute(f"DROP USER {schema}@'%'")
    assert table is not None
    assert table.primary_key == ("my_row_id",)


def test_versions_and_flavours_are_reported_from_the_text() -> None:
    assert version_of("8.0.15") == (8, 0, 15)
    assert version_of("5.5.5-10.11.18-MariaDB-log") == (10, 11, 18)
    assert version_of("9.7.4-2") == (9, 7, 4)
    assert flavour_of("11.8.6-MariaDB-0+deb13u1") == "mariadb"
    assert flavour_of("8.0.mysql_aurora.3.05.2") == "mysql"
    with pytest.raises(SourceError):
        version_of("unknown")


def test_the_password_comes_from_its_file(mysql80: Database, tmp_path: pytest.TempPathFactory) -> None:
    path = f"{tmp_path}/password"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(mysql80.password + "\n")
    settings = settings_of(mysql80, password="", password_file=path)
    assert ServerAccess.of(settings).secret() == mysql80.password
    connect(ServerAccess.of(settings)).close()
    with pytest.raises(SourceError, match=r"source\.password_file: cannot read"):
        ServerAccess.of(settings_of(mysql80, password_file=path + "x")).secret()


@pytest.mark.parametrize(
    ("grant", "table"),
    [
        ("GRANT SELECT ON `my.db`.* TO `u`@`%`", ("my.db", "t")),
        ("GRANT SELECT ON `my`.`d.b` TO `u`@`%`", ("my", "d.b")),
        ("GRANT SELECT, INSERT (`a`, `b)`) ON `a TO b ON c`.`t``x` TO `u`@`%`", ("a TO b ON c", "t`x")),
        ("GRANT SELECT ON db.t TO u", ("db", "t")),
        ("GRANT SELECT ON *.* TO `u`@`%`", ("any", "t")),
    ],
)
def test_a_grant_is_of_the_table_whose_names_it_has_in_backticks(grant: str, table: tuple[str, str]) -> None:
    grants = grants_of([grant, "GRANT EXECUTE ON PROCEDURE `my.db`.`t` TO `u`@`%`"])
    assert "SELECT" in privileges_on(grants, *table)
    assert "EXECUTE" not in privileges_on(grants, "my.db", "t")
    if table[0] != "any":
        assert not privileges_on(grants, "my", "db.t")
        assert not privileges_on(grants, "my.d", "b")
