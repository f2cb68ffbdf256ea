"""A column dropped right after a restart of the producer, from MySQL to a sink that keeps dropped columns."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import create_signal_table
from tests.support.servers import new_database


@pytest.mark.slow
def test_values_of_a_column_dropped_after_a_restart_stay_in_a_lenient_sink(mysql80: Database, make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(mysql80, new_database(mysql80), snapshot={"mode": "initial"})
    with pipeline.connect() as connection:
        create_signal_table(connection)
    pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    assert pipeline.settings.sink.schema_changes.behaviour == "lenient"
    pipeline.start("run", "merge")
    pipeline.wait_for_sink("t")
    assert pipeline.stop("run") == 0
    pipeline.sql("ALTER TABLE t DROP a", "INSERT INTO t VALUES (3, 3)")
    pipeline.start("run")
    pipeline.wait_for_sink("t")
    (table,) = (one for one in pipeline.status().tables if one.table.endswith(".t"))
    assert table.rows_read == 2, "the table was read once"
    path = pipeline.settings.sink.table_path(pipeline.database, "t")
    rows = DeltaTable(path).to_pyarrow_table().select(["id", "a", "b"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(1, 1, 1), (2, 2, 2), (3, None, 3)]
