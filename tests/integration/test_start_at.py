"""A first start where the settings say: by GTIDs, file and position, time, an end of the log; what is skipped, and refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest

from producer.app import Producer
from schemas import topics
from schemas.errors import ConfigError, SourceError
from schemas.settings import StartAtSettings
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import RunningProducer, log_is_at, settings_for
from tests.support.servers import database, end_dumps, unique_name
from tests.support.topics import read_topic
from tidemark.api.observe import Observer

CASES = [
    *((name, by) for name in ("mysql80", "mariadb114") for by in ("gtids", "file", "timestamp", "earliest")),
    ("mysql80", "latest"),
    *(pytest.param("mysql57", by, marks=pytest.mark.slow) for by in ("file", "timestamp", "earliest")),
    *(pytest.param("mysql97", by, marks=pytest.mark.slow) for by in ("gtids", "timestamp", "earliest")),
]


def gtids(cursor: Any, server: Any) -> str:
    cursor.execute("SELECT @@gtid_current_pos" if server.flavour == "mariadb" else "SELECT @@gtid_executed")
    return str(cursor.fetchone()[0])


def settings(server: Any, kafka: Any, name: str, schema: str, **start_at: Any) -> Any:
    made = settings_for(server, kafka, name, rf"{schema}\..*", snapshot={"mode": "never"})
    return replace(made, source=replace(made.source, signal_table=None, start_at=StartAtSettings(**start_at)))


def start_here(user: Any, server: Any, by: str) -> dict[str, Any]:
    """Return settings that name the end of the log as it is now; with `earliest` nothing before it is in the log any more."""
    with user.cursor() as cursor:
        if by == "gtids":
            return {"gtids": gtids(cursor, server)}
        if by == "timestamp":
            time.sleep(0.1 if server.name.startswith("mysql8") else 2.1)  # the others note whole seconds
            cursor.execute("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')")
            return {"timestamp": str(cursor.fetchone()[0])}
        if by == "earliest":
            purge_log(server, user)
        position = end_of_log(user)
        return {"file": position.path.name, "pos": position.offset} if by == "file" else {"position": by}


def purge_log(server: Any, user: Any) -> None:
    """Until the newest log file is the only one."""
    end_dumps(server)
    with user.cursor() as cursor:
        if server.flavour == "mariadb":
            cursor.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
        cursor.execute("FLUSH BINARY LOGS")
        deadline, files = time.monotonic() + 60, [()] * 2
        while len(files) > 1:
            assert time.monotonic() < deadline, files
            cursor.execute(f"PURGE BINARY LOGS TO '{end_of_log(user).path.name}'")
            cursor.execute("SHOW BINARY LOGS")
            files = list(cursor.fetchall())


def published(kafka: Any, prefix: str, schema: str, field: str = "id") -> list[Any]:
    records = read_topic(kafka.bootstrap_servers, topics.change_topic(prefix, schema, "t"))
    return [record.value["payload"]["after"][field] for record in records]


@pytest.mark.parametrize(("name", "by"), CASES)
def test_the_first_start_publishes_what_is_after_the_position_and_nothing_else(
    name: str, by: str, kafka: Any, fresh_database: Callable[[Any], str]
) -> None:
    server = database(name)
    schema, prefix = fresh_database(server), unique_name("start")
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
        where = start_here(user, server, by)
        cursor.execute(f"INSERT INTO {schema}.t VALUES (2)")
        cursor.execute(f"ALTER TABLE {schema}.t ADD v VARCHAR(9) DEFAULT 'x' FIRST")
        cursor.execute(f"INSERT INTO {schema}.t (id) VALUES (3)")
        with RunningProducer(settings(server, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read", partial(log_is_at, position=end_of_log(user)))
        if by not in ("timestamp", "latest", "gtids"):
            assert published(kafka, prefix, schema) == [2, 3]
            return
        # A second start continues where the first ended, whatever the settings say by then.
        cursor.execute(f"INSERT INTO {schema}.t (id) VALUES (4)")
        if by == "timestamp":
            cursor.execute("SELECT DATE_FORMAT(UTC_TIMESTAMP(6) + INTERVAL 10 MINUTE, '%Y-%m-%dT%H:%i:%sZ')")
            where = {"timestamp": str(cursor.fetchone()[0])}
        with RunningProducer(settings(server, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read again", partial(log_is_at, position=end_of_log(user)))
    assert published(kafka, prefix, schema) == ([4] if by == "latest" else [2, 3, 4])


def test_where_the_first_start_began_is_durable_before_the_first_event(
    kafka: Any, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    """Else one that is killed before its first event would begin at a later end of the log, and lose what came in between."""
    schema, prefix = fresh_database(mysql80), unique_name("start")
    made = settings(mysql80, kafka, prefix, schema, position="latest")
    with mysql80.connect() as user, user.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        end = end_of_log(user)
        with Producer(made) as producer:
            stop = Event()
            thread = Thread(target=producer.run, args=(stop,))
            thread.start()
            deadline = time.monotonic() + 60
            while not producer.reader.progress.checkpoints:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with Observer(made) as observer:
                while (found := observer.read().log) is None:  # Kafka answers before a transaction can be read
                    assert time.monotonic() < deadline
            stop.set()
            thread.join()
    assert (found.file, found.pos) == (end.path.name, end.offset)


SKIPS = [
    ("Write_rows", 1, 0, [4, 5, 6, 7]),
    ("Write_rows", 1, 2, [6, 7]),
    ("Write_rows", 0, 1, [2, 3, 4, 5, 6, 7]),
    ("Write_rows", 2, 9, [7]),
    ("Xid", 1, 1, []),
    (None, 0, 2, [3, 4, 5, 6, 7]),
]


@pytest.mark.parametrize(
    "name", ["mysql80", "mariadb114", *(pytest.param(one, marks=pytest.mark.slow) for one in ("mysql57", "mysql97"))]
)
def test_events_and_rows_after_the_position_are_skipped_and_none_besides(
    name: str, kafka: Any, fresh_database: Callable[[Any], str]
) -> None:
    """Two transactions; the events are those that the server itself lists."""
    server = database(name)
    schema = fresh_database(server)
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        where = start_here(user, server, "file")
        cursor.execute("BEGIN")
        for rows in ("(1), (2), (3)", "(4), (5)", "(6)"):
            cursor.execute(f"INSERT INTO {schema}.t VALUES {rows}")
        cursor.execute("COMMIT")
        cursor.execute(f"INSERT INTO {schema}.t VALUES (7)")
        end = end_of_log(user)
        cursor.execute("SHOW BINLOG EVENTS IN %s FROM %s", (where["file"], where["pos"]))
        kinds = [row[2] for row in cursor.fetchall()]
        for number, (kind, skipped, rows, expected) in enumerate(SKIPS):
            found = [0, *(index for index, one in enumerate(kinds) if kind and one.startswith(kind))]
            events = found[1] + 1 if kind and skipped == 1 else found[3] if skipped == 2 else found[1] if kind else 0
            prefix = unique_name(f"skip{number}")
            made = settings(server, kafka, prefix, schema, **where, skip_events=events, skip_rows=rows)
            for _ in range(2 if events and rows else 1):  # a restart skips nothing more
                with RunningProducer(made) as producer:
                    producer.wait_until("the log is read", partial(log_is_at, position=end))
            assert published(kafka, prefix, schema) == expected, (kind, skipped, rows)


def test_at_the_end_of_the_log_there_is_nothing_to_look_for(
    kafka: Any, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    schema, prefix = fresh_database(mysql80), unique_name("start")
    with mysql80.connect() as user, user.cursor() as cursor:
        where = {"gtids": gtids(cursor, mysql80)}
        with RunningProducer(settings(mysql80, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read", partial(log_is_at, position=end_of_log(user)))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"gtids": "00000000-0000-0000-0000-000000000001:1-5"}, "has not executed all of"),
        ({"file": "binlog.999999", "pos": 4}, "is not in the log. The server has"),
        ({"gtids": "nonsense"}, "source.start_at.gtids"),
        ({"timestamp": "2020-01-01T00:00:00+02:00"}, "no longer has its log of 2020-01-01.* was begun .*position: earliest"),
        ({"timestamp": "2120-01-01T00:00:00Z"}, "is in the future by the server's clock"),
        ({"skip_events": 100_000}, r"of the events to skip after .* are not in the log yet, which ends at"),
        ({"skip_rows": 1}, r"the rows to skip after .* are not in the log yet"),
    ],
)
def test_a_position_the_log_does_not_have_is_refused_with_a_clear_error(
    where: dict[str, Any], reason: str, kafka: Any, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    schema = fresh_database(mysql80)
    if "skip_events" in where or "skip_rows" in where:
        with mysql80.connect() as user:
            where |= start_here(user, mysql80, "file")
    made = settings(mysql80, kafka, unique_name("start"), schema, **where)
    with pytest.raises((SourceError, ConfigError), match=reason), Producer(made):
        pass
