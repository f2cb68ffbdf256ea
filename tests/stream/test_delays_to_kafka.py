"""The delays that the producer notes, beside what a consumer sees."""

from __future__ import annotations

import json
import threading
import time
import uuid
from bisect import bisect_left
from typing import Self

from confluent_kafka import Consumer

from schemas.delay_histogram import BOUNDS_S
from tests.support.producers import Source, running
from tidemark.api.observe import Observer
from tidemark.commands.run import run_producer
from tidemark.status.delay_status import DelayStatus
from tidemark.status.status_tree import Status

CHANGES = 60


class Seen:
    """A `read_committed` consumer of a topic, and when it got the record of each id."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.at: dict[int, float] = {}
        self._stop = threading.Event()
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
                "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5,
            }
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._consumer.subscribe([self._topic])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error() and message.value():
                self.at.setdefault(json.loads(message.value())["after"]["id"], time.time())


def test_half_of_the_changes_took_as_long_as_a_consumer_saw(mysql: Source) -> None:
    """The bounds of both differ by one at most: the consumer is asked a moment later."""
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings()) as run, Seen(mysql.bootstrap_servers, f"{mysql.name}.{mysql.schema}.t") as seen:
        mysql.execute("INSERT INTO t VALUES (-1)")
        run.until(lambda: -1 in seen.at, "the consumer follows")
        done: dict[int, float] = {}
        for number in range(CHANGES):
            mysql.execute(f"INSERT INTO t VALUES ({number})")
            done[number] = time.time()
            time.sleep(0.03)
        run.caught_up(mysql)
        run.until(lambda: done.keys() <= seen.at.keys(), "the consumer has all")
        delays = run.producer.reader.progress.delays.tables[mysql.schema, "t"]
        assert CHANGES / 2 <= delays.total.count <= CHANGES + 1
        assert not delays.in_seconds
        noted = delays.total.at_most(0.5)
        waits = sorted(seen.at[number] - at for number, at in done.items())
        assert noted is not None
        assert abs(BOUNDS_S.index(noted) - bisect_left(BOUNDS_S, waits[CHANGES // 2])) <= 1, (delays.total, waits)


def test_a_log_that_is_caught_up_with_shows_the_true_delay_of_a_large_transaction(mysql: Source) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings()) as run:
        run.caught_up(mysql)
    mysql.execute("INSERT INTO t WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i FROM n")
    time.sleep(1.2)
    with running(mysql.settings()) as run:
        run.caught_up(mysql)
        run.until(lambda: (mysql.schema, "t") in run.producer.reader.progress.delays.tables, "its delay is counted")
        delays = run.producer.reader.progress.delays.tables[mysql.schema, "t"].total
        assert sum(count for bound, count in zip(BOUNDS_S, delays.counts, strict=False) if bound <= 1.0) == 0


def test_mariadb_has_whole_seconds_and_the_status_says_so(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mariadb.settings()) as run:
        mariadb.execute("INSERT INTO t VALUES (1)")
        run.caught_up(mariadb)
        run.until(lambda: (mariadb.schema, "t") in run.producer.reader.progress.delays.tables, "its delay is counted")
        assert run.producer.reader.progress.delays.tables[mariadb.schema, "t"].recent.in_seconds


def to_kafka(status: Status, source: Source) -> DelayStatus | None:
    """What a status has of table t."""
    return next((status.to_kafka(table) for table in status.tables if table.table == f"{source.schema}.t"), None)


def test_the_status_reads_the_delays_that_the_producer_left_in_kafka(mysql: Source) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    stop = threading.Event()
    producer = threading.Thread(target=run_producer, args=(mysql.settings(), stop, None))
    producer.start()
    try:
        with Observer(mysql.settings()) as observer:
            deadline = time.monotonic() + 120
            while (status := observer.read()).log is None:
                assert time.monotonic() < deadline, status
                time.sleep(0.2)
            mysql.execute("INSERT INTO t VALUES (2)")
            while (found := to_kafka(observer.read(), mysql)) is None:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert not found.unknown
            assert found.p50_s < 60
            stop.set()
            producer.join(120)
            found = to_kafka(observer.settled(), mysql)
            assert found is not None
            assert found.unknown == "the producer does not run"
    finally:
        stop.set()
        producer.join(120)
