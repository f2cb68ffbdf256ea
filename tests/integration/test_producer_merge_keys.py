"""`merge: producer` and tables whose key is none, another one, or not enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from producer.snapshot import snapshot_state
from tests.integration.among_changes import (
    Site,
    before_the_close_row,
    consumed,
    create,
    reads,
    settings_of,
    site_of,
    snapshot,
    stored,
    writers,
)
from tests.support.producers import Source, running
from tests.support.topics import Record


@pytest.fixture
def source(mysql80, kafka, fresh_database) -> Iterator[Source]:
    """A database without a producer, for tests whose producer is set up in a way of its own."""
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture(scope="module")
def site(kafka) -> Iterator[Site]:
    yield from site_of("mysql80", kafka, readers=4)


@pytest.fixture(scope="module")
def narrow_site(kafka) -> Iterator[Site]:
    """It has little memory for chunks."""
    yield from site_of("mysql80", kafka, chunk_rows=1000, chunk_bytes=1 << 16)


def test_keys_that_are_equal_to_the_server_and_differ_in_bytes_are_kept_apart(site, monkeypatch):
    columns = "id VARCHAR(10) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v BIGINT NOT NULL"
    t = site.create(columns, [("a", 1), ("b", 2), ("ç", 3), ("d", 4), ("e", 5)])
    spellings = (
        f"UPDATE {t} SET id = 'A' WHERE id = 'a'",
        f"UPDATE {t} SET v = 20 WHERE id = 'B'",
        f"UPDATE {t} SET id = 'C' WHERE id = 'c'",
        f"DELETE FROM {t} WHERE id = 'D'",
    )
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*spellings)):
        site.snapshot(t)
    assert [row.key["id"] for row in reads(site.source, t)] == ["e"]
    assert consumed(site.source.records(t)) == stored(site.source, t)


def test_rows_are_distinguished_by_the_primary_key_where_the_record_key_is_another(source, monkeypatch):
    create(source, "t", "id INT PRIMARY KEY, owner INT NOT NULL, v INT", [(1, 1, 0), (2, 1, 0), (3, 2, 0)])
    records = {"message_key_columns": {rf"{source.schema}\.t": "owner"}, "column_exclude_list": [".*\\.id"]}
    with running(settings_of(source, records=records)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE t SET v = 1 WHERE id = 1")):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    left = sorted(row.value["after"]["owner"] for row in reads(source, "t"))
    assert left == [1, 2], "the rows 2 and 3, of the owners 1 and 2, were not touched"


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(snapshot_state, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(snapshot_state, "MAX_DELAY_S", 0.02)


def all_rows(source: Source, table: str) -> list[dict[str, Any]]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return sorted((dict(zip(names, row, strict=True)) for row in cursor.fetchall()), key=str)


def after_of(records: list[Record]) -> list[dict[str, Any]]:
    return sorted((record.value["after"] for record in records), key=str)


def test_a_table_with_a_unique_key_alone_is_read_by_it(site):
    source, t = site.source, site.fill(600, "id INT NOT NULL UNIQUE, v BIGINT NOT NULL, w VARCHAR(40)")
    with writers(source, t, 700):
        progress = snapshot(source, site.run, [t])
    site.run.caught_up(source)
    assert progress.chunks_done >= 5
    assert consumed(source.records(t)) == stored(source, t)


@pytest.mark.parametrize("merge", ["producer", "spark"])
def test_a_surrogate_key_that_repeats_or_is_null_loses_no_row(site, merge):
    """One value is in more rows than a chunk has."""
    source = site.source
    values = [None, 7, 7, 7, 7, 7, 7, 8, 9, None, -1, -1] * 20 + list(range(10, 130))
    t = site.create("id INT PRIMARY KEY, s INT, INDEX (s)", list(enumerate(values)))
    progress = site.snapshot(t, **{"surrogate-key": "S", "merge": merge})
    assert (progress.state, progress.rows) == ("done", len(values))
    assert progress.chunks_done > 2
    if merge == "producer":
        assert after_of(reads(source, t)) == all_rows(source, t)


def test_a_surrogate_key_holds_under_load(site):
    source = site.source
    rows = [(number, number % 40, "x") for number in range(800)]
    t = site.create("id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40), INDEX (v)", rows)
    with writers(source, t, 900):
        snapshot(source, site.run, [t], **{"surrogate-key": "v"})
    site.run.caught_up(source)
    assert consumed(source.records(t)) == stored(source, t)


@pytest.mark.parametrize(
    ("column", "words"), [("nope", "has no column 'nope'; it has id, j"), ("j", "by which rows have no order")]
)
def test_a_surrogate_key_that_cannot_serve_is_answered_with_a_clear_error(site, column, words):
    t = site.create("id INT PRIMARY KEY, j JSON", [(1, "{}")])
    progress = site.snapshot(t, **{"surrogate-key": column})
    assert progress.state == "failed"
    assert words in progress.error


def test_a_table_without_any_key_is_read_in_one_piece(site):
    source = site.source
    t = site.create("x INT, y VARCHAR(5)", [(1, "a"), (1, "a"), (2, None)] * 64)
    progress = site.snapshot(t)
    assert (progress.rows, progress.chunks_done) == (192, 1)
    assert after_of(reads(source, t)) == all_rows(source, t)
    assert {row.key for row in reads(source, t)} == {None}


@pytest.mark.usefixtures("impatient")
def test_equal_rows_that_change_while_they_are_read_are_read_again(site, monkeypatch):
    t = site.create("x INT", [(1,), (1,), (2,)])
    statements = (f"DELETE FROM {t} WHERE x = 1 LIMIT 1", f"INSERT INTO {t} VALUES (3)")
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*statements)):
        site.snapshot(t)
    assert after_of(reads(site.source, t)) == [{"x": 1}, {"x": 2}, {"x": 3}]


@pytest.mark.usefixtures("impatient")
def test_a_table_without_any_key_that_does_not_fit_into_memory_fails_with_a_clear_error(narrow_site, monkeypatch):
    monkeypatch.setattr(snapshot_state, "MAX_ATTEMPTS", 2)
    t = narrow_site.create("x LONGTEXT", [("x" * 30_000,)] * 5)
    progress = narrow_site.snapshot(t)
    assert progress.state == "failed"
    assert "snapshot.chunk_bytes" in progress.error
