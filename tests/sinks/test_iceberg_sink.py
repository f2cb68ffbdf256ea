"""Iceberg tables on the tests' Spark session, read back by pyiceberg: another implementation than the one that wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from spark_jobs.sinks.contract import Columns, Sink
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.faulty import Faults, FaultySink
from spark_jobs.sinks.iceberg.iceberg_sink import IcebergSink, catalog_name
from spark_jobs.sinks.iceberg.snapshot_log import COMPACT, STEP, read_metadata
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.behaviour import COLUMNS, QUERY, TABLE, Lab, SinkBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour
from tests.support.iceberg_tables import open_iceberg


class IcebergLab(Lab):
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark.newSession()  # a catalog keeps the warehouse that it was made with
        self._layout = SinkLayout(folder)
        self._layout.service.mkdir(parents=True)
        self.path = self._layout.table(TABLE.name.database, TABLE.name.table)
        self.table = f"{catalog_name('lake')}.shop.orders"
        self._copy = folder / "copy"
        self.target(self.open())  # gives the session the catalog

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = IcebergSink(self._layout, lambda: query, "lake")
        return sink if faults is None else FaultySink(sink, faults)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return self.spark.createDataFrame(list(rows), T.StructType([T.StructField(name, kind) for name, kind in columns]))

    def rows(self) -> list[dict[str, Any]]:
        return open_iceberg(self.path).scan().to_arrow().to_pylist()

    def stamps(self) -> list[Mapping[str, Any]]:
        metadata = read_metadata(self.path)
        assert metadata is not None
        own = [one for one in metadata.lineage() if one.summary.get(STEP) != COMPACT]
        return [one.stamp for one in reversed(own) if one.stamp is not None]

    def quarantined(self) -> list[int]:
        found = DeltaQuarantine(self._layout.quarantine).records(self.spark)
        return [] if found is None else [row["offset"] for row in found.select("offset").collect()]

    def keep_copy(self) -> None:
        shutil.copytree(self.path, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        self._copy.rename(self.path)

    def replace(self) -> None:
        self.spark.table(self.table).limit(0).writeTo(self.table).using("iceberg").replace()

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def meddle(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('kept.by' = 'somebody')")

    def make_foreign(self) -> None:
        self.frame([], COLUMNS).writeTo(self.table).using("iceberg").create()

    def second_writer(self) -> AbstractContextManager[None]:
        return self.open(query="second").exclusive(self.spark, 1)


class TestIceberg(SinkBehaviour, SharedTargetBehaviour):
    """Each step is one snapshot: a crash before one leaves what a crash after the step before it leaves."""

    crash_points: ClassVar[tuple[str, ...]] = ("after evolve", "after put")

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> Lab:
        return IcebergLab(spark, tmp_path)
