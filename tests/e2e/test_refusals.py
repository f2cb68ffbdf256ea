"""What would lose data stops the producer with a clear error that says what to do. The server is a lone one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devservers import Database, start_database
from tests.e2e.conftest import MakePipeline
from tests.support.servers import new_database


@pytest.fixture(scope="module")
def lone_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A MySQL 8.0 with MINIMAL row images."""
    folder: Path = tmp_path_factory.mktemp("lone")
    with start_database("mysql80", folder, {"binlog_row_image": "MINIMAL"}) as server:
        yield server


def test_minimal_row_images_are_refused_with_the_statement_that_mends_it(
    lone_mysql: Database, make_pipeline: MakePipeline
) -> None:
    database = new_database(lone_mysql)
    pipeline = make_pipeline(lone_mysql, database)
    pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    pipeline.start("run")
    status, said = pipeline.wait_for_end("run")
    assert status == 1
    mending = "SET GLOBAL binlog_row_image = 'FULL'"
    assert mending in said, said
    pipeline.sql(mending)
    pipeline.start("run")
    pipeline.wait("the producer", lambda status: status.log is not None)


def test_a_statement_in_the_log_stops_the_reader_in_words(
    lone_mysql: Database, make_pipeline: MakePipeline
) -> None:
    database = new_database(lone_mysql)
    pipeline = make_pipeline(lone_mysql, database)
    pipeline.sql("SET GLOBAL binlog_row_image = 'FULL'", "SET SESSION binlog_row_image = 'FULL'")
    pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    pipeline.start("run")
    pipeline.wait("the producer", lambda status: status.log is not None)
    pipeline.sql("INSERT INTO t VALUES (1, 1)")
    pipeline.wait_for_log()
    pipeline.sql("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (2, 2)")
    status, said = pipeline.wait_for_end("run")
    assert status == 1
    last = said.splitlines()[-1]
    assert "binlog_format" in last, last
    assert "binlog." in last, f"no position: {last}"
