"""What executors read is what a chunk reader of the producer would have written, byte for byte, for columns of every kind."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devservers import Database
from mysqlio.connection import connect
from mysqlio.information_schema import read_table_schema
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import identity_of
from producer.snapshot.ranges import KeyRange, key_identity
from producer.snapshot.reader import Assignment, ChunkReader, WindowWatch
from producer.snapshot.scope import WholeTable
from producer.snapshot.table_access import TableAccess
from producer.snapshot.watermark import LowWatermark
from producer.snapshot.windowing import Windowing
from rowcodec.codec_factory import CodecFactory
from schemas.errors import LoadError, LoadImpossibleError
from schemas.loads import LoadAnswer
from schemas.markers import LoadMarker
from schemas.position import Position
from schemas.settings import Settings
from spark_jobs.loads import chunk_source
from spark_jobs.loads.chunk_source import TableChunks
from tests.codec.random_tables import RandomTable, tables
from tests.codec.test_the_server_is_the_oracle import _literal
from tests.support.chunk_writers import MemoryChunkWriter, MemoryTopics
from tests.support.played_loads import MemoryRegistry, load_settings, pairs
from tests.support.servers import database, drop_database, new_database
from tests.support.snapshots import Source

LOW = LowWatermark(Position(3, 7, 4711), "binlog.000007", 4711)
EXAMPLES = settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))


class _Opened(Windowing):
    """Windows that are open, at a low watermark of the test's."""

    writes_rows = True

    def prepare(self, connection: Any) -> None: ...

    def open(self, connection: Any, row: Any, bound: Position) -> LowWatermark:
        return LOW

    def close(self, connection: Any, row: Any) -> None: ...


class _Watch(WindowWatch):
    def check(self) -> None: ...

    def low_chosen(self, low: Position, *, moves: bool) -> None: ...

    def count(self, rows: int) -> None: ...

    def measured(self, cost: Any) -> None: ...

    def wait_open(self, timeout_s: float) -> bool:
        return True

    def wait_past(self, position: Position) -> bool:
        return True

    def closing(self, receipt: Any, closes_at: Position | None) -> None: ...

    def buffered(self, chunk: Any, closes_at: Position | None) -> None: ...

    def wait_closed(self) -> None: ...


class Both:
    """One table, by a chunk reader and by the merge job's source."""

    def __init__(self, source: Source, registry: MemoryRegistry, **format_options: Any) -> None:
        made = load_settings(source)
        self.settings: Settings = replace(made, format=replace(made.format, **format_options))
        self.source = source
        connector = "mariadb" if source.server.name.startswith("mariadb") else "mysql"
        self.codecs = CodecFactory("srv", connector, self.settings.format, registry, self.settings.records)

    def written(self, table: str, snapshot: str) -> tuple[list[tuple[bytes | None, bytes]], LoadMarker]:
        """What the chunk reader writes, and the marker that asks for the same."""
        topics = MemoryTopics()
        writer = MemoryChunkWriter(topics, 0)
        writer.fence()
        connection = connect(ServerAccess.of(self.settings.source))
        schema = read_table_schema(connection, self.source.schema, table)
        assert schema is not None
        bounds, scope = KeyRange(), WholeTable()
        assignment = Assignment(
            "w", "r", (self.source.schema, table), "topic", 0, bounds, scope, Position(3, 7, 4), key_identity(schema), snapshot  # type: ignore[arg-type]
        )
        reader = ChunkReader(writer, _Opened(), TableAccess(lambda: connection, self.codecs))
        reader.read(connection, assignment, _Watch())
        key, value = self.codecs.schema_ids(schema)
        load = LoadMarker(
            table=schema.full_name, position=replace(LOW.position, offset=5000), horizon=Position.MINIMUM, partitions=1, partition=0, window="w",
            request="r", chunk=0, low=LOW.position, query=scope.query(schema, bounds, None), server=identity_of(connection),
            key_schema=key, value_schema=value, file=LOW.file, snapshot=snapshot,
        )  # fmt: skip
        connection.close()
        return topics.records.get("topic", []), load

    def loaded(self, table: str, load: LoadMarker) -> list[tuple[bytes | None, bytes]]:
        sent = pickle.loads(pickle.dumps(TableChunks(self.settings)))  # noqa: S301 - as Spark does
        return pairs(sent.read(self.source.schema, table, load))


def fill(source: Source, table: RandomTable) -> None:
    source.run("SET SESSION sql_mode = ''", "DROP TABLE IF EXISTS t", table.ddl("t"))
    marks = ",".join(kind.insert for kind in table.kinds)
    rows = [tuple(_literal(value) for value in (number, *row)) for number, row in enumerate(table.rows)]
    with source.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO t VALUES (%s,{marks})", rows)


def check_every_kind(server: Database, dealt: list[RandomTable]) -> None:
    schema = new_database(server)
    source = Source(server, schema)
    try:
        for table in dealt:
            both = Both(source, registry := MemoryRegistry())
            fill(source, table)
            with pytest.MonkeyPatch.context() as patch:
                registry.serve(patch)
                patch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
                written, load = both.written("t", "incremental")
                assert len(written) == len(table.rows)
                assert both.loaded("t", load) == written
    finally:
        source.connection.close()
        drop_database(server, schema)


@given(data=st.data())
@EXAMPLES
def test_columns_of_every_kind_are_byte_identical_on_mysql(data: st.DataObject) -> None:
    check_every_kind(database("mysql80"), data.draw(tables("mysql")))


@given(data=st.data())
@EXAMPLES
def test_columns_of_every_kind_are_byte_identical_on_mariadb(data: st.DataObject) -> None:
    check_every_kind(database("mariadb114"), data.draw(tables("mariadb")))


@pytest.fixture
def source(mysql80: Database, fresh_database: Callable[[Database], str]) -> Any:
    made = Source(mysql80, fresh_database(mysql80))
    yield made
    made.connection.close()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    made = MemoryRegistry()
    made.serve(monkeypatch)
    return made


def test_blocks_are_bounded_and_have_the_codecs_bytes(source: Source, registry: MemoryRegistry) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY, w LONGBLOB NOT NULL)")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, REPEAT('x', 40000))", [(number,) for number in range(200)])
    both = Both(source, registry)
    written, load = both.written("t", "true")
    assert b"true" in written[0][1]
    blocks = list(TableChunks(both.settings).read(source.schema, "t", load))
    assert len(blocks) > 3
    assert all(isinstance(one, pa.BinaryArray) and one.null_count == 0 for block in blocks for one in block)
    assert max(values.nbytes for _, values in blocks) < 8 << 20
    assert sum(len(values) for _, values in blocks) == 200
    for _, values in blocks:
        values.validate(full=True)


def test_an_empty_chunk_has_no_blocks(source: Source, registry: MemoryRegistry) -> None:
    source.run("CREATE TABLE t (id INT PRIMARY KEY)")
    both = Both(source, registry)
    written, load = both.written("t", "incremental")
    assert both.loaded("t", load) == written == []


def test_a_table_with_a_unique_key_only_has_its_keys(source: Source, registry: MemoryRegistry) -> None:
    source.run("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT)", "INSERT INTO t VALUES (1, 2), (3, 4)")
    both = Both(source, registry)
    written, load = both.written("t", "incremental")
    loaded = both.loaded("t", load)
    assert [key for key, _ in loaded] == [key for key, _ in written]
    assert all(key is not None for key, _ in loaded)


def test_a_table_that_is_locked_is_an_error_and_holds_no_batch_up(
    source: Source, registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SELECT waits for a lock on its table for a day or a year, and with it waited the batch, and each table of the sink."""
    monkeypatch.setattr(chunk_source, "_LOCK_WAIT_S", 1)
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    both = Both(source, registry)
    _, load = both.written("t", "incremental")
    source.run("LOCK TABLES t WRITE")
    try:
        with pytest.raises(LoadError, match=r"Lock wait timeout") as error:
            both.loaded("t", load)
        assert not isinstance(error.value, LoadImpossibleError), "another attempt may help"
    finally:
        source.run("UNLOCK TABLES")
    assert len(both.loaded("t", load)) == 1


def test_answers_are_rows_and_one_that_is_there_is_as_good(source: Source, registry: MemoryRegistry) -> None:
    source.run("CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    chunks = TableChunks(load_settings(source))
    answers = [LoadAnswer("w1", 5), LoadAnswer("w2", error="it's \"full\" at 100%", retry=True)]
    chunks.answer(answers)
    chunks.answer(iter(answers))
    found = [LoadAnswer.parse(row_id, data) for row_id, data in source.rows("SELECT id, data FROM signals ORDER BY id")]
    assert found == answers


def test_an_answer_goes_into_the_log_that_is_read_and_to_no_other_server_behind_the_address(
    source: Source, registry: MemoryRegistry
) -> None:
    source.run("CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    chunks = TableChunks(load_settings(source))
    ((here,),) = source.rows("SELECT @@server_uuid")
    chunks.answer([LoadAnswer("w1", 5, server=here)])
    with pytest.raises(LoadError, match="reached another server than 00000000-0000-0000-0000-000000000000"):
        chunks.answer([LoadAnswer("w2", 5, server="00000000-0000-0000-0000-000000000000")])
    assert source.rows("SELECT id FROM signals") == [("w1-done",)]
