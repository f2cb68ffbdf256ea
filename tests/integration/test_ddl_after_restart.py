"""DDL right after a start, before the process has seen a row: what sinks keep is not read again without need."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.settings import Settings, from_mapping
from tests.support.producers import Source, running
from tests.support.servers import database

SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


@pytest.mark.parametrize("name", ["mysql80", pytest.param("mysql57", marks=pytest.mark.slow), "mariadb114"])
def test_dropped_columns_keep_their_values_when_the_process_has_seen_no_row(name: str, kafka: Any, fresh_database: Any) -> None:
    server = database(name)
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT)", "INSERT INTO t VALUES (1, 1, 1, 1)")

    def reads() -> list[dict[str, Any]]:
        return [record.value["after"] for record in source.changes("t") if record.value["op"] == "r"]

    with running(settings(source)) as run:
        run.until(lambda: len(reads()) == 1, "the table is read")
    with running(settings(source)) as run:
        source.execute("ALTER TABLE t DROP a", "ALTER TABLE t MODIFY b BIGINT, DROP c", "INSERT INTO t VALUES (2, 2)")
        run.caught_up(source)
        assert [table for table in run.producer.coordinator.progress() if table.request != "initial"] == []
    with running(settings(source)) as run:
        source.execute("ALTER TABLE t MODIFY b TINYINT")  # may change values, so it is read again, and the wait below ends
        run.until(lambda: len(reads()) > 1, "the table is read again")
    assert sorted(reads(), key=repr) == [{"id": 1, "a": 1, "b": 1, "c": 1}, {"id": 1, "b": 1}, {"id": 2, "b": 2}]
    source.connection.close()


def settings(source: Source) -> Settings:
    return from_mapping(source.mapping() | {"snapshot": {"mode": "initial", "merge": "producer", "readers": 1}})
