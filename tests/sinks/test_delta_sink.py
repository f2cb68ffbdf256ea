"""Delta tables on the tests' Spark session: many small tables of one session, read by delta-rs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from spark_jobs.sinks.contract import Columns, Sink
from spark_jobs.sinks.delta.delta_sink import DeltaSink
from spark_jobs.sinks.delta.writer_choice import WriterRules, WriterSetting
from spark_jobs.sinks.faulty import Faults, faulty
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.behaviour import COLUMNS, QUERY, TABLE, Batch, Lab, SinkBehaviour, change
from tests.sinks.kept_behaviour import KeptRowsBehaviour
from tests.sinks.load_behaviour import LoadBehaviour, load
from tests.sinks.missing_files_behaviour import MissingFilesBehaviour
from tests.sinks.schema_behaviour import SchemaBehaviour
from tests.sinks.shared_behaviour import SharedTargetBehaviour


class DeltaLab(Lab):
    def __init__(self, spark: SparkSession, folder: Path, writer: WriterSetting = "jvm") -> None:
        self._writer = writer
        self.spark = spark
        self._layout = SinkLayout(folder)
        self._layout.service.mkdir(parents=True)
        self._path = self._layout.table(TABLE.name.database, TABLE.name.table)
        self._copy = folder / "copy"

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = DeltaSink(self._layout, lambda: query, WriterRules(self._writer))
        return sink if faults is None else faulty(sink, faults)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        return self.spark.createDataFrame(list(rows), T.StructType([T.StructField(name, kind) for name, kind in columns]))

    def rows(self) -> list[dict[str, Any]]:
        return DeltaTable(str(self._path)).to_pyarrow_table().to_pylist()

    def stamps(self) -> list[Mapping[str, Any]]:
        infos = []
        for commit in sorted((self._path / "_delta_log").glob("[0-9]*.json")):
            actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
            infos += [action["commitInfo"] for action in actions if "commitInfo" in action]
        return [json.loads(info["userMetadata"]) for info in infos if "userMetadata" in info and info["operation"] != "OPTIMIZE"]

    def quarantined(self) -> list[int]:
        found = DeltaTable(str(self._layout.quarantine)).to_pyarrow_table()
        return [row["offset"] for row in found.to_pylist()]

    def keep_copy(self) -> None:
        shutil.copytree(self._path, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self._path)
        self._copy.rename(self._path)

    def replace(self) -> None:
        rows = self.spark.read.format("delta").load(str(self._path)).limit(0)
        rows.write.format("delta").mode("overwrite").save(str(self._path))

    def remove(self) -> None:
        shutil.rmtree(self._path)

    def meddle(self) -> None:
        self.spark.sql(f"ALTER TABLE delta.`{self._path}` SET TBLPROPERTIES ('kept.by' = 'somebody')")

    def make_foreign(self) -> None:
        self.frame([], COLUMNS).write.format("delta").save(str(self._path))

    def second_writer(self) -> AbstractContextManager[None]:
        return self.open(query="second").exclusive(self.spark, 1)


class TestDelta(SinkBehaviour, SharedTargetBehaviour, KeptRowsBehaviour, SchemaBehaviour, MissingFilesBehaviour):
    """Each step of Delta is one commit: a crash before one leaves what a crash after the step before it leaves."""

    crash_points: ClassVar[tuple[str, ...]] = tuple(f"after {step}" for step in ("quarantine", "evolve", "put", "sweep"))

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> Lab:
        return DeltaLab(spark, tmp_path)


class TestDeltaByArrow(TestDelta, LoadBehaviour):
    """The same with delta-rs forced: the JVM makes the table, delta-rs puts all later rows."""

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> Lab:
        return DeltaLab(spark, tmp_path, "arrow")

    def test_a_row_that_a_deletion_vector_hides_is_not_there_for_a_load(self, lab: Lab) -> None:
        lab.play(Batch(0, [change(key, 100, key) for key in range(1, 50)]))
        path = lab.target(lab.open()).location()
        lab.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        lab.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
        load(lab, {3: 30, 4: 40}, low=90)
        assert sorted(row["Amount"] for row in lab.spark.read.format("delta").load(path).where("id in (3, 4)").collect()) == [4, 30]
