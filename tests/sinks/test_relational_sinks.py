"""Relational sinks on real servers: the suites of all sinks, and what only a database can do or suffer."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from devservers import Database, Postgres
from schemas.errors import RetriableSinkError, SinkError
from schemas.identity import TableName, Target
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import Columns, Evolution, FencedSinkError, Sink, TargetRecord, Winners
from spark_jobs.sinks.faulty import Faults, faulty
from spark_jobs.sinks.relational.relational_sink import RelationalSink, database_of
from spark_jobs.sinks.relational.staged_rows import staging_prefix
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.behaviour import (
    COLUMNS,
    FIRST,
    ID,
    NAME,
    QUERY,
    TABLE,
    Batch,
    Lab,
    SinkBehaviour,
    at,
    change,
)
from tests.sinks.kept_behaviour import KeptRowsBehaviour
from tests.sinks.key_behaviour import KeyBehaviour
from tests.sinks.schema_behaviour import SchemaBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour
from tests.verify.sinks import of_sink
from tidemark.verify.sink_types import open_reader

_numbers = count(1)


def _by_name(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in parts:
        found.setdefault(part["name"], []).append(part["part"])
    return found


class RelationalLab(Lab):
    """A sink in a server that other tests use, too: its own tables are there for all, and the target is dropped before."""

    types = ("bigint", "integer")

    def __init__(self, spark: SparkSession, folder: Path, server: Any) -> None:
        self.spark = spark
        self.server = server
        self._folder = folder
        self._layout = SinkLayout(folder / "work")
        self._layout.service.mkdir(parents=True)
        self.sink_name = f"lake{next(_numbers)}"
        self.run(f"DROP TABLE IF EXISTS {self.table}")

    @property
    def table(self) -> str:
        return "shop.orders"

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = self.of_layout(self._layout, query)
        return sink if faults is None else faulty(sink, faults)

    def of_layout(self, layout: SinkLayout, query: str) -> Sink:
        database = database_of(self.kind, self.url, self.server.user, self.server.password)
        return RelationalSink(layout, lambda: query, database, self.sink_name)

    kind = "postgresql"

    @property
    def url(self) -> str:
        return str(self.server.jdbc_url)

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        from psycopg.rows import dict_row

        with self.server.connect(row_factory=dict_row) as connection:
            return connection.execute(sql, values or None).fetchall()

    def run(self, sql: str) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS shop")
            cursor.execute(sql)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return self.spark.createDataFrame(list(rows), T.StructType([T.StructField(name, kind) for name, kind in columns]))

    def rows(self) -> list[dict[str, Any]]:
        return self.query(f"SELECT * FROM {self.table}")

    def verified(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The rows of all types, by key, as verify reads them."""
        settings = of_sink(type=self.kind, url=self.url, user=self.server.user, password=self.server.password)
        batches = open_reader(settings).rows(TableName.parse(self.table)).read([name for name, _ in KINDS])
        rows = [tuple(row[name] for name, _ in KINDS) for batch in batches for row in batch.to_pylist()]
        return {row[: len(KEYS)]: row[len(KEYS) :] for row in rows}

    def stamps(self) -> list[Mapping[str, Any]]:
        found = self.query("SELECT steps FROM tidemark.tidemark_checkpoint WHERE sink = %s AND target = %s", self.sink_name, NAME.name)
        return json.loads(found[0]["steps"]) if found else []

    def quarantined(self) -> list[int]:
        from deltalake import DeltaTable

        return [row["offset"] for row in DeltaTable(str(self._layout.quarantine)).to_pyarrow_table().to_pylist()]

    def indexes(self) -> dict[str, list[str]]:
        """The columns of each index of the target."""
        sql = """SELECT x.relname AS name, a.attname AS part FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
            JOIN pg_attribute a ON a.attrelid = x.oid WHERE i.indrelid = %s::regclass ORDER BY 1, a.attnum"""
        return _by_name(self.query(sql, self.table))

    def keep_copy(self) -> None:
        self.run("DROP TABLE IF EXISTS shop.copy")
        self.run(f"CREATE TABLE shop.copy (LIKE {self.table} INCLUDING ALL)")
        self.run(f"INSERT INTO shop.copy SELECT * FROM {self.table}")

    def put_back(self) -> None:
        self.run(f"DROP TABLE {self.table}")
        self.run("ALTER TABLE shop.copy RENAME TO orders")

    def replace(self) -> None:
        self.run("DROP TABLE IF EXISTS shop.empty")
        self.run(f"CREATE TABLE shop.empty (LIKE {self.table} INCLUDING ALL)")
        self.run(f"DROP TABLE {self.table}")
        self.run("ALTER TABLE shop.empty RENAME TO orders")

    def remove(self) -> None:
        self.run(f"DROP TABLE {self.table}")

    def meddle(self) -> None:
        self.run(f"COMMENT ON TABLE {self.table} IS 'of the shop'")
        self.run(f"VACUUM FULL {self.table}")

    def make_foreign(self) -> None:
        first, second = self.types
        self.run(f"CREATE TABLE {self.table} (id {first}, amount {second})")

    def second_writer(self) -> AbstractContextManager[None]:
        layout = SinkLayout(self._folder / "second")
        layout.service.mkdir(parents=True, exist_ok=True)
        return self.of_layout(layout, "second").exclusive(self.spark, 1)


class MySqlLab(RelationalLab):
    kind = "mysql"
    types = ("bigint", "int")

    @property
    def url(self) -> str:
        return f"mysql://{self.server.host}:{self.server.port}/"

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        from pymysql.cursors import DictCursor

        with self.server.connect() as connection, connection.cursor(DictCursor) as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def run(self, sql: str) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop")
            cursor.execute(sql)

    def rows(self) -> list[dict[str, Any]]:
        return self.query(f"SELECT *, _tm_position FROM {self.table}")

    def indexes(self) -> dict[str, list[str]]:
        sql = """SELECT index_name AS name, column_name AS part FROM information_schema.statistics
            WHERE table_schema = 'shop' AND table_name = 'orders' ORDER BY index_name, seq_in_index"""
        return _by_name(self.query(sql))

    def keep_copy(self) -> None:
        self.run("DROP TABLE IF EXISTS shop.copy")
        self.run(f"CREATE TABLE shop.copy LIKE {self.table}")
        listed = ", ".join(f"`{name}`" for name in self.rows()[0])
        self.run(f"INSERT INTO shop.copy ({listed}) SELECT {listed} FROM {self.table}")

    def put_back(self) -> None:
        self.run(f"DROP TABLE {self.table}")
        self.run(f"RENAME TABLE shop.copy TO {self.table}")

    def replace(self) -> None:
        self.run("DROP TABLE IF EXISTS shop.empty")
        self.run(f"CREATE TABLE shop.empty LIKE {self.table}")
        self.run(f"DROP TABLE {self.table}")
        self.run(f"RENAME TABLE shop.empty TO {self.table}")

    def meddle(self) -> None:
        self.run(f"ALTER TABLE {self.table} COMMENT 'of the shop'")
        self.run(f"OPTIMIZE TABLE {self.table}")


KINDS: Columns = (
    ("id", T.DecimalType(20, 0)),
    ("Code `\"' x", T.StringType()),
    ("raw", T.BinaryType()),
    ("flag", T.BooleanType()),
    ("tiny", T.ByteType()),
    ("small", T.ShortType()),
    ("whole", T.IntegerType()),
    ("big", T.LongType()),
    ("exact", T.DecimalType(38, 10)),
    ("single", T.FloatType()),
    ("double", T.DoubleType()),
    ("wide", T.StringType()),
    ("bytes", T.BinaryType()),
    ("day", T.DateType()),
    ("moment", T.TimestampNTZType()),
    ("instant", T.TimestampType()),
    ("shape", T.StructType([T.StructField("srid", T.IntegerType()), T.StructField("wkb", T.BinaryType())])),
    ("vector", T.ArrayType(T.FloatType())),
)
KEYS = ("id", "Code `\"' x", "raw")
NULLS: tuple[Any, ...] = (None,) * (len(KINDS) - len(KEYS))
LARGEST = Decimal(2**64 - 1)
DIGITS = "1" * 35 + "." + "2" * 30
SET: tuple[Any, ...] = (
    True, -128, -32768, -(2**31), -(2**63), Decimal("-1234567890123456789012345678.0123456789"), 1.5, 1.7976931348623157e308,
    DIGITS + " ☃🌊\\'\"\t\r\n\\N\\", b"\0\xff'\\", dt.date(1582, 10, 10), dt.datetime(1000, 1, 1, 0, 0, 0, 1),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999, dt.UTC), (4326, b"\1\2"), [0.5, -1.0],
)  # fmt: skip


FLT_MAX, FLT_MIN, FLT_TINY = (struct.unpack("<f", bits)[0] for bits in (b"\xff\xff\x7f\x7f", b"\0\0\x80\0", b"\1\0\0\0"))
EXTREMES: Sequence[Mapping[str, Any]] = (
    {"single": FLT_MAX, "double": 1.7976931348623157e308, "big": 2**63 - 1, "whole": 2**31 - 1, "small": 32767, "tiny": 127},
    {"single": -FLT_MAX, "double": -1.7976931348623157e308, "exact": Decimal("9" * 28 + "." + "9" * 10)},
    {"single": FLT_MIN, "double": 2.2250738585072014e-308, "exact": Decimal("-" + "9" * 28 + "." + "9" * 10)},
    {"single": -0.0, "double": -0.0, "wide": "", "bytes": b"", "exact": Decimal("0.0000000001")},
    {"single": 0.0, "double": 0.0, "wide": " ", "bytes": bytes(range(256)), "day": dt.date(1, 1, 1), "moment": dt.datetime(1, 1, 1)},
    {"single": 16777217.0 - 1, "double": 0.1, "day": dt.date(9999, 12, 31), "moment": dt.datetime(9999, 12, 31, 23, 59, 59, 999999)},
    {"single": struct.unpack("<f", struct.pack("<f", 0.1))[0], "instant": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)},
    {"instant": dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=dt.UTC), "wide": "\u0001\u007f\ufeff\ufffd\U0010ffff\u0301"},
    {"instant": dt.datetime(2106, 2, 7, 6, 28, 15, 999999, tzinfo=dt.UTC), "wide": "x" * 70_000, "bytes": b"\xff" * 3_000_000},
    {"vector": [FLT_MAX, -FLT_MAX, FLT_MIN, 0.0], "shape": {"srid": 2**31 - 1, "wkb": b""}},
)


def keyed(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows of all types, by key, as Python has them."""

    def value(found: Any) -> Any:
        if isinstance(found, memoryview):
            return bytes(found)
        if isinstance(found, dt.datetime) and found.tzinfo is not None:
            return found.astimezone(dt.UTC).replace(tzinfo=None)
        return found

    names = [name for name, _ in KINDS]
    return {tuple(value(row[name]) for name in names[:3]): tuple(value(row[name]) for name in names[3:]) for row in rows}


def stored() -> tuple[Any, ...]:
    """`SET` as a reader of a database gets it."""
    *plain, moment, instant, _, _ = SET
    shape = json.dumps({"srid": 4326, "wkb": "AQI="}, separators=(",", ":"))
    return (*plain, moment, instant.replace(tzinfo=None), shape, "[0.5,-1.0]")


class DatabaseBehaviour(KeyBehaviour):
    """What only a database can do or suffer."""

    def catalog(self, lab: Lab) -> dict[str, list[str]]:
        assert isinstance(lab, RelationalLab)
        return lab.indexes()

    def put(self, lab: Lab, number: int, rows: Sequence[tuple[Any, ...]], columns: Columns = KINDS, keys: tuple[str, ...] = KEYS) -> None:
        target = lab.target(lab.open())
        if target.exists():
            target.trust(TargetRecord(last_commit=number - 1), number)
        typed = (*columns, (DELETED, T.BooleanType()), (POSITION, T.StringType()))
        with target.commit(Batch(number).stamp) as writer:
            writer.put(Winners(lab.frame(rows, typed), keys, columns))

    def test_every_type_and_every_key_comes_back_as_it_was(self, lab: Lab) -> None:
        keys = [(LARGEST, "a", b"\0"), (LARGEST, "a ", b"\0"), (LARGEST, "A", b"\0"), (LARGEST, "a", b"\0\0"), (Decimal(0), "", b"")]
        self.put(lab, 0, [(*key, *values, False, at(1)) for key, values in zip(keys, (SET, NULLS, SET, NULLS, SET), strict=True)])
        expected = dict(zip(keys, (stored(), NULLS, stored(), NULLS, stored()), strict=True))
        assert keyed(lab.rows()) == expected
        assert list(lab.target(lab.open()).columns() or ()) == list(KINDS)
        assert isinstance(lab, RelationalLab)
        *plain, shape, vector = SET
        verified = (*plain, {"srid": shape[0], "wkb": shape[1]}, vector)
        assert lab.verified() == dict(zip(keys, (verified, NULLS, verified, NULLS, verified), strict=True))
        changed = [(*keys[0], *NULLS, False, at(2)), (*keys[1], *SET, False, at(2)), (*keys[3], *NULLS, True, at(2))]
        self.put(lab, 1, changed)
        del expected[keys[3]]
        assert keyed(lab.rows()) == expected | {keys[0]: NULLS, keys[1]: stored()}

    def test_the_extremes_of_every_type_come_back_as_they_were(self, lab: Lab) -> None:
        keys = [(Decimal(number), "", b"") for number in range(len(EXTREMES))]
        rows = [
            (*key, *(values.get(name) for name, _ in KINDS[len(KEYS) :]), False, at(1)) for key, values in zip(keys, EXTREMES, strict=True)
        ]
        self.put(lab, 0, rows)
        assert isinstance(lab, RelationalLab)
        read = lab.verified()
        for key, values in zip(keys, EXTREMES, strict=True):
            reported = {name: value for (name, _), value in zip(KINDS[len(KEYS) :], read[key], strict=True) if value is not None}
            for name, value in reported.items():
                if isinstance(value, dt.datetime) and value.tzinfo is not None:
                    reported[name] = value.astimezone(dt.UTC)
            assert repr(reported) == repr({name: values[name] for name, _ in KINDS if name in values}), "0.0 is not -0.0"

    def test_a_struct_of_many_fields_keeps_its_type_and_one_of_too_many_is_refused(self, lab: Lab) -> None:
        names = [f"field `\"' \\ {number}" for number in range(30)]
        wide = T.StructType([T.StructField(name, T.StringType()) for name in names])
        columns: Columns = (ID, ("wide", wide))
        self.put(lab, 0, [(1, tuple(names), False, at(1))], columns, ("id",))
        assert list(lab.target(lab.open()).columns() or ()) == list(columns)
        (row,) = lab.rows()
        assert json.loads(row["wide"]) == {name: name for name in names}
        assert isinstance(lab, RelationalLab)
        if lab.kind != "postgresql":
            lab.remove()
            many = T.StructType([T.StructField(hashlib.sha256(str(at).encode()).hexdigest(), T.StringType()) for at in range(40)])
            with pytest.raises(SinkError, match=r"column wide: its type takes \d+ characters .* which has at most 1024"):
                self.put(lab, 0, [], (ID, ("wide", many)), ("id",))

    def test_a_column_is_filled_with_a_text_that_needs_quotes(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        text = "it's \\ \"☃\""
        added = Evolution((("text", T.StringType(), text), ("raw", T.BinaryType(), b"\0'\\")), ())
        lab.play(Batch(1, columns=(*COLUMNS, ("text", T.StringType()), ("raw", T.BinaryType())), evolution=added), record)
        assert {(row["text"], bytes(row["raw"])) for row in lab.rows()} == {(text, b"\0'\\")}

    def test_who_opens_the_sink_later_fences_who_was_there(self, lab: Lab) -> None:
        former = lab.open()
        record = lab.play(FIRST, sink=former)
        record = lab.play(Batch(1, [change(1, 200, 9)]), record)
        with pytest.raises(FencedSinkError, match="another merge job has opened the sink"):
            lab.play(Batch(2, [change(1, 300, 99)]), record, former)
        assert lab.amounts() == {1: 9, 2: 2, 3: 3}

    def test_rows_that_executors_wrote_twice_are_a_reason_for_a_retry(self, lab: Lab) -> None:
        sink = lab.open()
        record = lab.play(FIRST, sink=sink)
        with pytest.raises(SinkError, match="came twice") as caught:
            lab.play(Batch(1, [change(1, 200, 9), change(7, 200, 7), change(7, 200, 7)]), record, sink)
        assert "twice" in (sink.passing(caught.value) or "")
        assert lab.amounts() == {1: 1, 2: 2, 3: 3}, "nothing of a batch that failed"
        lab.play(Batch(1, [change(1, 200, 9), change(7, 200, 7)]), record, sink)
        assert lab.amounts() == {1: 9, 2: 2, 3: 3, 7: 7}

    def test_what_a_dead_job_has_staged_is_dropped_at_the_next_opening(self, lab: Lab) -> None:
        assert isinstance(lab, RelationalLab)
        lab.play(FIRST)
        staging = f"tidemark.{staging_prefix(lab.sink_name)}dead"
        lab.run(f"CREATE TABLE {staging} (c0 bigint)")
        with lab.open().exclusive(lab.spark, 1):
            pass
        assert not lab.query("SELECT 1 AS one FROM information_schema.tables WHERE table_name LIKE %s", staging.partition(".")[2])

    def test_a_key_that_becomes_another_is_an_index_and_rows_merge_by_it(self, lab: Lab) -> None:
        columns: Columns = (*COLUMNS, ("name", T.StringType()))
        self.put(lab, 0, [(1, 10, "a", False, at(1)), (2, 20, "b", False, at(1))], columns, ("id",))
        self.put(lab, 1, [(1, 11, "c", False, at(2)), (1, 12, "a", False, at(2)), (9, 90, "b", True, at(2))], columns, ("name",))
        assert sorted((row["id"], row["Amount"], row["name"]) for row in lab.rows()) == [(1, 11, "c"), (1, 12, "a")]
        self.put(lab, 2, [(5, 50, "a", False, at(3))], columns, ("name",))
        twice = [(7, 70, "z", False, at(4))] * 2
        with pytest.raises(SinkError, match="came twice from the executors") as caught:
            self.put(lab, 3, twice, columns, ("name",))
        assert "twice" in (lab.open().passing(caught.value) or ""), "no primary key refuses the second one"
        assert sorted((row["id"], row["name"]) for row in lab.rows()) == [(1, "c"), (5, "a")]

    def test_a_name_that_the_server_would_cut_short_is_refused_before_anything_is_made(self, lab: Lab) -> None:
        with pytest.raises(SinkError, match="is longer than the 6"):
            self.put(lab, 0, [], (ID, ("n" * 65, T.StringType())), ("id",))
        assert not lab.target(lab.open()).exists()

    def test_a_key_longer_than_an_index_takes_is_refused_and_nothing_of_the_batch_is_written(self, lab: Lab) -> None:
        columns: Columns = (("name", T.StringType()),)
        long = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(400))
        self.put(lab, 0, [("a", False, at(1))], columns, ("name",))
        with pytest.raises(SinkError, match=r"orders: .*(index row|Data too long)"):
            self.put(lab, 1, [("b", False, at(2)), (long, False, at(2))], columns, ("name",))
        assert [row["name"] for row in lab.rows()] == ["a"]


class TestPostgres(SinkBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour, DatabaseBehaviour):
    """One transaction per batch: a crash before its end leaves nothing of it, one after it leaves all."""

    crash_points: ClassVar[tuple[str, ...]] = ("after evolve", "before sweep", "after commit")

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, postgres17: Postgres) -> Lab:
        return RelationalLab(spark, tmp_path, postgres17)

    def test_a_text_with_the_character_nul_is_refused_with_its_column(self, lab: Lab) -> None:
        columns: Columns = (ID, ("name", T.StringType()), ("note", T.StringType()))
        with pytest.raises(SinkError, match="note has a value with the character NUL: PostgreSQL has no text"):
            self.put(lab, 0, [(1, "a", "b\0c", False, at(1))], columns, ("id",))
        assert lab.rows() == []

    def test_a_year_before_the_first_is_kept(self, lab: Lab) -> None:
        columns: Columns = (ID, ("day", T.DateType()), ("moment", T.TimestampNTZType()))
        typed = (*columns, (DELETED, T.BooleanType()), (POSITION, T.StringType()))
        day, moment = F.expr("date'0000-03-01'"), F.expr("timestamp_ntz'0000-03-01 01:02:03.000004'")
        rows = lab.frame([(1, None, None, False, at(1))], typed).withColumn("day", day).withColumn("moment", moment)
        with lab.target(lab.open()).commit(Batch(0).stamp) as writer:
            writer.put(Winners(rows, ("id",), columns))
        assert isinstance(lab, RelationalLab)
        found = lab.query("SELECT day::text AS day, moment::text AS moment FROM shop.orders")
        assert found == [{"day": "0001-03-01 BC", "moment": "0001-03-01 01:02:03.000004 BC"}]

    def test_a_schema_that_another_transaction_makes_meanwhile_is_a_reason_for_a_retry(self, lab: Lab, postgres17: Postgres) -> None:
        sink, name = lab.open(), Target(NAME.sink, TableName("made_meanwhile", "orders").text)

        def put() -> None:
            with sink.target(lab.spark, name, (TABLE,)).commit(FIRST.stamp) as writer:
                writer.put(lab.winners(FIRST))

        def waits() -> bool:
            sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE SCHEMA%made_meanwhile%'"
            return bool(other.execute(sql).fetchone())

        with ThreadPoolExecutor(1) as pool, postgres17.connect(autocommit=False) as maker, postgres17.connect(autocommit=True) as other:
            maker.execute("CREATE SCHEMA made_meanwhile")
            done = pool.submit(put)
            deadline = time.monotonic() + 60
            while not waits() and not done.done() and time.monotonic() < deadline:
                time.sleep(0.05)
            maker.commit()
            error = done.exception()
        assert isinstance(error, SinkError)
        assert sink.passing(error) == "another transaction made it meanwhile", error
        put()
        assert sink.target(lab.spark, name, (TABLE,)).exists()
        with postgres17.connect(autocommit=True) as other:
            other.execute("DROP SCHEMA made_meanwhile CASCADE")

    def test_a_database_that_was_not_there_is_a_reason_for_a_retry(self, lab: Lab) -> None:
        assert isinstance(lab, RelationalLab)
        sink = lab.open()
        record = lab.play(FIRST, sink=sink)
        lab.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemark'")
        with pytest.raises(RetriableSinkError, match="does not answer") as caught:
            lab.target(sink).exists()
        assert sink.passing(caught.value) == "the database does not answer"
        lab.play(Batch(1, [change(1, 200, 9)]), record, sink)
        assert lab.amounts() == {1: 9, 2: 2, 3: 3}


class LoggedServerBehaviour:
    """What sinks promise that write into a server with a binary log."""

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_a_number_that_the_server_does_not_have_is_refused_with_its_column(self, lab: Lab, value: float) -> None:
        columns: Columns = (ID, ("good", T.DoubleType()), ("bad", T.DoubleType()))
        with pytest.raises(SinkError, match="orders: bad has NaN or an infinity: MySQL and MariaDB have neither"):
            DatabaseBehaviour().put(lab, 0, [(1, 1.0, value, False, at(1))], columns, ("id",))
        assert lab.rows() == []

    def test_rows_that_are_staged_are_not_in_the_binary_log(self, lab: Lab) -> None:
        assert isinstance(lab, MySqlLab)
        status = "SHOW BINARY LOG STATUS" if lab.server.flavour == "mysql" else "SHOW BINLOG STATUS"
        (before,) = lab.query(status)
        lab.play(FIRST)
        events = lab.query(f"SHOW BINLOG EVENTS IN '{before['File']}' FROM {before['Position']}")
        written = " ".join(event["Info"] for event in events if event["Event_type"] == "Table_map")
        assert "orders" in written
        assert "tidemark_checkpoint" in written
        assert "stage_" not in written


@pytest.mark.slow
class TestMySql(SinkBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour, DatabaseBehaviour, LoggedServerBehaviour):
    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, mysql97: Database) -> Lab:
        return MySqlLab(spark, tmp_path, mysql97)


@pytest.mark.slow
class TestMariaDb(SinkBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour, DatabaseBehaviour, LoggedServerBehaviour):
    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, mariadb114: Database) -> Lab:
        return MySqlLab(spark, tmp_path, mariadb114)
