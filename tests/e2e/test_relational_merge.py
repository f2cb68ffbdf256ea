"""The whole job into PostgreSQL: a snapshot and changes, through kill -9 of the job and of Spark's JVM, compared row by row."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, Postgres
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import new_database

ROWS = 3_000
COLUMNS = "id, code, amount, big, note, moment, raw, added"


@pytest.fixture
def pipeline(mysql80: Database, postgres17: Postgres, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    secret = tmp_path / "secret"
    secret.write_text(f"{postgres17.password}\n", "utf-8")
    url = postgres17.jdbc_url.removeprefix("jdbc:")
    sink = {
        "name": "warehouse", "type": "postgresql", "url": url, "user": postgres17.user, "password_file": str(secret),
        "work": str(tmp_path / "work"),
    }  # fmt: skip
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial", "chunk_rows": 200}, sinks=[sink])
    with made.connect() as connection:
        create_signal_table(connection)
    made.sql(
        'CREATE TABLE `odd "name"` (id BIGINT UNSIGNED, code VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, amount INT,'
        " big DECIMAL(38,10), note TEXT, moment DATETIME(6), raw VARBINARY(20), PRIMARY KEY (id, code))"
    )
    values = (
        f"({one + 2**63}, 'c{one % 7} ', {one}, {one}.0000000001, 'note {one}', '2024-02-29 23:59:59.{one:06d}', X'00FF{one:04X}')"
        for one in range(ROWS)
    )
    made.sql(f"INSERT INTO `odd \"name\"` VALUES {', '.join(values)}")
    return made


def source_rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    with pipeline.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f'SELECT {COLUMNS} FROM `odd "name"` ORDER BY id, code')
        return list(cursor.fetchall())


def sink_rows(pipeline: Pipeline, server: Postgres) -> list[tuple[Any, ...]]:
    with server.connect() as connection:
        name = f'{pipeline.database}."odd ""name"""'
        return connection.execute(f"SELECT {COLUMNS} FROM {name} ORDER BY id, code").fetchall()


def kill_jvm(pipeline: Pipeline) -> None:
    """kill -9 of the JVM that the merge job has started; the job ends by itself then."""
    children = Path(f"/proc/{pipeline.pid('merge')}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text("utf-8").split()]
    (jvm,) = [pid for pid in pids if "java" in Path(f"/proc/{pid}/cmdline").read_text("utf-8")]
    os.kill(jvm, signal.SIGKILL)
    pipeline.wait_for_end("merge")


def batch_in_flight(pipeline: Pipeline) -> bool:
    checkpoint = Path(pipeline.settings.sink.service_path) / "checkpoint"
    begun, done = (len(list(checkpoint.glob(f"{kind}/[0-9]*"))) for kind in ("offsets", "commits"))
    return begun > done


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_postgres_has_the_rows_of_the_source_through_kills_of_job_and_jvm(pipeline: Pipeline, postgres17: Postgres) -> None:
    table = '`odd "name"`'
    pipeline.start("run", "merge")
    pipeline.wait("a batch in flight", lambda _: batch_in_flight(pipeline))
    kill_jvm(pipeline)
    pipeline.start("merge")
    pipeline.wait_for_sink('odd "name"')
    for step in range(6):
        pipeline.sql(
            f"UPDATE {table} SET amount = amount + 1, note = REPEAT('x', {step}) WHERE amount % 6 = {step}",
            f"DELETE FROM {table} WHERE amount % 41 = {step}",
            f"UPDATE {table} SET code = CONCAT(code, '{step}') WHERE amount % 97 = {step}",
            f"INSERT INTO {table} (id, code) VALUES ({step}, '')",
        )
        if step == 2:
            pipeline.sql(f"ALTER TABLE {table} ADD COLUMN added INT NOT NULL DEFAULT 7")
        if step % 2:
            pipeline.wait("a batch in flight", lambda _: batch_in_flight(pipeline))
            pipeline.kill("merge")
            pipeline.wait_for_killed()
            pipeline.start("merge")
        time.sleep(0.5)
    pipeline.wait_for_sink('odd "name"')
    expected, found = source_rows(pipeline), sink_rows(pipeline, postgres17)
    assert len(expected) > ROWS // 2
    assert found == expected
    with postgres17.connect() as connection:
        left = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'tidemark' AND tablename LIKE 'stage%'").fetchone()
    assert pipeline.stop("merge") == 0
    assert left == (0,) or left is None
