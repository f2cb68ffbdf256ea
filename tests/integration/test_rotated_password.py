"""A password that changes while the producer runs: waited for, reported with a clear error, and read from its file again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devservers import Database, Kafka
from producer.app import run
from schemas.errors import AccessDeniedError
from schemas.settings import Settings
from tests.support.producers import Source
from tests.support.producing import RunningProducer
from tests.support.servers import database, end_connection

USER = "rotating"


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(
    request: pytest.FixtureRequest, kafka: Kafka, fresh_database: Callable[[Database], str]
) -> Iterator[Source]:
    server = database(request.param)
    made = Source(server, fresh_database(server), kafka.bootstrap_servers)
    made.execute(f"CREATE USER {USER} IDENTIFIED BY 'first'", f"GRANT ALL ON *.* TO {USER}")
    made.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    yield made
    made.execute(f"DROP USER {USER}")
    made.connection.close()


def settings_of(source: Source, file: Path) -> Settings:
    return source.settings(user=USER, password="", password_file=str(file))


def end_connections(source: Source) -> None:
    """As a server's restart does, or a network's."""
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (USER,))
        for (number,) in cursor.fetchall():
            end_connection(cursor, number)


def ids(source: Source) -> list[int]:
    return [change.value["after"]["id"] for change in source.changes("t")]


def test_a_password_that_no_longer_holds_is_waited_for_in_words(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    with RunningProducer(settings_of(source, file)) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        source.execute("INSERT INTO t VALUES (1)", f"ALTER USER {USER} IDENTIFIED BY 'second'")
        end_connections(source)
        source.execute("INSERT INTO t VALUES (2)")
        producer.wait_until("it says why it waits", lambda _: any("refuses the user" in why for why in producer.waited))
        file.write_text("second\n")
        producer.wait_until("all is read", lambda _: ids(source) == [1, 2])
        assert "first" not in "".join(producer.waited)


def test_mysql_s_second_password_lets_it_change_without_a_pause(
    kafka: Kafka, fresh_database: Callable[[Database], str], tmp_path: Path
) -> None:
    server = database("mysql80")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    file = tmp_path / "password"
    file.write_text("first")
    source.execute(f"CREATE USER {USER} IDENTIFIED BY 'first'", f"GRANT ALL ON *.* TO {USER}")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    try:
        with RunningProducer(settings_of(source, file)) as producer:
            producer.wait_until("the log is read", lambda start: start.reader is not None)
            source.execute(f"ALTER USER {USER} IDENTIFIED BY 'second' RETAIN CURRENT PASSWORD")
            file.write_text("second")
            source.execute(f"ALTER USER {USER} DISCARD OLD PASSWORD", "INSERT INTO t VALUES (1)")
            end_connections(source)
            source.execute("INSERT INTO t VALUES (2)")
            producer.wait_until("all is read", lambda _: ids(source) == [1, 2])
            assert not [why for why in producer.waited if "refuses" in why]
    finally:
        source.execute(f"DROP USER {USER}")
        source.connection.close()


def test_a_password_that_is_wrong_from_the_start_ends_it(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong")
    with pytest.raises(AccessDeniedError, match=r"refuses the user.*password_file"):
        run(settings_of(source, file))
    file.unlink()
    with pytest.raises(AccessDeniedError, match=r"source\.password_file: cannot read .*No such file"):
        run(settings_of(source, file))
