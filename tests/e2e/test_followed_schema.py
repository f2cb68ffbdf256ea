"""A sink that follows the schema of a real MySQL, and keeps the rows of a table that is truncated, through kills of the merge job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import new_database

TABLE = "orders"


@pytest.fixture
def pipeline(mysql80: Database, make_pipeline: MakePipeline, tmp_path: Path) -> Pipeline:
    database = new_database(mysql80)
    changes = {"behaviour": "evolve", "exclude": ["truncate.table"]}
    sink = {"name": "lake", "path": str(tmp_path / "lake"), "schema_changes": changes}
    made = make_pipeline(mysql80, database, snapshot={"mode": "initial", "chunk_rows": 50}, sinks=[sink])
    with made.connect() as connection:
        create_signal_table(connection)
    values = ", ".join(f"({number}, {number}, {number % 5}, 'k{number}')" for number in range(200))
    made.sql(
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, n BIGINT, gone INT, kept VARCHAR(10))", f"INSERT INTO {TABLE} VALUES {values}"
    )
    return made


@pytest.mark.slow
def test_columns_follow_the_source_and_truncated_rows_stay_through_kills(pipeline: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "lake" / pipeline.database / TABLE

    def rows() -> dict[int, dict[str, Any]]:
        found = DeltaTable(str(path)).to_pyarrow_table().drop_columns("_tm_position").to_pylist()
        return {row["id"]: row for row in found}

    def killed_and_started_again() -> None:
        time.sleep(0.7)
        pipeline.kill("merge")
        pipeline.wait_for_killed()
        pipeline.start("merge")

    pipeline.start("run", "merge")
    pipeline.wait_for_sink(TABLE)
    pipeline.assert_equal()
    pipeline.sql(
        f"UPDATE {TABLE} SET n = n + 1 WHERE id % 3 = 0",
        f"ALTER TABLE {TABLE} DROP COLUMN gone, MODIFY n INT",
        f"UPDATE {TABLE} SET kept = 'new' WHERE id % 7 = 0",
        f"DELETE FROM {TABLE} WHERE id % 11 = 0",
    )
    killed_and_started_again()
    pipeline.wait_for_sink(TABLE)
    pipeline.assert_equal()
    assert set(rows()[1]) == {"id", "n", "kept"}
    assert str(DeltaTable(str(path)).to_pyarrow_table().schema.field("n").type) == "int32"

    pipeline.sql(
        f"ALTER TABLE {TABLE} ADD COLUMN gone VARCHAR(5) NOT NULL DEFAULT 'x'", f"INSERT INTO {TABLE} VALUES (500, 5, 'k', 'y')"
    )
    killed_and_started_again()
    pipeline.wait_for_sink(TABLE)
    pipeline.assert_equal()
    assert {row["gone"] for row in rows().values()} == {"x", "y"}, "it came back: no row has a value of before"

    before = rows()
    pipeline.sql(f"TRUNCATE {TABLE}", f"INSERT INTO {TABLE} VALUES (1, 7, 'again', 'z'), (900, 9, 'first', 'z')")
    killed_and_started_again()
    pipeline.wait_for_sink(TABLE)
    ident = pipeline.request_snapshot(TABLE)
    pipeline.wait_for_answer(ident, lambda answer: answer.type == "COMPLETED")
    pipeline.wait_for_sink(TABLE)
    after = {
        1: {"id": 1, "n": 7, "kept": "again", "gone": "z"},
        900: {"id": 900, "n": 9, "kept": "first", "gone": "z"},
    }
    assert rows() == before | after
    report = pipeline.verify()
    assert {difference.kind.value for table in report.tables for difference in table.differences} == {"only in the sink"}
    assert pipeline.stop("merge") == 0
