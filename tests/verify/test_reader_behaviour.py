"""What every reader of a sink promises, asked of each: add a lab for the reader of another type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from devservers import Postgres
from schemas.errors import ConfigError
from schemas.identity import TableName
from schemas.names import folder_name
from tests.verify import sinks
from tests.verify.merged_iceberg import MergedTables
from tests.verify.mirror_lab import MirrorTopics
from tests.verify.relational_tables import MySqlTables, PostgresTables, SinkTables
from tidemark.verify import sink_types
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.delta_reader import DeltaReader
from tidemark.verify.iceberg_reader import IcebergReader
from tidemark.verify.memory_reader import MemoryReader
from tidemark.verify.sink_reader import KeySpan, KeyValues, SinkReader, TargetRows

Lab = tuple[SinkReader, Callable[[TableName, pa.Table], None]]
"""A reader, and what makes a target of rows or replaces it."""

ODD = TableName("shop", "a$b ü")
ORDERS = TableName("ods", "orders")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int32()),
        "v": pa.array(["a", None, "c", "", "e"]),
        "_tm_position": [f"p{number}" for number in range(5)],
        "_tm_source": ["s:a.t", "s:a.t", "s:b.t", "s:b.t", "s:c.t"],
    }
)


SERVERS = ["postgres17", pytest.param("mysql97", marks=pytest.mark.slow), pytest.param("mariadb114", marks=pytest.mark.slow)]


class OwnTargets(SinkReader):
    """A reader of a server that other tests use, too: it names the targets of this test alone."""

    def __init__(self, reader: SinkReader) -> None:
        self._reader = reader

    def rows(self, target: TableName, source: str | None = None) -> TargetRows:
        return self._reader.rows(target, source)

    def targets(self) -> Iterator[TableName]:
        return (name for name in self._reader.targets() if name in (ODD, ORDERS))


def relational_lab(server: Any) -> Lab:
    tables: SinkTables = PostgresTables(server) if isinstance(server, Postgres) else MySqlTables(server)
    tables.drop(ODD, ORDERS)
    return OwnTargets(sink_types.open_reader(sinks.of_sink(**tables.settings))), tables.write


@pytest.fixture(params=["memory", "delta", "iceberg", "kafka", *SERVERS])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "memory":
        tables: dict[TableName, pa.Table] = {}
        yield MemoryReader(tables), tables.__setitem__
        return
    if request.param == "iceberg":
        yield IcebergReader(str(tmp_path)), MergedTables(request.getfixturevalue("spark"), tmp_path).write
        return
    if request.param == "kafka":
        topics = MirrorTopics(request.getfixturevalue("kafka"), tmp_path)
        yield sink_types.open_reader(topics.settings), topics.write
        return
    if request.param != "delta":
        yield relational_lab(request.getfixturevalue(request.param))
        return

    def write(name: TableName, rows: pa.Table) -> None:
        write_deltalake(f"{tmp_path}/{folder_name(name.database)}/{folder_name(name.table)}", rows, mode="overwrite")

    yield DeltaReader(str(tmp_path)), write


def ids(reader: SinkReader, *near: KeySpan | KeyValues, source: str | None = None) -> list[int]:
    found = reader.rows(ORDERS, source).read(["id"], *near)
    return sorted(number for batch in found for number in batch["id"].to_pylist())


def test_columns_rows_and_counts_are_those_of_the_target(lab: Lab) -> None:
    reader, write = lab
    write(ORDERS, ROWS)
    rows = reader.rows(ORDERS)
    assert set(rows.schema.names) == set(ROWS.schema.names)
    assert rows.find("ID") == rows.schema.field("id")
    assert rows.find("other") is None
    found = [row for batch in rows.read(["_tm_position", "id", "v"]) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["id"]) == ROWS.select(["_tm_position", "id", "v"]).to_pylist()
    assert (rows.total(), rows.count()) == (5, 5)


def test_rows_of_one_source_table_and_of_no_known_one(lab: Lab) -> None:
    reader, write = lab
    write(ORDERS, ROWS)
    assert ids(reader, source="s:b.t") == [3, 4]
    assert reader.rows(ORDERS, "s:b.t").count() == 2
    assert reader.rows(ORDERS).count_of_others(["s:a.t", "s:b.t"]) == 1


def test_a_hint_leaves_out_no_row_that_is_asked_for(lab: Lab) -> None:
    reader, write = lab
    write(ORDERS, ROWS)
    for span, wanted in ((KeySpan("id", 2, 4), {2, 3}), (KeySpan("id", None, 3), {1, 2}), (KeySpan("id", 5, None), {5})):
        found = ids(reader, span)
        assert set(found) >= wanted
        assert len(found) == len(set(found))
    assert set(ids(reader, KeySpan("id", None, None))) == {1, 2, 3, 4, 5}
    assert set(ids(reader, KeyValues("id", (2, 5, 99)))) >= {2, 5}
    assert set(ids(reader, KeyValues("id", (1, 3)), source="s:b.t")) == {3}


def test_a_target_that_is_replaced_is_seen_when_it_is_opened_again(lab: Lab) -> None:
    reader, write = lab
    write(ORDERS, ROWS)
    assert ids(reader) == [1, 2, 3, 4, 5]
    write(ORDERS, ROWS.slice(3))
    assert ids(reader) == [4, 5]
    write(ORDERS, ROWS.slice(0, 0))
    assert ids(reader) == []
    assert reader.rows(ORDERS).count() == 0


def test_a_target_that_is_not_there_is_refused_and_those_that_are_there_are_named(lab: Lab) -> None:
    reader, write = lab
    with pytest.raises(IncomparableError, match="there is no"):
        reader.rows(ORDERS)
    write(ORDERS, ROWS)
    write(ODD, ROWS)
    assert set(reader.targets()) == {ORDERS, ODD}


def test_a_type_without_a_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_types, "READERS", {"files": sink_types.READERS["delta"]})
    with pytest.raises(ConfigError, match="sinks: lake: verify cannot read a sink of type delta yet, only of type files"):
        sink_types.open_reader(sinks.of_sink(path="/data"))
