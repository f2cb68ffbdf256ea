"""`snapshot.via: spark`: the merge job reads the tables from the source itself, under a write load and through kills."""

from __future__ import annotations

from devservers import Database
from schemas.topics import snapshot_topic
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, batch_in_flight, rows_read, spark_section
from tests.support.servers import unique_name
from tests.support.topics import read_topic
from tidemark.demo import shop
from tidemark.demo.workload import Workload

ROWS = 3_000


def test_tables_are_loaded_straight_into_the_lake_whatever_is_killed_meanwhile(
    mysql80: Database, make_pipeline: MakePipeline
) -> None:
    database = unique_name("loaded").replace("-", "_")
    with mysql80.connect() as connection:
        shop.create_schema(connection, "mysql", database)
        sizes = shop.load_rows(connection, ROWS, database=database)
    snapshot = {"mode": "never", "via": "spark", "load_rows": 200, "loads": 6, "chunk_rows": 100}
    pipeline = make_pipeline(mysql80, database, snapshot=snapshot, spark=spark_section(trigger_s=1))
    pipeline.start("merge", "run")
    pipeline.wait("the producer", lambda status: status.log is not None)
    load = Workload(mysql80.connect, rate=40, sizes=sizes, database=database).start()
    pipeline.request_snapshot()

    pipeline.wait("a part of the snapshot", lambda status: rows_read(status) > 0.05 * ROWS)
    pipeline.kill("run")
    assert pipeline.status().snapshot_running, "the snapshot was over before the kill"
    pipeline.start("run")
    pipeline.wait("a batch in flight", lambda _: batch_in_flight(pipeline))
    pipeline.kill("merge")
    pipeline.start("merge")

    pipeline.wait_for_snapshot(*shop.TABLES)
    counts = load.stop()
    assert counts.deleted > 0
    pipeline.wait_for_sink(*shop.TABLES)
    report = pipeline.assert_equal()
    assert report.rows > 0.9 * ROWS
    assert_rows_were_loaded(pipeline)


def assert_rows_were_loaded(pipeline: Pipeline) -> None:
    """No snapshot topic has rows, and every window was closed as loaded."""
    closed = 0
    for table in shop.TABLES:
        topic = snapshot_topic(pipeline.name, pipeline.database, table)
        records = [record.value for record in read_topic(pipeline.kafka.bootstrap_servers, topic)]
        assert records
        assert all("type" in value for value in records), f"{topic} has rows"
        windows = [value for value in records if value["type"] == "close"]
        assert all(value["loaded"] for value in windows), windows
        closed += len(windows)
    assert closed >= len(shop.TABLES)
