"""Relational sinks on real servers: the suites of all sinks, and what only a database can do or suffer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from devservers import Database, Postgres
from spark_jobs.sinks.contract import Columns, Sink
from spark_jobs.sinks.faulty import Faults, FaultySink
from spark_jobs.sinks.jdbc.relational_sink import RelationalSink, access_of
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.behaviour import NAME, QUERY, Lab, SinkBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour

_numbers = count(1)


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
        return sink if faults is None else FaultySink(sink, faults)

    def of_layout(self, layout: SinkLayout, query: str) -> Sink:
        access = access_of(self.kind, self.url, self.server.user, self.server.password)
        return RelationalSink(layout, lambda: query, access, self.sink_name)

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

    def stamps(self) -> list[Mapping[str, Any]]:
        found = self.query("SELECT steps FROM tidemark.tidemark_checkpoint WHERE sink = %s AND target = %s", self.sink_name, NAME.name)
        return json.loads(found[0]["steps"]) if found else []

    def quarantined(self) -> list[int]:
        from deltalake import DeltaTable

        return [row["offset"] for row in DeltaTable(str(self._layout.quarantine)).to_pyarrow_table().to_pylist()]

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


class TestPostgres(SinkBehaviour, SharedTargetBehaviour):
    """One transaction per batch: a crash before its end leaves nothing of it, one after it leaves all."""

    crash_points: ClassVar[tuple[str, ...]] = ("after evolve", "before sweep", "after commit")

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, postgres17: Postgres) -> Lab:
        return RelationalLab(spark, tmp_path, postgres17)


@pytest.mark.slow
class TestMySql(SinkBehaviour, SharedTargetBehaviour):
    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, mysql97: Database) -> Lab:
        return MySqlLab(spark, tmp_path, mysql97)


@pytest.mark.slow
class TestMariaDb(SinkBehaviour, SharedTargetBehaviour):
    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, mariadb114: Database) -> Lab:
        return MySqlLab(spark, tmp_path, mariadb114)
