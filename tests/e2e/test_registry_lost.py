"""A registry that loses what it had: the lake is never emptied by that, and equals the source again afterwards."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from devservers import Database, Kafka, Registry, start_registry
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.support.servers import new_database, unique_name

ROWS = 7


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Registry]:
    """A registry that may lose its memory: no other test uses it."""
    with start_registry(tmp_path) as server:
        yield server


def subjects(registry: Registry) -> list[str]:
    with urllib.request.urlopen(f"{registry.url}/subjects") as answer:  # noqa: S310 - loopback
        found: list[str] = json.load(answer)
    return found


def lose(registry: Registry, subject: str) -> None:
    for more in ("", "?permanent=true"):
        url = f"{registry.url}/subjects/{urllib.parse.quote(subject)}{more}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()  # noqa: S310 - loopback


def wait_for_subjects(pipeline: Pipeline, registry: Registry, *wanted: str) -> None:
    deadline = time.monotonic() + 120
    while not set(wanted) <= set(subjects(registry)):
        pipeline.check()
        assert time.monotonic() < deadline, pipeline.log_tail("run")
        time.sleep(0.5)


def in_lake(pipeline: Pipeline) -> int:
    path = pipeline.settings.sink.table_path(pipeline.database, "t")
    return DeltaTable(path).to_pyarrow_table().num_rows


def lose_everything(registry: Registry) -> None:
    registry.kill()
    shutil.rmtree(registry.folder / "data")
    registry.restart()


def register_strange(registry: Registry) -> None:
    """A schema of somebody else, so that all ids that are given afterwards are others than before."""
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{registry.url}/subjects/strange-value/versions",
        json.dumps({"schema": '"string"'}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    urllib.request.urlopen(request).close()  # noqa: S310 - loopback


def sink_of(pipeline: Pipeline) -> dict[str, Any]:
    document = json.loads(Path(pipeline.settings.sink.progress_path).read_text("utf-8"))
    found: dict[str, Any] = document["tables"][f"{pipeline.database}.t"]
    return found


def test_a_registry_that_loses_its_memory_empties_no_table_and_is_given_back_what_it_had(
    mysql80: Database, kafka: Kafka, forgetful: Registry, tmp_path: Path
) -> None:
    database = new_database(mysql80)
    with Pipeline(unique_name("lost"), tmp_path / "p", mysql80, database, kafka, forgetful) as pipeline:
        with pipeline.connect() as connection:
            create_signal_table(connection)
        pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        pipeline.sql(*(f"INSERT INTO t VALUES ({number}, {number})" for number in range(ROWS)))
        pipeline.start("run", "merge")
        pipeline.wait("the producer", lambda status: status.log is not None)
        pipeline.request_snapshot("t")
        pipeline.wait_for_snapshot("t")
        pipeline.wait_for_sink("t")
        assert in_lake(pipeline) == ROWS
        key, value = (f"{pipeline.name}.{database}.t-{part}" for part in ("key", "value"))

        # The subject of the key, and at once a snapshot: the lake keeps its rows whatever is merged before it is there again.
        lose(forgetful, key)
        pipeline.request_snapshot("t")
        pipeline.wait_for_snapshot("t")
        wait_for_subjects(pipeline, forgetful, key, value)
        pipeline.sql("UPDATE t SET v = -v", f"INSERT INTO t VALUES ({ROWS}, {ROWS})")
        pipeline.wait_for_sink("t")
        assert sink_of(pipeline)["skipped"] is None
        pipeline.assert_equal("t")

        # All of it, after an ALTER that the producer of now has not seen: its ids are given again, to other schemas.
        pipeline.sql("ALTER TABLE t ADD w VARCHAR(9) DEFAULT 'w'", f"INSERT INTO t VALUES ({ROWS + 1}, 1, 'x')")
        pipeline.wait_for_sink("t")
        pipeline.stop("run")
        pipeline.start("run")
        pipeline.sql("UPDATE t SET v = v + 1")
        pipeline.wait_for_sink("t")
        lose_everything(forgetful)
        pipeline.sql("UPDATE t SET w = 'before'")
        wait_for_subjects(pipeline, forgetful, key, value)
        pipeline.sql("UPDATE t SET v = v + 1", "DELETE FROM t WHERE id = 0")
        pipeline.wait_for_log()
        pipeline.request_snapshot("t")
        pipeline.wait_for_snapshot("t")
        pipeline.wait_for_sink("t")
        pipeline.assert_equal("t")
        assert in_lake(pipeline) == ROWS + 1
        assert pipeline.stop("run") == 0
        assert pipeline.stop("merge") == 0


def test_records_are_read_by_the_ids_they_were_written_with_also_where_the_registry_gives_those_to_other_schemas(
    mysql80: Database, kafka: Kafka, forgetful: Registry, tmp_path: Path
) -> None:
    """Nothing was merged before the registry lost everything: no sink knows a schema, and of three ids two come again."""
    database = new_database(mysql80)
    with Pipeline(unique_name("given"), tmp_path / "p", mysql80, database, kafka, forgetful) as pipeline:
        with pipeline.connect() as connection:
            create_signal_table(connection)
        pipeline.sql("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9))")
        pipeline.start("run")
        pipeline.wait("the producer", lambda status: status.log is not None)
        pipeline.sql("INSERT INTO t VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2')")
        for _ in range(2):  # each order of the columns fits what was written in the other: only the id shows which
            pipeline.sql("ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN b TO a", "INSERT INTO t VALUES (3, 'c3', 'a3')")
            pipeline.sql("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN c TO a", "DELETE FROM t WHERE id = 3")
        pipeline.sql("UPDATE t SET a = 'again' WHERE id = 1")
        pipeline.wait_for_log()
        assert pipeline.stop("run") == 0
        lose_everything(forgetful)
        register_strange(forgetful)
        pipeline.start("run")
        pipeline.sql("ALTER TABLE t ADD d INT", "INSERT INTO t VALUES (4, 'a4', 'b4', 4)")
        pipeline.wait_for_log()

        pipeline.start("merge")
        pipeline.wait_for_sink("t")
        (status,) = [table for table in pipeline.status().tables if table.table == f"{database}.t"]
        assert status.quarantined == 0, pipeline.log_tail("merge")
        pipeline.assert_equal("t")
        pipeline.request_snapshot("t")
        pipeline.wait_for_snapshot("t")
        pipeline.wait_for_sink("t")
        pipeline.assert_equal("t")
        assert pipeline.stop("run") == 0
        assert pipeline.stop("merge") == 0
