"""kill -9 of both processes and an ALTER TABLE, in the middle of a snapshot under load; at its end, `tidemark verify` finds planted differences."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from devservers import Database
from spark_jobs.sinks.delta.arrow_put import writer_properties
from tests.e2e.binlog import logged_changes
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, batch_in_flight, rows_read, spark_section
from tests.e2e.topics import RecordReader, plain
from tests.support.servers import unique_name
from tidemark.demo import shop
from tidemark.demo.workload import Workload

# mysql-replication calls PyMySQL by its old names.
pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")

ROWS = 16_000
ROWS_PER_S = 1_000
"""So that the snapshot is not over before all that comes in the middle of it."""
SEED = 31
KEYS = {
    "customers": ("id",),
    "orders": ("id",),
    "order_lines": ("order_id", "line"),
    "products": ("code",),
}
# Columns that distinguish two versions of a row, and mean the same in Avro and in mysql-replication.
IDENTIFIED_BY = {
    "customers": ("credit", "note"),
    "orders": ("status", "total"),
    "order_lines": ("quantity", "price"),
    "products": ("name", "stock"),
}


@pytest.mark.timeout(1800)  # minutes of work on a quiet machine
def test_killed_in_the_middle_nothing_is_lost_and_nothing_is_doubled(
    mysql80: Database, make_pipeline: MakePipeline
) -> None:
    database = unique_name("crash").replace("-", "_")
    with mysql80.connect() as connection, connection.cursor() as cursor:
        shop.create_schema(connection, "mysql", database)
        sizes = shop.load_rows(connection, ROWS, seed=SEED, database=database)
        cursor.execute("SHOW MASTER STATUS")
        start = (cursor.fetchone() or ("", 0))[:2]
    pipeline = make_pipeline(
        mysql80,
        database,
        snapshot={"mode": "never", "readers": 2, "chunk_rows": 400, "max_rows_per_s": ROWS_PER_S},
        spark=spark_section(trigger_s=3),
    )
    pipeline.start("merge", "run")
    pipeline.wait("the producer", lambda status: status.log is not None)
    load = Workload(mysql80.connect, seed=SEED, rate=60, sizes=sizes, database=database).start()
    pipeline.request_snapshot()

    pipeline.wait("a part of the snapshot", lambda status: rows_read(status) > 0.15 * ROWS)
    pipeline.kill("run")
    assert pipeline.status().snapshot_running, "the snapshot was over before the kill"
    pipeline.start("run")

    pipeline.wait("more of the snapshot", lambda status: rows_read(status) > 0.4 * ROWS)
    with mysql80.connect() as connection:
        shop.add_column(connection, database)
    load.column_added.set()
    assert pipeline.status().snapshot_running, "the snapshot was over before the ALTER"

    pipeline.wait("a batch in flight", lambda _: batch_in_flight(pipeline))
    pipeline.kill("merge")
    pipeline.start("merge")

    pipeline.wait_for_snapshot(*shop.TABLES)
    counts = load.stop()
    assert counts.changes > 0
    pipeline.wait_for_sink(*shop.TABLES)
    report = pipeline.assert_equal()
    assert report.rows > 0.9 * ROWS

    assert_each_change_once(pipeline, start)
    assert_planted_differences_are_found(pipeline)


def assert_each_change_once(pipeline: Pipeline, start: tuple[Any, ...]) -> None:
    """The change topics, read as any consumer does, against the log: same changes per key, same order."""
    pipeline.wait_for_log()
    logged: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for change in logged_changes(pipeline.server, pipeline.database, KEYS, start):
        reported = change.after and tuple(plain(change.after[name]) for name in IDENTIFIED_BY[change.table])
        logged[change.table, *map(plain, change.key)].append((change.op, reported))
    published: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    reader = RecordReader(pipeline.settings)
    for table, names in KEYS.items():
        changes = reader.changes(pipeline.database, table)
        assert changes, table
        positions = {(change.op, change.position) for change in changes}
        assert len(positions) == len(changes), f"{table}: {len(changes) - len(positions)} changes came twice"
        for change in changes:
            assert change.key is not None
            reported = change.after and tuple(plain(change.after[name]) for name in IDENTIFIED_BY[table])
            published[table, *(plain(change.key[name]) for name in names)].append((change.op, reported))
    wrong = {
        key: (logged.get(key), published.get(key))
        for key in logged | published
        if logged.get(key) != published.get(key)
    }
    assert not wrong, f"{len(wrong)} of {len(logged)} keys: {dict(list(wrong.items())[:3])}"


def assert_planted_differences_are_found(pipeline: Pipeline) -> None:
    """`tidemark verify` on the lake as the merge job wrote it, with three rows spoiled."""
    lines = DeltaTable(pipeline.settings.sink.table_path(pipeline.database, "order_lines"))
    rows = lines.to_pyarrow_table().slice(100, 3)
    keys = [(int(row["order_id"]), row["line"]) for row in rows.to_pylist()]
    where = [f"order_id = {order} AND line = {line}" for order, line in keys]
    properties = writer_properties(rows.schema)  # without them delta-rs writes statistics that hide large numbers from the next line
    lines.update(updates={"quantity": "-77"}, predicate=where[0], writer_properties=properties)
    assert lines.delete(where[1], writer_properties=properties)["num_deleted_rows"] == 1
    index = rows.schema.get_field_index("line")
    extra = rows.slice(2, 1).set_column(index, "line", pa.array([30_000], rows.schema.field("line").type))
    write_deltalake(lines, extra, mode="append", writer_properties=properties)
    process = pipeline.spawn("verify", pipeline.log_path("verify"))
    assert process.wait(300)
    said = pipeline.log_path("verify").read_text(encoding="utf-8")
    assert process.status == 1, said
    key = "order_id={}, line={}"
    assert f"{key.format(*keys[0])}: value differs: quantity: source " in said
    assert f"{key.format(*keys[1])}: missing in the sink" in said
    assert f"{key.format(keys[2][0], 30_000)}: only in the sink" in said
    assert "could not compare" not in said
