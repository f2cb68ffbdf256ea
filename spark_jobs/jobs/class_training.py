"""A run of Spark that touches what a merge job touches, without Kafka and without a source: a JVM learns its classes from it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.avro.functions import from_avro

from kafkaio.slices import Slice
from schemas.errors import SinkError
from schemas.settings import KafkaSettings, SparkSettings
from spark_jobs.jobs.session import build_session
from spark_jobs.kafka.read import kafka_options, read_slices

if TYPE_CHECKING:
    import pyarrow as pa

_NOBODY: Final = "127.0.0.1:9"
"""The discard port: a client is made and asks, and nobody answers."""
_PATIENCE: Final = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
_ENDS_S: Final = 300
_KILLED_S: Final = 20
_SCHEMA: Final = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'


def train(settings: SparkSettings) -> None:
    """Start Spark with these settings, run what a merge job runs, and end the JVM by itself: it may write down its classes then.

    What cannot be run on this machine is left out.
    """
    spark = build_session(replace(settings, master="local[2]"), "classes")
    try:
        with TemporaryDirectory(prefix="tidemark-classes-") as folder:
            _stream(spark, Path(folder))
            _kafka(spark)
            _delta(spark, Path(folder) / "table")
            _iceberg(spark, Path(folder))
    finally:
        spark.stop()
        java: Any = SparkContext._gateway  # noqa: SLF001 - there is no other way to wait for it
        java.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - else the next session asks the JVM that ended
        _wait(java.proc)


def _wait(jvm: subprocess.Popen[bytes]) -> None:
    """Wait until a JVM has written its archive and has ended. One that does not end is killed: `SinkError`, there is no archive."""
    try:
        jvm.wait(_ENDS_S)
    except subprocess.TimeoutExpired as error:
        jvm.kill()
        jvm.wait(_KILLED_S)
        raise SinkError(f"Spark's JVM had not written its class archive {_ENDS_S} s after it was to end, and was killed") from error


def _stream(spark: SparkSession, folder: Path) -> None:
    """Run a streaming query whose batches are read, divided and given to Python workers."""

    def batch(_: DataFrame, __: int) -> None:
        session = spark.newSession()
        key, partition = F.col("id").cast("string").cast("binary").alias("key"), F.col("id").cast("int").alias("partition")
        raw = session.range(100).select(key, F.lit("a").alias("topic"), partition)
        raw.groupBy("topic").agg(F.collect_list(F.struct("partition", "key")), F.count_if(F.col("key").isNotNull())).collect()
        raw.where(F.col("key").cast("string").startswith("1")).collect()
        code = F.element_at(F.create_map(F.lit("a"), F.lit(1)), F.col("topic"))
        parted = raw.select(F.shiftright(code, 1).alias("number"), "key", code.alias("bin")).repartitionById(2, F.col("bin"))
        parted.drop("bin").mapInArrow(_unchanged, "number int, key binary").collect()  # type: ignore[arg-type]

    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = reader.writeStream.foreachBatch(batch).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    query.awaitTermination(8)
    query.stop()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _kafka(spark: SparkSession) -> None:
    """Make Kafka's clients, and have them ask."""
    kafka = replace(KafkaSettings(), bootstrap_servers=_NOBODY)
    options = kafka_options(kafka) | _PATIENCE
    with suppress(PySparkException, Py4JError):
        spark.read.format("kafka").options(**options).option("subscribe", "nothing").load().collect()
    with suppress(PySparkException, Py4JError):
        read_slices(spark, replace(kafka, options={"group.id": "x"}), [Slice("nothing", 0, 0, 1)])
    with suppress(PySparkException, Py4JError):
        reader = spark.readStream.format("kafka").options(**options).option("subscribePattern", "nothing").load()
        reader.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(5)


def _delta(spark: SparkSession, path: Path) -> None:
    """Run what the JVM does with a Delta table: a first write, a MERGE, a read, and what it decodes."""
    rows = spark.range(10).select("id", F.lit("x").alias("name"), F.current_timestamp().alias("at"))
    rows.write.format("delta").mode("append").save(str(path))
    table = f"delta.`{path}`"
    matched = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    rows.createOrReplaceTempView("source")
    spark.sql(f"MERGE INTO {table} t USING source s ON t.id = s.id {matched}")
    spark.sql(f"DELETE FROM {table} WHERE id < 3")  # noqa: S608 - a path of ours
    spark.read.format("delta").load(str(path)).collect()
    with suppress(PySparkException, Py4JError):
        rows.select(from_avro(F.lit(b"\x02"), _SCHEMA).alias("key")).select("key.id").collect()


def _iceberg(spark: SparkSession, folder: Path) -> None:
    """Run what the JVM does with an Iceberg table, if Iceberg is there: a first write, a MERGE, a read."""
    catalog = "spark.sql.catalog.classes"
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", str(folder))
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    with suppress(PySparkException, Py4JError):
        rows = spark.table("source")
        rows.writeTo("classes.shop.iceberg").tableProperty("format-version", "3").create()
        matched = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        spark.sql(f"MERGE INTO classes.shop.iceberg t USING source s ON t.id = s.id {matched}")
        spark.table("classes.shop.iceberg").collect()
