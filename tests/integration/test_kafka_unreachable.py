"""What a producer that waits for Kafka continues to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from devservers import Database
from producer.source.log_facts import log_sizes
from producer.source.retention import RetentionWatch
from tests.support.own_broker import own_kafka
from tests.support.producers import Source
from tests.support.producing import RunningProducer
from tests.support.servers import database


def test_the_source_s_log_is_looked_at_while_kafka_is_unreachable(
    fresh_database: Callable[[Database], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not read meanwhile may be purged, and then nobody else would say so in time."""
    monkeypatch.setattr("kafkaio.transactional_writer.CALL_TIMEOUT_S", 5.0)
    monkeypatch.setattr(RetentionWatch.__init__, "__defaults__", (1.0,))
    server = database("mysql80")
    with own_kafka(tmp_path) as broker:
        source = Source(server, fresh_database(server), broker.bootstrap_servers)
        source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        with RunningProducer(source.settings()) as producer:
            producer.wait_until("a start that is written down", lambda start: start.reader.progress.checkpoints > 0)
            broker.kill()
            source.execute("INSERT INTO t VALUES (1)")
            producer.wait_until("it waits", lambda _: bool(producer.waited))
            source.execute("FLUSH BINARY LOGS")
            newest = list(log_sizes(source.connection))[-1]
            producer.wait_until(
                "it looks",
                lambda start: start.retention.latest is not None and start.retention.latest.newest_file == newest,
            )
            broker.restart()
            producer.wait_until("all is read", lambda _: len(source.changes("t")) == 1)
        source.connection.close()
