"""Children that a foreign key changes while a chunk of them waits for its close row: the chunk is read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from producer.snapshot.log_windows import LogWindows
from schemas.settings import from_mapping
from tests.e2e.topics import RecordReader
from tests.integration.among_changes import before_the_close_row, create, snapshot, stored
from tests.integration.test_ordered_stream import mapping_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database

CHILD = "id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE {} ON UPDATE CASCADE"
GRAND = "id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id) ON DELETE CASCADE"


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def fill(source: Source, rule: str = "CASCADE") -> None:
    source.execute(SIGNAL)
    create(source, "parent", "id INT PRIMARY KEY, v INT", [(number, 0) for number in range(4)])
    create(source, "child", CHILD.format(rule), [(number, number % 4, 0) for number in range(20)])
    create(source, "grand", GRAND, [(number, number) for number in range(20)])


def records(source: Source, registry: str, table: str) -> list[dict[str, Any]]:
    reader = RecordReader(from_mapping(mapping_of(source, registry)))
    return [value for *_, value in reader.records(f"{source.name}.{source.schema}.{table}") if value is not None]


def require_equal(source: Source, registry: str, table: str) -> None:
    """A consumer that keeps the last record of each key has the rows of the source."""
    rows = {(value["after"] or value["before"])["id"]: value["after"] for value in records(source, registry, table)}
    assert sorted((row for row in rows.values() if row is not None), key=lambda row: row["id"]) == list(stored(source, table).values())


@pytest.mark.parametrize("table", ["child", "grand"])
@pytest.mark.parametrize("statement", ["DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 9 WHERE id = 1"])
def test_a_chunk_that_a_foreign_key_changed_is_read_again(source, registry, monkeypatch, table, statement):
    fill(source)
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(statement)):
            snapshot(source, run, [table])
        run.caught_up(source)
        require_equal(source, registry.url, table)


def test_a_chunk_of_rows_that_a_foreign_key_set_to_null_is_read_again(source, registry, monkeypatch):
    fill(source, "SET NULL")
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("DELETE FROM parent WHERE id = 1")):
            snapshot(source, run, ["child"])
        run.caught_up(source)
        require_equal(source, registry.url, "child")


def test_a_chunk_is_read_once_if_no_child_changed(source, registry, monkeypatch):
    fill(source)
    lost: list[str] = []
    changed = LogWindows.children_changed
    monkeypatch.setattr(LogWindows, "children_changed", lambda self, table: (lost.append(table), changed(self, table)))
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE parent SET v = 1")):
            snapshot(source, run, ["child"])
        run.caught_up(source)
        assert [value["op"] for value in records(source, registry.url, "child")] == ["r"] * 20
        assert not lost
