"""Spark's MERGE as a user would write it: Structured Streaming, from_avro, foreachBatch, the newest record per key, MERGE.

`python -m bench.lake_spark_job DOCUMENT` runs until SIGTERM, and writes the end offsets of each batch to a file when the batch is
done. Cores, heap, trigger and size of a batch are those of the merge job that it is compared with.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from tidemark.runtime import java_home, spark_jars

_BATCH_RECORDS = 1_000_000
_TRIGGER = "2 seconds"


def session(*jars: Path) -> SparkSession:
    """Return a session of two cores with Delta, and with more jars."""
    os.environ.setdefault("JAVA_HOME", str(java_home(17)))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("bench").master("local[2]")
    conf = {
        "spark.jars": ",".join(str(path) for path in (*spark_jars(), *jars)),
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.network.timeout": "3600s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _newest(records: DataFrame, schema: str) -> DataFrame:
    decoded = records.where("value IS NOT NULL").select(from_avro(F.expr("substring(value, 6)"), schema).alias("r"), "offset")
    rows = decoded.select("r.op", F.coalesce("r.after", "r.before").alias("row"), "offset")
    newest = Window.partitionBy("row.id").orderBy(F.col("offset").desc())
    kept = rows.withColumn("n", F.row_number().over(newest)).where("n = 1").select("op", "row.*")
    return kept.withColumn("d", F.timestamp_micros("d")).withColumn("i", F.to_timestamp("i"))


def _merge(spark: SparkSession, records: DataFrame, schema: str, path: str) -> None:
    (
        DeltaTable.forPath(spark, path).alias("t")
        .merge(_newest(records, schema).alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.op = 'd'")
        .whenMatchedUpdateAll("s.op <> 'd'")
        .whenNotMatchedInsertAll("s.op <> 'd'")
        .execute()
    )  # fmt: skip


def _merger(spark: SparkSession, topics: Mapping[str, str], schemas: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    def merge(records: DataFrame, _batch: int) -> None:
        if len(topics) == 1:
            for topic, path in topics.items():
                _merge(spark, records, schemas[topic], path)
            return
        kept = records.select("topic", "value", "offset").persist()
        for row in kept.select("topic").distinct().collect():
            _merge(spark, kept.where(F.col("topic") == row.topic), schemas[row.topic], topics[row.topic])
        kept.unpersist()

    return merge


def _schema(registry: str, topic: str) -> str:
    with urllib.request.urlopen(f"{registry}/subjects/{topic}-value/versions/latest", timeout=60) as answer:  # noqa: S310
        return str(json.loads(answer.read())["schema"])


def main() -> None:
    """Run the job of a document."""
    document: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark, topics = session(), document["topics"]
    schemas = {topic: _schema(document["registry"], topic) for topic in topics}
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", document["servers"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", json.dumps(document["begins"]))
        .option("maxOffsetsPerTrigger", _BATCH_RECORDS)
        .load()
    )
    writer = stream.writeStream.foreachBatch(_merger(spark, topics, schemas)).trigger(processingTime=_TRIGGER)
    query = writer.option("checkpointLocation", document["checkpoint"]).start()
    path, seen = Path(document["progress"]), None
    while query.isActive:
        progress = query.lastProgress
        found = None if progress is None else json.loads(progress.json)["sources"][0]["endOffset"]
        if found != seen:
            seen = found
            path.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
            path.with_suffix(".new").replace(path)
        time.sleep(0.05)
    query.awaitTermination()


if __name__ == "__main__":
    main()
