"""A mirror in a topic, of a real source under load: the merge job is killed, often inside a Kafka transaction, and continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline
from tests.e2e.test_changelog_kills import kill_inside_transactions, source_rows, with_orders
from tests.e2e.test_many_sinks import answer_of
from tests.support.changelogs import folded_in_order, messages
from tests.support.servers import new_database


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    routes = [{"tables": rf"{database}\.orders", "into": "ods.orders"}]
    sink = {"name": f"stream-{database}", "type": "kafka", "topic": f"{database}-orders", "path": str(tmp_path / "stream")}
    sinks = [{**sink, "mode": "mirror", "routes": routes, "unrouted": "leave_out"}]
    return with_orders(make_pipeline(mysql80, database, snapshot={"mode": "initial"}, sinks=sinks))


@pytest.mark.slow
def test_killed_again_and_again_the_topic_folded_in_its_order_is_the_source(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"{pipeline.database}-orders"
    pipeline.start("run")
    kill_inside_transactions(pipeline)
    pipeline.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none'")
    pipeline.sql("UPDATE orders SET note = 'odd' WHERE id % 101 = 1")
    pipeline.start("merge")
    pipeline.wait_for_sink("orders")
    code, out, _ = answer_of(pipeline, capsys, "verify", f"{pipeline.database}.orders")
    assert code == 0, out
    assert pipeline.stop("merge") == 0
    rows = folded_in_order(messages(pipeline.kafka.bootstrap_servers, topic)).values()
    assert {row["id"]: row["amount"] for row in rows} == source_rows(pipeline)
    assert all(row["note"] == ("odd" if row["id"] % 101 == 1 else "none") for row in rows)
