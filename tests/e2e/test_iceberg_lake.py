"""One producer, a Delta sink and an Iceberg sink, the JVM killed in between: Delta equals the source, and Iceberg equals Delta."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.e2e.test_operations import jvm_of
from tests.support.iceberg_tables import open_iceberg
from tests.support.servers import new_database
from tests.verify import all_types
from tidemark.api.observe import Observer
from tidemark.verify import verify
from tidemark.verify.awaited import AwaitedRows

LAKE, ICE = "lake", "ice"
ROWS, SEVERAL = 400, 6


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    sinks = [{"name": LAKE, "path": str(tmp_path / LAKE)}, {"name": ICE, "type": "iceberg", "path": str(tmp_path / ICE)}]
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial", "chunk_rows": 100}, sinks=sinks)
    with made.connect() as connection:
        create_signal_table(connection)
    columns = (*all_types.COLUMNS, all_types.JSON_COLUMN)
    made.sql(
        "SET sql_mode = ''",
        "CREATE TABLE orders (id INT PRIMARY KEY, amount INT)",
        f"INSERT INTO orders (id, amount) VALUES {', '.join(f'({number}, {number})' for number in range(ROWS))}",
        all_types.create_sql("wide", columns),
        all_types.insert_sql("wide", all_types.rows(SEVERAL, columns)),
    )
    return made


def rows_of(read: Any) -> dict[Any, dict[str, Any]]:
    """The rows of both formats, alike: a short integer is a number in each."""
    return {row["id"]: row for row in read.to_pylist()}


def wait_for(pipeline: Pipeline, name: str) -> None:
    """Until a sink has what is in the log now."""
    end, deadline = pipeline.end_of_log(), time.monotonic() + PATIENCE_S
    pipeline.send("log", {"message": "passed {}"})
    with Observer(pipeline.settings) as observer:
        while True:
            pipeline.check()
            tables = [table for table in observer.read_each()[name].tables if table.table.endswith((".orders", ".wide"))]
            if len(tables) == 2 and all(t.applied and t.consistent_at and pipeline._is_behind(t.applied, end) for t in tables):
                return
            assert time.monotonic() < deadline, f"{tables}\n{pipeline.log_tail('merge')}\n{pipeline.log_tail('run')}"
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_iceberg_equals_delta_and_delta_the_source_after_the_jvm_was_killed(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.start("run", "merge")
    for name in (LAKE, ICE):
        wait_for(pipeline, name)
    for number in range(3):
        pipeline.sql(
            f"UPDATE orders SET amount = amount + {number + 1} WHERE id % 3 = {number}",
            f"DELETE FROM orders WHERE id % 50 = {number}",
            f"INSERT INTO orders VALUES ({1000 + number}, NULL)",
            "UPDATE wide SET c_varchar = NULL, c_timestamp = NULL WHERE id = 1",
        )
        if number == 1:
            pipeline.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none', MODIFY amount BIGINT")
        _kill_in_a_batch(pipeline, tmp_path / ICE)
        pipeline.start("merge")
    for name in (LAKE, ICE):
        wait_for(pipeline, name)
    pipeline.stop("merge")
    settings = pipeline.settings.of_sink(LAKE)
    with AwaitedRows(settings) as awaited:
        report = verify(settings, awaited=awaited)
    assert report.ok, report.to_text()
    for table in ("orders", "wide"):
        delta = DeltaTable(settings.sink.table_path(pipeline.database, table)).to_pyarrow_table()
        ice = open_iceberg(pipeline.settings.of_sink(ICE).sink.table_path(pipeline.database, table)).scan().to_arrow()
        assert delta.num_rows == ice.num_rows > SEVERAL - 1
        assert rows_of(ice) == rows_of(delta), table


def _kill_in_a_batch(pipeline: Pipeline, ice: Path) -> None:
    """Kill -9 the JVM while a batch of the Iceberg sink has begun and not ended, and wait until the command has ended, too."""
    deadline = time.monotonic() + PATIENCE_S
    checkpoint = ice / "_tidemark" / "checkpoint"

    def is_in_flight() -> bool:
        begun, done = (len(list(checkpoint.glob(f"{kind}/[0-9]*"))) for kind in ("offsets", "commits"))
        return begun > done

    while not is_in_flight():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.0)
    os.kill(jvm_of(pipeline.pid("merge")), signal.SIGKILL)
    status, said = pipeline.wait_for_end("merge")
    assert status == 1, said
