"""Verify of mirrors in Kafka, on real servers: what the messages say is compared, not what the job keeps beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from devservers import Kafka
from schemas.identity import SourceId, SourceTable, TableName, Target
from schemas.settings import KafkaSettings, Settings
from spark_jobs.decode.record_columns import DELETED
from spark_jobs.sinks.contract import Winners
from spark_jobs.sinks.kafka.kafka_sink import KafkaSink
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.store.sink_layout import SinkLayout
from tests.support.record_producer import RecordProducer
from tests.support.servers import unique_name
from tests.verify.conftest import Scene
from tests.verify.mirror_lab import MirrorTopics
from tests.verify.test_verify import prepare_types
from tidemark.verify import DifferenceKind, verify
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.mirror_reader import MirrorReader, TopicUnreadableError

NAME = TableName("ods", "orders")
ON = ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)]


class Mirrored:
    """A mirror that the sink itself has written, of a table with every type."""

    def __init__(self, scene: Scene, spark: SparkSession, kafka: Kafka, form: str) -> None:
        sink = replace(scene.settings.sink, name="stream", type="kafka", topic=f"{unique_name('mirror')}-$table", format=form)
        self.settings: Settings = replace(
            scene.settings, sinks=(sink,), kafka=replace(KafkaSettings(), bootstrap_servers=kafka.bootstrap_servers)
        )
        self.topic = sink.topic.replace("$table", "types")
        self._servers = kafka.bootstrap_servers
        self._table = SourceTable(SourceId(self.settings.name), TableName(scene.database, "types"))
        self._write(spark, prepare_types(scene))

    def _write(self, spark: SparkSession, rows: pa.Table) -> None:
        """In two batches, so that messages retract rows, too."""
        file = Path(self.settings.sink.path).with_suffix(".parquet")
        pq.write_table(rows, file)
        frame = spark.read.parquet(str(file))
        columns = tuple((field.name, field.dataType) for field in frame.schema if field.name != "_tm_position")
        target, table = Target("stream", self._table.name.text), self._table
        sink = KafkaSink(SinkLayout(Path(self.settings.sink.path)), lambda: "q", self.settings)
        for number, position in enumerate(("0000", None)):
            winners = frame.withColumn(DELETED, F.lit(False))
            if position is not None:
                texts = [one for one, kind in columns if isinstance(kind, T.StringType)]
                winners = winners.withColumns({"_tm_position": F.lit(position), texts[0]: F.lit("before")})
            with sink.target(spark, target, (table,)).commit(Stamp("q", number, target.name, {"rows": number})) as writer:
                writer.put(Winners(winners, ("id",), columns, "id", None, None))

    def send(self, data: dict[str, Any], op: str, position: str) -> None:
        """Send a message of changelog-json that no merge job would send."""
        producer = RecordProducer({"bootstrap.servers": self._servers, "partitioner": "murmur2_random", "enable.idempotence": True})
        source = self._table.text
        value = {"data": data, "op": op, "_tm_position": position, "_tm_source": source}
        key = json.dumps({"_tm_source": source, "id": data["id"]}, separators=(",", ":"))
        producer.produce(self.topic, json.dumps(value), key)
        producer.flush(60)


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["mysql80", "mariadb114"], indirect=True)
@pytest.mark.parametrize("form", ["canal-json", "debezium-json", "maxwell-json"])
def test_every_type_in_the_messages_of_a_mirror_is_equal_to_the_source(
    scene: Scene, spark: SparkSession, kafka: Kafka, form: str
) -> None:
    report = verify(Mirrored(scene, spark, kafka, form).settings)
    assert report.ok, report.to_text()
    assert [(table.source_rows, table.sink_rows, table.differing) for table in report.tables] == [(40, 40, 0)]


@pytest.mark.parametrize("scene", ON, indirect=True)
def test_a_falsified_row_a_missing_row_and_a_row_too_many_in_the_messages_of_a_mirror_are_each_found(
    scene: Scene, spark: SparkSession, kafka: Kafka
) -> None:
    mirrored = Mirrored(scene, spark, kafka, "changelog-json")
    assert verify(mirrored.settings).ok
    rows = MirrorReader(mirrored.settings).rows(TableName(scene.database, "types"))
    old = next(rows.scan(["_tm_position"]))["_tm_position"][0].as_py()
    mirrored.send({"id": 20}, "-D", old)
    mirrored.send({"id": 1000}, "+I", old)
    mirrored.send({"id": 12}, "+U", old)
    (table,) = verify(mirrored.settings, patience_s=5).tables
    found = {(part.kind, part.key["id"]) for part in table.differences}
    assert found == {(DifferenceKind.MISSING, "20"), (DifferenceKind.EXTRA, "1000"), (DifferenceKind.VALUE, "12")}


def test_rows_are_those_of_the_opening_and_what_cannot_be_read_is_a_reason(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = MirrorTopics(kafka, tmp_path)
    three = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "_tm_position": ["p"] * 3, "_tm_source": ["s:a.t"] * 3})
    topics.write(NAME, three)
    reader = MirrorReader(topics.settings)
    opened = reader.rows(NAME)
    topics.write(NAME, three.slice(1))
    assert [sum(map(len, rows.scan(["id"]))) for rows in (opened, opened, reader.rows(NAME))] == [3, 3, 2]

    topics.send(NAME, "+I", {"id": "x", "_tm_position": "p"})
    topics.flush()
    with pytest.raises(pa.ArrowInvalid, match=r"column id in topic .*ods\.orders: .*invalid literal.*'x'"):
        list(reader.rows(NAME).scan(["id"]))
    topics.send(NAME, "?", {"id": 9})
    topics.flush()
    with pytest.raises(IncomparableError, match=r"has a message that is not of a mirror: it is not of changelog-json \(KeyError\('\?'\)\)"):
        reader.rows(NAME)
    silent = replace(topics.settings, kafka=replace(KafkaSettings(), bootstrap_servers="127.0.0.1:1"))
    monkeypatch.setattr("kafkaio.committed_reader.ANSWER_S", 1.0)
    with pytest.raises(TopicUnreadableError, match="cannot be read"):
        MirrorReader(silent).rows(NAME)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"op": "+I"}', '{"op": "+I", "data": 7}'])
def test_a_message_of_another_form_is_refused(text: str, kafka: Kafka, tmp_path: Path) -> None:
    topics = MirrorTopics(kafka, tmp_path)
    topics.write(NAME, pa.table({"id": [1], "v": ["a"], "_tm_position": ["p"], "_tm_source": ["s:a.t"]}))
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topics.topic(NAME), text, b"key")
    producer.flush(60)
    with pytest.raises(IncomparableError, match="has a message that is not of a mirror"):
        MirrorReader(topics.settings).rows(NAME)
