"""Tables that come in, leave and return while producer and merge job run, as far as the lake: nobody is restarted but who is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import database as server_named
from tidemark.process import config

pytestmark = pytest.mark.slow  # tests/integration/test_reload.py has the same up to the topics, cheaper


def capture(pipeline: Pipeline, *tables: str) -> None:
    """Write the file and send SIGHUP."""
    document = json.loads(pipeline.config_path.read_text(encoding="utf-8"))
    document["source"]["tables"] = [rf"{pipeline.database}\.{table}" for table in tables]
    pipeline.config_path.write_text(json.dumps(document), encoding="utf-8")
    pipeline.settings = config.load(pipeline.config_path, {})
    if pipeline.running("run"):
        os.kill(pipeline.pid("run"), signal.SIGHUP)


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_the_lake_has_the_rows_of_the_tables_that_are_captured(
    name: str, make_pipeline: MakePipeline, fresh_database: Callable[[Database], str]
) -> None:
    server = server_named(name)
    database = fresh_database(server)
    with server.connect(database=database) as connection:
        create_signal_table(connection)
    snapshot: dict[str, Any] = {"mode": "initial", "readers": 2, "via": "kafka"}
    pipeline = make_pipeline(server, database, snapshot=snapshot)
    for table in ("a", "b"):
        rows = ",".join(f"({key}, 0)" for key in range(500))
        pipeline.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {rows}")
    capture(pipeline, "a", r"n\d")
    pipeline.start("run", "merge")
    pipeline.wait_for_sink("a")

    capture(pipeline, "b", r"n\d")
    pipeline.wait("b to be captured", lambda status: any(one.table.endswith(".b") for one in status.tables))
    pipeline.sql("CREATE TABLE n1 (id INT PRIMARY KEY, v INT)", "INSERT INTO n1 VALUES (1, 1)")
    pipeline.sql("DELETE FROM a WHERE id % 3 = 0", "INSERT INTO a VALUES (-1, 1)", "DELETE FROM b WHERE id % 2 = 0")
    pipeline.wait_for_sink("b", "n1")
    status = pipeline.status()
    assert [one.table for one in status.tables if one.released] == [f"{database}.a"]
    n1 = next(one for one in status.tables if one.table.endswith(".n1"))
    assert n1.snapshot is None, "it was read, although it is consistent from its creation on"
    pipeline.assert_equal("b", "n1")

    capture(pipeline, "a", "b", r"n\d")
    pipeline.kill("run")  # before, in or after the change
    pipeline.start("run")
    pipeline.wait_for_snapshot("a", "b")
    pipeline.wait_for_sink("a", "b", "n1")
    pipeline.wait("no snapshot to run", lambda status: not status.snapshot_running)
    report = pipeline.assert_equal()
    assert len(report.tables) == 3
