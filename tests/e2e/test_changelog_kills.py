"""Changelogs in a topic and in files, of a real source under load: the merge job is killed inside a Kafka transaction, and after it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.e2e.test_many_sinks import wait_for
from tests.support.changelogs import events_of_files, events_of_topic, folded
from tests.support.servers import new_database

ROWS = 20_000


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    routes = [{"tables": rf"{database}\.orders", "into": "ods.orders"}]
    sinks = [
        {"name": f"stream-{database}", "type": "kafka", "topic": f"{database}-orders", "path": str(tmp_path / "stream")},
        {"name": "archive", "type": "files", "path": str(tmp_path / "archive")},
    ]
    sinks = [{**one, "mode": "changelog", "routes": routes, "unrouted": "leave_out"} for one in sinks]
    return with_orders(make_pipeline(mysql80, database, snapshot={"mode": "initial"}, sinks=sinks))


def with_orders(pipeline: Pipeline) -> Pipeline:
    """A pipeline whose source has `ROWS` orders."""
    with pipeline.connect() as connection:
        create_signal_table(connection)
    pipeline.sql("CREATE TABLE orders (id INT PRIMARY KEY, amount INT)")
    for begin in range(0, ROWS, 5000):
        values = ", ".join(f"({number}, {number})" for number in range(begin, begin + 5000))
        pipeline.sql(f"INSERT INTO orders (id, amount) VALUES {values}")
    return pipeline


class Ends:
    """The ends of a topic of four partitions, all records and those of committed transactions only."""

    def __init__(self, servers: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._topic = topic

    def of(self, isolation: IsolationLevel) -> int:
        asked = {TopicPartition(self._topic, number): OffsetSpec.latest() for number in range(4)}
        try:
            return sum(one.result().offset for one in self._admin.list_offsets(asked, isolation_level=isolation).values())
        except KafkaException:
            return 0

    @property
    def open(self) -> int:
        return self.of(IsolationLevel.READ_UNCOMMITTED) - self.of(IsolationLevel.READ_COMMITTED)


def kill_inside_transactions(pipeline: Pipeline) -> None:
    """Kill the merge job three times while records of its topic are coming, once at least inside a transaction; change rows."""
    ends, inside = Ends(pipeline.kafka.bootstrap_servers, f"{pipeline.database}-orders"), 0
    for round_number in range(3):
        begun = ends.of(IsolationLevel.READ_UNCOMMITTED)
        pipeline.start("merge")
        deadline = time.monotonic() + PATIENCE_S
        while ends.of(IsolationLevel.READ_UNCOMMITTED) <= begun + 5:
            pipeline.check()
            assert time.monotonic() < deadline
        pipeline.kill("merge")
        pipeline.wait_for_killed()
        inside += ends.open > 0
        pipeline.sql(
            f"UPDATE orders SET amount = amount + 1 WHERE id % 3 = {round_number}", f"DELETE FROM orders WHERE id % 50 = {round_number}"
        )
    assert inside > 0, "no kill was inside a transaction"


def source_rows(pipeline: Pipeline) -> dict[int, int]:
    with pipeline.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, amount FROM orders")
        return dict(cursor.fetchall())


def amounts(events: list[dict[str, Any]]) -> dict[int, int]:
    return {row["id"]: row["amount"] for row in folded(events, ["id"]).values()}


@pytest.mark.slow
def test_killed_inside_a_transaction_each_event_is_there_once_and_the_fold_is_the_source(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = f"{pipeline.database}-orders"
    pipeline.start("run")
    kill_inside_transactions(pipeline)
    pipeline.start("merge")
    wait_for(pipeline, capsys, "the changes", f"stream-{pipeline.database}", "archive")
    assert pipeline.stop("merge") == 0
    expected = source_rows(pipeline)
    streamed, filed = events_of_topic(pipeline.kafka.bootstrap_servers, topic), events_of_files(tmp_path / "archive" / "ods" / "orders")
    for found in (streamed, filed):
        assert amounts(found) == expected
        assert max(Counter((one["_tm_op"], one["_tm_position"], one.get("id")) for one in found).values()) == 1, "nothing is twice"
    assert len(streamed) == len(filed)
