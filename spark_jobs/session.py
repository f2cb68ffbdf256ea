"""The Spark session of the merge job: settings enter, a session with Delta, UTC and quiet logs leaves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from schemas.settings import SparkSettings

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")

# Corrupt bytes may announce a text of two gigabytes: refuse what no Kafka record holds, before allocating it.
_LARGEST_VALUE_BYTES: Final = 256 * 1024 * 1024
_JAVA_OPTIONS_KEY: Final = "spark.driver.extraJavaOptions"
_JAVA_OPTIONS: Final = " ".join(
    (
        f"-Dlog4j2.configurationFile=file:{_LOG_SETTINGS}",
        f"-Dorg.apache.avro.limits.string.maxLength={_LARGEST_VALUE_BYTES}",
        f"-Dorg.apache.avro.limits.bytes.maxLength={_LARGEST_VALUE_BYTES}",
        "-Duser.timezone=UTC",
        # The default of a JVM without C2 is 48 MB; when that is full nothing is compiled any more.
        "-XX:ReservedCodeCacheSize=256m",
    )
)

_FIXED: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Casts and dates mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # Batches are many and small: what is planned once per partition or per table must stay cheap.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.databricks.delta.snapshotPartitions": "2",
    # OPTIMIZE leaves files alone that are large enough, and makes none that a MERGE would be slow to rewrite.
    "spark.databricks.delta.optimize.minFileSize": str(32 * 1024 * 1024),
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024 * 1024),
    # HotSpot compiles no method of more bytecodes: what would be one method for a wide table is split instead.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def build_session(settings: SparkSettings, name: str) -> SparkSession:
    """The session of one merge job; `settings.conf` wins over everything here, Java options are added.

    `settings.jars` are the Kafka source, Avro and Delta, with no other way of finding them.
    """
    builder = SparkSession.builder.appName(f"tidemark merge {name}").master(settings.master)
    for key, value in configuration(settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def configuration(settings: SparkSettings) -> dict[str, str]:
    """Every Spark property of the job."""
    conf = dict(_FIXED)
    conf["spark.driver.memory"] = settings.driver_memory
    conf["spark.sql.shuffle.partitions"] = str(shuffle_partitions(settings.master))
    if settings.jars:
        conf["spark.jars"] = ",".join(settings.jars)
    if settings.master.startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    conf |= settings.conf
    given = settings.conf.get(_JAVA_OPTIONS_KEY)
    conf[_JAVA_OPTIONS_KEY] = _JAVA_OPTIONS if given is None else f"{_JAVA_OPTIONS} {given}"
    return conf


def shuffle_partitions(master: str) -> int:
    """As many as there are cores; on a cluster a number to be raised by `spark.conf`."""
    if not master.startswith("local"):
        return 16
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdigit() else max(2, os.cpu_count() or 2)
