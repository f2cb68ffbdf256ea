"""A first start at the place the settings name: by GTIDs, by file and position; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from producer.app import Producer
from schemas import topics
from schemas.errors import ConfigError, SourceError
from schemas.settings import StartAtSettings
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import RunningProducer, log_is_at, settings_for
from tests.support.servers import database, unique_name
from tests.support.topics import read_topic


def gtids(cursor: Any, server: Any) -> str:
    cursor.execute("SELECT @@gtid_current_pos" if server.flavour == "mariadb" else "SELECT @@gtid_executed")
    return str(cursor.fetchone()[0])


def settings(server: Any, kafka: Any, name: str, schema: str, **start_at: Any) -> Any:
    made = settings_for(server, kafka, name, rf"{schema}\..*", snapshot={"mode": "never"})
    return replace(made, source=replace(made.source, signal_table=None, start_at=StartAtSettings(**start_at)))


@pytest.mark.parametrize("by", ["gtids", "place"])
@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_the_first_start_publishes_what_stands_behind_the_place_and_nothing_else(
    name: str, by: str, kafka: Any, fresh_database: Callable[[Any], str]
) -> None:
    server = database(name)
    schema, prefix = fresh_database(server), unique_name("start")
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
        place = end_of_log(user)
        where = {"gtids": gtids(cursor, server)} if by == "gtids" else {"file": place.path.name, "pos": place.offset}
        cursor.execute(f"INSERT INTO {schema}.t VALUES (2)")
        cursor.execute(f"INSERT INTO {schema}.t VALUES (3)")
        with RunningProducer(settings(server, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read", partial(log_is_at, place=end_of_log(user)))
        # A second start continues where the first ended, whatever the settings say.
        cursor.execute(f"INSERT INTO {schema}.t VALUES (4)")
        with RunningProducer(settings(server, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read again", partial(log_is_at, place=end_of_log(user)))
    records = read_topic(kafka.bootstrap_servers, topics.change_topic(prefix, schema, "t"))
    assert [record.value["payload"]["after"]["id"] for record in records] == [2, 3, 4]


def test_at_the_end_of_the_log_there_is_nothing_to_look_for(
    kafka: Any, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    schema, prefix = fresh_database(mysql80), unique_name("start")
    with mysql80.connect() as user, user.cursor() as cursor:
        where = {"gtids": gtids(cursor, mysql80)}
        with RunningProducer(settings(mysql80, kafka, prefix, schema, **where)) as producer:
            producer.wait_until("the log is read", partial(log_is_at, place=end_of_log(user)))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"gtids": "00000000-0000-0000-0000-000000000001:1-5"}, "has not executed all of"),
        ({"file": "binlog.999999", "pos": 4}, "is not in the log. The server has"),
        ({"gtids": "nonsense"}, "source.start_at.gtids"),
    ],
)
def test_a_place_the_log_does_not_have_is_refused_in_words(
    where: dict[str, Any], reason: str, kafka: Any, mysql80: Any, fresh_database: Callable[[Any], str]
) -> None:
    made = settings(mysql80, kafka, unique_name("start"), fresh_database(mysql80), **where)
    with pytest.raises((SourceError, ConfigError), match=reason), Producer(made):
        pass
