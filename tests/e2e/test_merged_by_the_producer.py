"""`snapshot.merge: producer`, and a merge job on the same topics: the rows among the changes become the same lake."""

from __future__ import annotations

from collections import Counter

import pytest

from devservers import Database
from schemas.topics import snapshot_topic
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, batch_in_flight, rows_read, spark_section
from tests.e2e.topics import RecordReader
from tests.support.servers import unique_name
from tests.support.topics import read_topic
from tidemark.demo import shop
from tidemark.demo.workload import Workload

ROWS = 4_000
ROWS_PER_S = 300
"""So that the snapshot is not over before all that comes in the middle of it."""


@pytest.mark.parametrize(
    "strategy", ["insert_insert", pytest.param("insert_delete", marks=pytest.mark.slow)]
)
def test_rows_among_the_changes_are_merged_whatever_is_killed_meanwhile(
    strategy: str, mysql80: Database, make_pipeline: MakePipeline
) -> None:
    database = unique_name("among").replace("-", "_")
    with mysql80.connect() as connection:
        shop.create_schema(connection, "mysql", database)
        sizes = shop.load_rows(connection, ROWS, database=database)
    snapshot = {
        "mode": "never",
        "merge": "producer",
        "readers": 1,
        "chunk_rows": 100,
        "max_rows_per_s": ROWS_PER_S,
        "watermarking_strategy": strategy,
    }
    pipeline = make_pipeline(mysql80, database, snapshot=snapshot, spark=spark_section(trigger_s=3))
    pipeline.start("merge", "run")
    pipeline.wait("the producer", lambda status: status.log is not None)
    load = Workload(mysql80.connect, rate=60, sizes=sizes, database=database).start()
    pipeline.request_snapshot()

    pipeline.wait("a part of the snapshot", lambda status: rows_read(status) > 0.1 * ROWS)
    pipeline.kill("run")
    assert pipeline.status().snapshot_running, "the snapshot was over before the kill"
    pipeline.start("run")
    pipeline.wait("more of the snapshot", lambda status: rows_read(status) > 0.2 * ROWS)
    with mysql80.connect() as connection:
        shop.add_column(connection, database)
    load.column_added.set()
    pipeline.wait("a batch in flight", lambda _: batch_in_flight(pipeline))
    pipeline.kill("merge")
    pipeline.start("merge")

    pipeline.wait_for_snapshot(*shop.TABLES)
    counts = load.stop()
    assert counts.deleted > 0
    assert counts.key_changes > 0
    pipeline.wait_for_sink(*shop.TABLES)
    report = pipeline.assert_equal()
    assert report.rows > 0.9 * ROWS
    assert_rows_are_among_the_changes(pipeline, sum(sizes.values()))


def assert_rows_are_among_the_changes(pipeline: Pipeline, rows: int) -> None:
    """They came by the change topics, not by the snapshot topics, which hold markers alone."""
    ops: Counter[str] = Counter()
    reader = RecordReader(pipeline.settings)
    for table in shop.TABLES:
        ops.update(change.op for change in reader.changes(pipeline.database, table))
        topic = snapshot_topic(pipeline.name, pipeline.database, table)
        markers = read_topic(pipeline.kafka.bootstrap_servers, topic)
        assert markers
        assert all("type" in record.value for record in markers), f"{topic} has rows"
    assert ops["r"] > 0.8 * rows, ops
    assert min(ops[op] for op in "cud") > 0, ops
