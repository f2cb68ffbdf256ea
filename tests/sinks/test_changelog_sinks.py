"""Changelogs in files and in topics: the suite on the tests' Spark session and a real broker, read as consumers read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

from devservers import Kafka
from schemas.errors import SinkError
from schemas.settings import from_mapping
from spark_jobs.sinks.contract import Sink
from spark_jobs.sinks.faulty import Faults, InjectedCrashError, faulty
from spark_jobs.sinks.files.files_sink import FilesSink
from spark_jobs.sinks.kafka.kafka_sink import KafkaSink
from spark_jobs.sinks.kafka.sink_commits import SinkCommits
from spark_jobs.store.sink_layout import SinkLayout
from tests.sinks.append_behaviour import APPEND_POINTS, ONE, QUERY, AppendBehaviour, AppendLab
from tests.support.changelogs import OWN, events_of_files, events_of_topic
from tests.support.servers import unique_name


class SparkLab(AppendLab):
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.layout = SinkLayout(folder)
        self.layout.service.mkdir(parents=True)

    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, T.DataType]]) -> Any:
        return self.spark.createDataFrame(list(rows), T.StructType([T.StructField(name, kind) for name, kind in columns]))

    def events_seen(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def ops(self) -> list[tuple[str, str, str | None]]:
        op, position, source = OWN[:3]
        return sorted((one[source], one[op], one[position]) for one in self.events_seen())


class FilesLab(SparkLab):
    form = "parquet"

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = FilesSink(self.layout, lambda: query, self.form)
        return sink if faults is None else faulty(sink, faults)

    def events_seen(self) -> list[dict[str, Any]]:
        return events_of_files(self.layout.table("ods", "orders"))


class KafkaLab(SparkLab):
    def __init__(self, spark: SparkSession, folder: Path, kafka: Kafka) -> None:
        super().__init__(spark, folder)
        self._servers, self._sink = kafka.bootstrap_servers, unique_name("stream")
        self._settings = from_mapping(
            {
                "name": unique_name("shop"),
                "kafka": {"bootstrap_servers": self._servers, "partitions": 2},
                "source": {"tables": [".*"]},
                "sinks": [{"name": self._sink, "type": "kafka", "mode": "changelog", "path": str(folder), "topic": f"{self._sink}-$table"}],
            }
        )

    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        sink = KafkaSink(self.layout, lambda: query, self._settings)
        return sink if faults is None else faulty(sink, faults)

    def events_seen(self) -> list[dict[str, Any]]:
        return events_of_topic(self._servers, f"{self._sink}-orders")


class TestFiles(AppendBehaviour):
    crash_points: ClassVar[tuple[str, ...]] = ("after append", "before save")

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> AppendLab:
        return FilesLab(spark, tmp_path / "lake")

    def test_a_folder_of_somebody_else_and_a_manifest_without_its_files_are_refused(self, lab: AppendLab) -> None:
        assert isinstance(lab, FilesLab)
        folder = lab.layout.table("ods", "orders")
        folder.mkdir(parents=True)
        (folder / "theirs.parquet").write_bytes(b"")
        with pytest.raises(SinkError, match=r"that this merge job has not written \(theirs.parquet\)"):
            lab.play(0, *self.first(lab))
        (folder / "theirs.parquet").unlink()
        record = lab.play(0, *self.first(lab))
        next((folder / "batch=0").rglob("part-*")).unlink()
        with pytest.raises(SinkError, match="which its manifest names, is gone or was replaced"):
            lab.target(lab.open()).trust(record, 1)


@pytest.mark.slow
class TestJsonLinesAtEveryPoint(AppendBehaviour):
    crash_points: ClassVar[tuple[str, ...]] = APPEND_POINTS

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path) -> AppendLab:
        found = FilesLab(spark, tmp_path / "lake")
        found.form = "changelog-json"
        return found


class TestKafka(AppendBehaviour):
    crash_points: ClassVar[tuple[str, ...]] = ("after append", "after commit")

    @pytest.fixture
    def lab(self, spark: SparkSession, tmp_path: Path, kafka: Kafka) -> AppendLab:
        return KafkaLab(spark, tmp_path / "stream", kafka)

    def test_a_death_where_the_commit_is_recorded_leaves_no_message(self, lab: AppendLab, monkeypatch: pytest.MonkeyPatch) -> None:
        record = lab.play(0, *self.first(lab))
        before, news = lab.ops(), lab.events(ONE, 8, ("u", 200, (1, 1), (1, 2)))

        def die(*_: object) -> None:
            raise InjectedCrashError("where the commit is recorded")

        with monkeypatch.context() as dying:
            dying.setattr(SinkCommits, "add", die)
            with pytest.raises(InjectedCrashError):
                lab.play(1, news, record=record)
        assert lab.ops() == before
        lab.play(1, news, record=record)
        assert len(lab.ops()) == len(set(lab.ops())) == len(before) + 2


@pytest.mark.slow
class TestKafkaAtEveryPoint(TestKafka):
    crash_points: ClassVar[tuple[str, ...]] = APPEND_POINTS
