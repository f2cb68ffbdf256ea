"""`sources[].start` on real servers: a task begins behind GTIDs, at a position, or at a time, and applies exactly what follows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from schemas.topics import commits_topic
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, drop_database, new_database
from tests.support.topics import read_topic

ROWS = 24


class Moment(NamedTuple):
    """A moment between two transactions of the source: `rows` are there, the log ends at `position`, its transactions are `gtid`."""

    rows: int
    position: str
    gtid: str
    time: str


class Written(NamedTuple):
    """A source with a log, and moments in it."""

    source: Source
    registry: str
    moments: list[Moment]

    def task(self, name: str, **start: Any):
        server = database("mariadb114" if self.source.server.name == "mysql80" else "mysql80")
        sources = [{"name": self.source.name, "exclude_tables": [".*tidemark_signal"], "start": start}]
        return task_of(self.source, self.registry, server, task=f"{name}-{self.source.name}", mode="incremental", sources=sources), server


def moment(source: Source, rows: int) -> Moment:
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, position, *_ = cursor.fetchone()
        cursor.execute("SELECT @@gtid_binlog_pos" if source.server.name == "mariadb114" else "SELECT @@global.gtid_executed")
        gtid = cursor.fetchone()[0].replace("\n", "")
        cursor.execute("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%f+00:00')")
        return Moment(rows, f"{file}:{position}", gtid, cursor.fetchone()[0])


@pytest.fixture(scope="module", params=["mysql80", "mariadb114"])
def written(request, kafka, registry) -> Iterator[Written]:
    """Rows 1 to 24, each in a transaction with an update of the one before; table `later` is created behind row 12."""
    server = database(request.param)
    source = Source(server, new_database(server), kafka.bootstrap_servers)
    moments: list[Moment] = []
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)")
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        run.caught_up(source)
        time.sleep(1.2)
        for number in range(1, ROWS + 1):
            source.execute("BEGIN", f"INSERT INTO a VALUES ({number}, 0)", f"UPDATE a SET v = v + 1 WHERE id = {number - 1}", "COMMIT")
            if number == ROWS // 2:
                source.execute("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (1)")
            if not number % 6:
                if server.name == "mariadb114":
                    time.sleep(1.1)  # its log has whole seconds
                moments.append(moment(source, number))
                time.sleep(1.1 if server.name == "mariadb114" else 0.02)
            elif number % 6 == 3:
                run.caught_up(source)
        run.caught_up(source)
        time.sleep(1)
    yield Written(source, registry.url, moments)
    source.connection.close()
    drop_database(server, source.schema)


@pytest.mark.parametrize("kind", ["position", "gtid", "time"])
def test_exactly_the_transactions_behind_a_start_are_applied(written, kind):
    for one in written.moments[:-1]:
        task, server = written.task(f"{kind}-{one.rows}", **{kind: getattr(one, kind)})
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {written.source.schema}")
            cursor.execute(f"CREATE TABLE {written.source.schema}.a (id INT PRIMARY KEY, v INT NOT NULL)")
            values = ",".join(f"({number}, {int(number < one.rows)})" for number in range(1, one.rows + 1))
            cursor.execute(f"INSERT INTO {written.source.schema}.a VALUES {values}")
            if one.rows >= ROWS // 2:
                cursor.execute(f"CREATE TABLE {written.source.schema}.later (id INT PRIMARY KEY)")
                cursor.execute(f"INSERT INTO {written.source.schema}.later VALUES (1)")
        catch_up(task)
        for table in ("a", "later"):
            assert rows_of(server, written.source.schema, table) == rows_of(written.source.server, written.source.schema, table)
        other, _ = written.task(f"{kind}-{one.rows}", time="2001-01-01T00:00:00Z")
        with capture_logs() as logs:
            catch_up(other)
        assert "task.start_passed" in [entry["event"] for entry in logs], "the state counts"
        drop_database(server, written.source.schema)


def test_starts_that_kafka_does_not_have_are_refused(written):
    first, *_, last = written.moments
    file, offset = last.position.split(":")
    is_mariadb = written.source.server.name == "mariadb114"
    uuid = first.gtid.split(",")[-1].split(":")[0]
    executed = [int(part) for part in first.gtid.rpartition(":" if not is_mariadb else "-")[2].split("-")]
    refused = {
        "beyond": ({"position": f"{file}:{int(offset) + 1_000_000}"}, "is behind the end of the changes in Kafka"),
        "early": ({"position": f"{file}:4"}, "Kafka has the changes from .* on only"),
        "future": ({"time": "2101-01-01T00:00:00Z"}, "the source has not promised that time yet"),
        "past": ({"time": "2001-01-01T00:00:00Z"}, "Kafka does not have all changes since then"),
        "all": ({"gtid": last.gtid}, "Kafka has no transaction behind it"),
        "none": ({"gtid": "0-1-1" if is_mariadb else f"{uuid}:1"}, "Kafka has no transaction of it"),
    }
    if not is_mariadb:
        gap = f"{uuid}:1-{executed[-1] - 2}:{executed[-1]}"
        refused["gap"] = {"gtid": gap}, "is not the beginning of the log: it has .* and lacks the transaction at"
        refused["uuid"] = {"gtid": "nobody:1-5"}, "is not a set of GTIDs"
    for name, (start, message) in refused.items():
        task, _ = written.task(name, **start)
        with pytest.raises(ConfigError, match=message):
            catch_up(task)
    admin = AdminClient({"bootstrap.servers": written.source.bootstrap_servers})
    topic = commits_topic(written.source.name)
    newest = read_topic(written.source.bootstrap_servers, topic, raw=True)[-1].offset
    ends = admin.delete_records([TopicPartition(topic, 0, newest)])
    for end in ends.values():
        end.result(60)
    for kind in ("position", "time", "gtid"):
        task, _ = written.task(f"removed-{kind}", **{kind: getattr(first, kind)})
        with pytest.raises(ConfigError, match=r"on only: begin there, or load|take a later time, or load|may be missing, so load"):
            catch_up(task)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"start": {"gtid": "0-1-5", "time": "2026-01-01T00:00:00Z"}}, "sources.0.start: gtid and time exclude each other; keep one"),
        ({"start": {"gtid": "0-1-5"}, "mode": "all"}, "sources.0.start.gtid: goes with mode: incremental"),
        ({"start": {"position": "binlog.7"}}, "sources.0.start.position: 'binlog.7' is not a file and a position"),
        ({"start": {"time": "2026-01-01"}}, r"sources.0.start.time: '2026-01-01' is not a time \(it has no time zone\)"),
    ],
)
def test_wrong_starts_are_refused(more, message, source, registry):
    start = more.pop("start")
    with pytest.raises(ConfigError, match=message):
        task_of(source, registry.url, source.server, sources=[{"name": "shop", "start": start}], **{"mode": "incremental", **more})
