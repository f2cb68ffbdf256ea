"""A mirror in a topic, of a real source under load: the merge job is killed, often inside a Kafka transaction, and continues."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.e2e.test_changelog_kills import Ends, source_rows
from tests.e2e.test_many_sinks import answer_of, wait_for
from tests.support.changelogs import folded_in_order, messages
from tests.support.servers import new_database

ROWS = 20_000


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    routes = [{"tables": rf"{database}\.orders", "into": "ods.orders"}]
    sink = {"name": f"stream-{database}", "type": "kafka", "topic": f"{database}-orders", "path": str(tmp_path / "stream")}
    sinks = [{**sink, "mode": "mirror", "routes": routes, "unrouted": "leave_out"}]
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial"}, sinks=sinks)
    with made.connect() as connection:
        create_signal_table(connection)
    made.sql("CREATE TABLE orders (id INT PRIMARY KEY, amount INT)")
    for begin in range(0, ROWS, 5000):
        values = ", ".join(f"({number}, {number})" for number in range(begin, begin + 5000))
        made.sql(f"INSERT INTO orders (id, amount) VALUES {values}")
    return made


@pytest.mark.slow
def test_killed_again_and_again_the_topic_folded_in_its_order_is_the_source(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"{pipeline.database}-orders"
    ends = Ends(pipeline.kafka.bootstrap_servers, topic)
    pipeline.start("run")
    inside = 0
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
    pipeline.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'")
    pipeline.sql("UPDATE orders SET note = 'odd' WHERE id % 101 = 1")
    pipeline.start("merge")
    wait_for(pipeline, capsys, "the changes", f"stream-{pipeline.database}")
    code, out, _ = answer_of(pipeline, capsys, "verify", f"{pipeline.database}.orders")
    assert code == 0, out
    assert pipeline.stop("merge") == 0
    assert inside > 0, "no kill was inside a transaction"
    rows = folded_in_order(messages(pipeline.kafka.bootstrap_servers, topic)).values()
    assert {row["id"]: row["amount"] for row in rows} == source_rows(pipeline)
    assert all(row["note"] == ("odd" if row["id"] % 101 == 1 else "none") for row in rows)
