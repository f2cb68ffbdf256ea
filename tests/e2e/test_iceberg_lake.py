"""One producer, a Delta sink and an Iceberg sink, Spark's JVM killed in batches of the Iceberg sink: both equal the source."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import PATIENCE_S, Pipeline, create_signal_table
from tests.e2e.test_many_sinks import answer_of, wait_for
from tests.e2e.test_operations import jvm_of, started
from tests.support.servers import new_database
from tests.verify import all_types

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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_iceberg_and_delta_equal_the_source_after_the_jvm_was_killed_in_batches(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pipeline.start("run", "merge")
    wait_for(pipeline, capsys, "the snapshot", LAKE, ICE)
    for number in range(3):
        pipeline.sql(
            f"UPDATE orders SET amount = amount + {number + 1} WHERE id % 3 = {number}",
            f"DELETE FROM orders WHERE id % 50 = {number}",
            f"INSERT INTO orders (id) VALUES ({1000 + number})",
            "UPDATE wide SET c_varchar = NULL, c_timestamp = NULL WHERE id = 1",
        )
        if number == 1:
            pipeline.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none', MODIFY amount BIGINT")
        kill_in_a_batch(pipeline, tmp_path / ICE, starts=2 * (number + 1))
        pipeline.start("merge")
    wait_for(pipeline, capsys, "the changes", LAKE, ICE)
    for name in (LAKE, ICE):
        code, out, _ = answer_of(pipeline, capsys, "verify", "--sink", name)
        assert code == 0, out
    assert pipeline.stop("merge") == 0


def kill_in_a_batch(pipeline: Pipeline, sink: Path, *, starts: int) -> None:
    """Kill -9 the JVM while a batch of a sink has begun and not ended, and wait until the command has ended, too.

    A batch that a killed job has left is not ended either: so many merge jobs must have started before.
    """
    checkpoint = sink / "_tidemark" / "checkpoint"
    deadline = time.monotonic() + PATIENCE_S

    def is_in_flight() -> bool:
        begun, done = (len(list(checkpoint.glob(f"{kind}/[0-9]*"))) for kind in ("offsets", "commits"))
        return begun > done

    while started(pipeline) < starts or not is_in_flight():
        pipeline.check()
        assert time.monotonic() < deadline, pipeline.log_tail("merge")
        time.sleep(0.01)
    time.sleep(1.0)
    os.kill(jvm_of(pipeline.pid("merge")), signal.SIGKILL)
    status, said = pipeline.wait_for_end("merge")
    assert status == 1, said
